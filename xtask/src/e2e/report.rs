//! The results of the cases: a line when a case ends, a table, and files for other programs.

mod junit;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::case::{Case, Outcome};

/// How results are written to stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table at the end
    #[default]
    Text,
    /// An object per line, as soon as a case has ended
    Json,
}

/// The cases so far.
pub(super) struct Report {
    format: Format,
    cases: Vec<Case>,
}

impl Report {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            cases: Vec::new(),
        }
    }

    /// Adds a case and reports it at once. For a failed case, prints all its output.
    pub(super) fn add(&mut self, case: Case) {
        for left_out in &case.left_out {
            eprintln!("e2e: SKIPPED in part: {left_out}");
        }
        match &case.outcome {
            Outcome::Passed => eprintln!("e2e: ok after {:.1} s", case.took.as_secs_f64()),
            Outcome::Skipped(why) => eprintln!("e2e: SKIPPED: {why}"),
            Outcome::Failed(why) => {
                eprintln!(
                    "---- {} {} ----\n{}\n---- FAILED: {why} ----",
                    case.suite,
                    case.name,
                    case.output.trim_end()
                );
            }
        }
        if self.format == Format::Json {
            print(&line(&case));
        }
        self.cases.push(case);
    }

    /// Prints the table.
    pub(super) fn finish(&self) {
        if self.cases.is_empty() {
            return;
        }
        let table = table(&self.cases);
        match self.format {
            Format::Text => print(&table),
            Format::Json => eprintln!("{table}"),
        }
    }

    /// Writes the JUnit file.
    pub(super) fn junit(&self, file: &Path) -> Result<()> {
        std::fs::write(file, junit::xml(&self.cases)).with_context(|| format!("writing {}", file.display()))
    }
}

/// Ignores errors: if nobody reads the output any more, the clusters must still be removed.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn result(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(why) => ("skipped", Some(why)),
        Outcome::Failed(why) => ("failed", Some(why)),
    }
}

fn line(case: &Case) -> String {
    /// The fields are written in the order of these lines.
    #[derive(Serialize)]
    struct Line<'a> {
        suite: &'a str,
        case: &'a str,
        result: &'a str,
        seconds: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
    }
    let (result, reason) = result(&case.outcome);
    let line = Line {
        suite: &case.suite,
        case: &case.name,
        result,
        seconds: (case.took.as_secs_f64() * 1000.0).round() / 1000.0,
        reason,
    };
    // Strings and finite numbers can always be serialised.
    serde_json::to_string(&line).unwrap_or_default()
}

fn table(cases: &[Case]) -> String {
    let width = |of: fn(&Case) -> &str| cases.iter().map(|case| of(case).len()).max().unwrap_or(0);
    let (suite, name) = (width(|case| &case.suite), width(|case| &case.name));
    let rows = cases.iter().map(|case| {
        let text = match result(&case.outcome) {
            (_, None) => "ok".to_owned(),
            (result, Some(why)) => format!("{}: {why}", result.to_uppercase()),
        };
        let mut row = format!(
            "{:suite$}  {:name$}  {:>7.1} s  {text}",
            case.suite,
            case.name,
            case.took.as_secs_f64()
        );
        for left_out in &case.left_out {
            row.push_str(&format!("\n{:suite$}  SKIPPED in part: {left_out}", ""));
        }
        row
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    pub(super) fn case(name: &str, outcome: Outcome, output: &str) -> Case {
        Case {
            suite: "kind".to_owned(),
            name: name.to_owned(),
            outcome,
            took: Duration::from_micros(1_234_567),
            output: output.to_owned(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn a_line_is_one_object_on_one_line() {
        let passed = line(&case("a::b", Outcome::Passed, ""));
        let expected = json!({"suite": "kind", "case": "a::b", "result": "passed", "seconds": 1.235});
        assert_eq!(serde_json::from_str::<Value>(&passed).unwrap(), expected);
        let skipped = line(&case("a", Outcome::Skipped("no\n\"Pod\"".to_owned()), ""));
        assert_eq!(skipped.lines().count(), 1);
        let skipped: Value = serde_json::from_str(&skipped).unwrap();
        assert_eq!(
            (&skipped["result"], &skipped["reason"]),
            (&json!("skipped"), &json!("no\n\"Pod\""))
        );
    }

    #[test]
    fn the_table_reports_what_was_left_out() {
        let mut in_part = case("a_long_name", Outcome::Passed, "");
        in_part.left_out.push("the engine: not ours".to_owned());
        let table = table(&[in_part, case("b", Outcome::Failed("signal: 6".to_owned()), "")]);
        assert!(table.contains("SKIPPED in part: the engine: not ours"), "{table}");
        assert!(
            table.ends_with("kind  b                1.2 s  FAILED: signal: 6"),
            "{table}"
        );
    }
}
