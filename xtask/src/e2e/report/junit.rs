//! JUnit's XML, which CI systems read.

use super::{Case, Outcome};

/// All cases, by suite in the order in which they ran.
pub(super) fn xml(cases: &[Case]) -> String {
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push_str(&format!("<testsuites name=\"e2e\"{}>\n", totals(cases)));
    for suite in cases.chunk_by(|a, b| a.suite == b.suite) {
        let name = suite.first().map(|case| escape(&case.suite)).unwrap_or_default();
        text.push_str(&format!("  <testsuite name=\"{name}\"{}>\n", totals(suite)));
        for case in suite {
            text.push_str(&format!(
                "    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.3}\">\n",
                escape(&case.name),
                case.took.as_secs_f64()
            ));
            match &case.outcome {
                Outcome::Passed => {}
                Outcome::Skipped(why) => {
                    text.push_str(&format!("      <skipped message=\"{}\"/>\n", escape(why)));
                }
                Outcome::Failed(why) => {
                    text.push_str(&format!("      <failure message=\"{}\"/>\n", escape(why)));
                }
            }
            if !case.output.is_empty() {
                text.push_str(&format!(
                    "      <system-out>{}</system-out>\n",
                    escape(&case.output)
                ));
            }
            text.push_str("    </testcase>\n");
        }
        text.push_str("  </testsuite>\n");
    }
    text.push_str("</testsuites>\n");
    text
}

fn totals(cases: &[Case]) -> String {
    let count = |is: fn(&Outcome) -> bool| cases.iter().filter(|case| is(&case.outcome)).count();
    format!(
        " tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{:.3}\"",
        cases.len(),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::Skipped(_))),
        cases.iter().map(|case| case.took.as_secs_f64()).sum::<f64>()
    )
}

/// Escapes a text for XML, also for attributes in double quotes. Characters that XML 1.0 does not allow are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' => escaped.push(character),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::case;
    use super::*;

    #[test]
    fn what_tests_print_does_not_break_the_file() {
        let output = "a < b && \"c\" ]]> \u{1b}[31mred\u{0}\u{ffff} ü";
        let failed = case("m::a", Outcome::Failed("exit \"101\"\n<&>".to_owned()), output);
        let text = xml(&[failed, case("b", Outcome::Skipped("no".to_owned()), "")]);
        assert!(text.contains("a &lt; b &amp;&amp; &quot;c&quot; ]]&gt; \u{fffd}[31mred\u{fffd}\u{fffd} ü"));
        assert!(text.contains("<failure message=\"exit &quot;101&quot;\n&lt;&amp;&gt;\"/>"));
        assert!(text.contains(
            "<testsuite name=\"kind\" tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\" time=\"2.469\">"
        ));
        for character in text.chars() {
            assert!(character >= ' ' || character == '\n', "{character:?}");
        }
    }

    #[test]
    fn each_suite_is_an_element() {
        let mut other = case("c", Outcome::Passed, "");
        other.suite = "file".to_owned();
        let text = xml(&[
            case("a", Outcome::Passed, ""),
            case("b", Outcome::Passed, ""),
            other,
        ]);
        assert_eq!(text.matches("<testsuite ").count(), 2);
        assert_eq!(text.matches("</testsuite>").count(), 2);
        assert_eq!(text.matches("<testcase ").count(), 3);
        assert_eq!(text.matches("</testcase>").count(), 3);
    }
}
