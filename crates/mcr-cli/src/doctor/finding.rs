//! Findings: the output of the doctor.

use std::fmt::Write;

use serde::Serialize;

use super::fix::Fix;
use crate::{
    colour::{Colours, Tone},
    level::Level,
    output::printable,
};

/// The check that made a finding. The names are part of the output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Check {
    Provider,
    Files,
    Engine,
    Hub,
    Slice,
    Bindings,
    Claims,
    Type,
    Workspaces,
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
    pub(super) fix: Option<Fix>,
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

    pub(super) fn text(&self, colours: Colours) -> String {
        let mut text = String::new();
        let mut of = None;
        for finding in &self.findings {
            let subject = (&finding.provider, &finding.cluster);
            if of != Some(subject) {
                let title = match subject {
                    (Some(provider), Some(cluster)) => {
                        format!(
                            "cluster {} (provider {})",
                            printable(cluster),
                            printable(provider)
                        )
                    }
                    (None, Some(cluster)) => format!("cluster {}", printable(cluster)),
                    (Some(provider), None) => format!("provider {}", printable(provider)),
                    (None, None) => String::new(),
                };
                if !title.is_empty() {
                    let _ = writeln!(text, "{}", colours.paint(Some(Tone::Title), &title));
                }
                of = Some(subject);
            }
            let level = finding.result.painted(colours);
            let check = serde_json::to_value(finding.check).ok();
            let check = check
                .as_ref()
                .and_then(|check| check.as_str())
                .unwrap_or_default();
            let _ = writeln!(text, "  {level}  {check:<11}  {}", printable(&finding.saw));
            let fix = finding.fix.iter().flat_map(Fix::lines);
            for (number, line) in fix.enumerate() {
                let before = if number == 0 { "fix: " } else { "     " };
                let _ = writeln!(text, "  {:<7}  {:<11}  {before}{}", "", "", printable(&line));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_reported_by_subject() {
        let finding = |cluster: Option<&str>, result, fix: Option<&str>| Finding {
            provider: Some("file".into()),
            cluster: cluster.map(Into::into),
            check: Check::Dns,
            result,
            saw: "seen\x1b".into(),
            fix: fix.map(Fix::action),
        };
        let findings = Findings::new(vec![
            finding(None, Level::Ok, None),
            finding(Some("eu"), Level::Problem, Some("correct it")),
            finding(Some("eu"), Level::Warning, None),
        ]);
        assert_eq!(
            findings.text(Colours::Off),
            "provider file\n  ok       dns          seen \n\
             cluster eu (provider file)\n  PROBLEM  dns          seen \n                        fix: correct it\n\
             \x20 warning  dns          seen \n1 problem, 1 warning\n"
        );
        assert!(
            findings
                .text(Colours::On)
                .contains("\u{1b}[1m\u{1b}[31mPROBLEM\u{1b}[0m  dns")
        );
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["findings"][1]["result"], "problem");
        assert_eq!(json["findings"][0]["check"], "dns");
        assert_eq!(json["problems"], 1);
    }
}
