//! The output of the doctor.

use std::fmt::Write;

use mcr_core::doctor::{Finding, Level};
use serde::Serialize;

use super::fix::filled;
use crate::{
    colour::{Colours, Tone},
    level::{self, many},
    output::printable,
};

/// A finding of level `Ok`, without a fix.
pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Finding {
    Finding {
        check,
        level: Level::Ok,
        message: message.into(),
        fix: None,
    }
}

/// A finding with the provider and the cluster that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    provider: Option<String>,
    cluster: Option<String>,
    check: &'static str,
    pub(super) result: Level,
    message: String,
    fix: Option<String>,
    #[serde(skip)]
    fix_lines: Vec<String>,
}

impl Row {
    pub(super) fn new(provider: Option<&str>, cluster: Option<&str>, finding: Finding) -> Self {
        let fix_lines = finding.fix.as_ref().and_then(filled).unwrap_or_default();
        Self {
            provider: provider.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            check: finding.check,
            result: finding.level,
            message: finding.message,
            fix: Some(fix_lines.join(" ")).filter(|fix| !fix.is_empty()),
            fix_lines,
        }
    }

    fn title(&self) -> Option<String> {
        let of = |what: &str, name: &Option<String>| Some(format!("{what} {}", printable(name.as_ref()?)));
        match (of("provider", &self.provider), of("cluster", &self.cluster)) {
            (Some(provider), Some(cluster)) => Some(format!("{cluster} ({provider})")),
            (provider, cluster) => cluster.or(provider),
        }
    }
}

/// All findings.
#[derive(Debug, Serialize)]
pub(super) struct Findings {
    pub(super) problems: usize,
    pub(super) warnings: usize,
    pub(super) findings: Vec<Row>,
}

impl Findings {
    pub(super) fn new(findings: Vec<Row>) -> Self {
        let [problems, warnings] = level::counts(findings.iter().map(|row| row.result));
        Self {
            problems,
            warnings,
            findings,
        }
    }

    pub(super) fn text(&self, colours: Colours) -> String {
        let (mut text, mut last_title) = (String::new(), None);
        for row in &self.findings {
            let title = row.title();
            if let Some(title) = title.as_ref().filter(|_| last_title != title) {
                let _ = writeln!(text, "{}", colours.paint(Some(Tone::Title), title));
            }
            last_title = title;
            text.push_str(&level::line(row.result, row.check, &row.message, colours));
            for (number, line) in row.fix_lines.iter().enumerate() {
                let before = if number == 0 { "fix: " } else { "     " };
                let _ = writeln!(text, "{:24}{before}{}", "", printable(line));
            }
        }
        let (problems, warnings) = (many(self.problems, "problem"), many(self.warnings, "warning"));
        let _ = writeln!(text, "{problems}, {warnings}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{super::fix::plain, *};

    #[test]
    fn findings_are_reported_by_subject() {
        let row = |cluster: Option<&str>, level, fix: Option<&str>| {
            let finding = Finding {
                check: "dns",
                level,
                message: "seen\x1b".into(),
                fix: fix.map(|action| plain(action, "id")),
            };
            Row::new(Some("file"), cluster, finding)
        };
        let findings = Findings::new(vec![
            row(None, Level::Ok, None),
            row(Some("eu"), Level::Problem, Some("correct it")),
            row(Some("eu"), Level::Warning, None),
        ]);
        assert_eq!(
            findings.text(Colours::Off),
            "provider file\n  ok       dns          seen \n\
             cluster eu (provider file)\n  PROBLEM  dns          seen \n                        fix: correct it:\n\
             \x20                            id\n  warning  dns          seen \n1 problem, 1 warning\n"
        );
        let painted = "\u{1b}[1m\u{1b}[31mPROBLEM\u{1b}[0m  dns";
        assert!(findings.text(Colours::On).contains(painted));
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!(json["findings"][1]["result"], "problem");
        assert_eq!(json["findings"][1]["fix"], "correct it: id");
        assert_eq!(
            (&json["findings"][0]["check"], &json["problems"]),
            (&"dns".into(), &1.into())
        );
    }
}
