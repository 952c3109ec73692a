//! Findings: the output of the doctor.

use std::fmt::Write;

use serde::Serialize;

use crate::output::printable;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warning,
    Problem,
}

/// The check that made a finding. The names are part of the output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Check {
    Provider,
    Files,
    Engine,
    Hub,
    Description,
    Name,
    Address,
    Dns,
    Connection,
    Tls,
    Answer,
    Clock,
    Credentials,
    Rights,
    Version,
    State,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) provider: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) check: Check,
    pub(super) result: Level,
    pub(super) saw: String,
    /// A command that corrects the problem, or advice if there is no such command.
    pub(super) fix: Option<String>,
}

/// All findings.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) problems: usize,
    pub(super) warnings: usize,
    pub(super) findings: Vec<Finding>,
}

impl Findings {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.result == level).count();
        Self {
            problems: count(Level::Problem),
            warnings: count(Level::Warning),
            findings,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut of = None;
        for finding in &self.findings {
            let subject = (&finding.provider, &finding.cluster);
            if of != Some(subject) {
                let _ = match subject {
                    (provider, Some(cluster)) => {
                        let provider = provider
                            .as_ref()
                            .map(|name| format!(" (provider {})", printable(name)));
                        writeln!(
                            text,
                            "cluster {}{}",
                            printable(cluster),
                            provider.unwrap_or_default()
                        )
                    }
                    (Some(provider), None) => writeln!(text, "provider {}", printable(provider)),
                    (None, None) => Ok(()),
                };
                of = Some(subject);
            }
            let level = match finding.result {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Problem => "PROBLEM",
            };
            let check = serde_json::to_value(finding.check).ok();
            let check = check
                .as_ref()
                .and_then(|check| check.as_str())
                .unwrap_or_default();
            let _ = writeln!(text, "  {level:<7}  {check:<11}  {}", printable(&finding.saw));
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "  {:<7}  {:<11}  fix: {}", "", "", printable(fix));
            }
        }
        let _ = writeln!(
            text,
            "{}, {}",
            many(self.problems, "problem"),
            many(self.warnings, "warning")
        );
        text
    }
}

fn many(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Quotes a word for a shell if it needs quotes.
pub(super) fn word(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "._/-:=@,+".contains(char);
    let text = printable(text);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_runs_nothing_else() {
        assert_eq!(word("eu-1"), "eu-1");
        assert_eq!(word("a; rm -rf /"), "'a; rm -rf /'");
        assert_eq!(word("it's $(x)\n"), r"'it'\''s $(x) '");
        assert_eq!(word(""), "''");
    }

    #[test]
    fn findings_are_told_by_subject() {
        let finding = |cluster: Option<&str>, result, fix: Option<&str>| Finding {
            provider: Some("file".into()),
            cluster: cluster.map(Into::into),
            check: Check::Dns,
            result,
            saw: "seen\x1b".into(),
            fix: fix.map(Into::into),
        };
        let findings = Findings::new(vec![
            finding(None, Level::Ok, None),
            finding(Some("eu"), Level::Problem, Some("do this")),
            finding(Some("eu"), Level::Warning, None),
        ]);
        assert_eq!(
            findings.text(),
            "provider file\n  ok       dns          seen \n\
             cluster eu (provider file)\n  PROBLEM  dns          seen \n                        fix: do this\n\
             \x20 warning  dns          seen \n1 problem, 1 warning\n"
        );
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["findings"][1]["result"], "problem");
        assert_eq!(json["findings"][0]["check"], "dns");
        assert_eq!(json["problems"], 1);
    }
}
