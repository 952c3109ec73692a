//! `mcr clusters --watch`: prints a line for each change.

use std::{collections::BTreeMap, time::Duration};

use jiff::{Timestamp, Unit};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::report::{Report, Row};
use crate::{
    colour::{Colours, Tone},
    names::Ambiguous,
    output::{escaped, one_word, print_line, printable},
};

/// The pause between two reports of a fleet in this process.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// The fields of a row that a line shows.
fn shown_fields(row: &Row) -> Row {
    Row {
        reason: Some(row.why()).filter(|why| !why.is_empty()),
        warnings: Vec::new(),
        address: None,
        rest: serde_json::Map::new(),
        ..row.clone()
    }
}

/// A difference between two reports.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Added(Row),
    Changed(Row),
    Removed(String),
}

/// The clusters of the last report, by name.
#[derive(Debug, Default)]
struct LastReport(BTreeMap<String, Row>);

impl LastReport {
    fn update(&mut self, report: &Report) -> Vec<Change> {
        // A name can be in the report twice: its cluster is leaving, and the description of the next cluster of this
        // name can't be used. The last entry counts.
        let now: BTreeMap<String, Row> = report
            .clusters
            .iter()
            .map(|row| (row.name.clone(), shown_fields(row)))
            .collect();
        let gone = self.0.keys().filter(|name| !now.contains_key(*name));
        let mut changes: Vec<Change> = gone.cloned().map(Change::Removed).collect();
        for (name, row) in &now {
            match self.0.get(name) {
                None => changes.push(Change::Added(row.clone())),
                Some(known) if known != row => changes.push(Change::Changed(row.clone())),
                Some(_) => {}
            }
        }
        self.0 = now;
        changes
    }
}

impl Change {
    /// The line for a change that was noticed at this time.
    fn line(&self, at: Timestamp, output: Output) -> String {
        let at = at.round(Unit::Second).unwrap_or(at);
        let (event, name, row) = match self {
            Self::Added(row) => ("added", &row.name, Some(row)),
            Self::Changed(row) => ("changed", &row.name, Some(row)),
            Self::Removed(name) => ("removed", name, None),
        };
        let Output::Text(colours) = output else {
            let mut line = json!({"time": at.to_string(), "event": event, "name": name});
            if let Some(row) = row {
                if let Some(name) = &row.display_name {
                    line["displayName"] = name.as_str().into();
                }
                line["state"] = row.state.as_str().into();
                line["since"] = row.since.clone().into();
                line["provider"] = row.provider.as_str().into();
                line["version"] = row.version.clone().into();
                line["reason"] = row.reason.clone().into();
            }
            return escaped(&line.to_string());
        };
        let mut line = format!("{at}  {event:<7}  {}", one_word(name));
        if let Some(row) = row {
            let name = row.display_name.as_deref().map(one_word);
            let state = colours.paint(Tone::of_state(&row.state), &printable(&row.state));
            let more = [&row.version, &row.reason].map(|text| text.as_deref().map(printable));
            for part in name.into_iter().chain([state]).chain(more.into_iter().flatten()) {
                line.push_str("  ");
                line.push_str(&part);
            }
        }
        line
    }
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    Text(Colours),
    Json,
}

/// Prints changes until `stop` is cancelled or the pipe is closed. If no report can be made, tries again, and prints
/// the same error only once. An ambiguous name is an error.
pub(super) async fn follow(
    mut fetch_report: impl AsyncFnMut() -> anyhow::Result<Report>,
    stop: &CancellationToken,
    output: Output,
    pause: Duration,
) -> anyhow::Result<()> {
    let mut known = LastReport::default();
    let mut reported = None;
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let result = tokio::select! {
            result = async { ticks.tick().await; fetch_report().await } => result,
            () = stop.cancelled() => return Ok(()),
        };
        match result {
            Ok(report) => {
                reported = None;
                let now = Timestamp::now();
                for change in known.update(&report) {
                    if !print_line(&change.line(now, output))? {
                        return Ok(());
                    }
                }
            }
            Err(error) if error.is::<Ambiguous>() => return Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                if reported.as_ref() != Some(&text) {
                    eprintln!("{}; trying again", printable(&text));
                }
                reported = Some(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &[(&str, &str, Option<&str>)]) -> Report {
        let row = |(name, state, reason): &(&str, &str, Option<&str>)| Row {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            reason: reason.map(str::to_owned),
            ..Row::default()
        };
        Report {
            clusters: rows.iter().map(row).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn each_change_is_reported_once() {
        let mut known = LastReport::default();
        let mut lines = |rows: &[_]| -> Vec<String> {
            let changes = known.update(&report(rows));
            let line = |change: &Change| change.line(at(), Output::Text(Colours::Off));
            changes.iter().map(line).collect()
        };
        let eu = ("eu", "Ready", None);
        assert_eq!(lines(&[eu]), ["2026-01-01T10:00:00Z  added    eu  Ready"]);
        assert_eq!(lines(&[eu]), [""; 0]);
        assert_eq!(
            lines(&[("eu", "Unreachable", Some("no\nroute")), ("us", "Ready", None)]),
            [
                "2026-01-01T10:00:00Z  changed  eu  Unreachable  no route",
                "2026-01-01T10:00:00Z  added    us  Ready"
            ]
        );
        let coloured = LastReport::default().update(&report(&[("eu", "Unreachable", Some("no route"))]));
        let line = coloured[0].line(at(), Output::Text(Colours::On));
        assert!(
            line.ends_with("eu  \u{1b}[1m\u{1b}[31mUnreachable\u{1b}[0m  no route"),
            "{line:?}"
        );
        assert_eq!(
            lines(&[("us", "Ready", None)]),
            ["2026-01-01T10:00:00Z  removed  eu"]
        );
    }

    fn at() -> Timestamp {
        "2026-01-01T10:00:00.123Z".parse().unwrap()
    }

    #[test]
    fn a_line_of_json_has_all_of_it() {
        let changes = LastReport::default().update(&report(&[("a\u{1b}", "Broken", Some("empty"))]));
        let line: serde_json::Value = serde_json::from_str(&changes[0].line(at(), Output::Json)).unwrap();
        assert_eq!(line["time"], "2026-01-01T10:00:00Z");
        assert_eq!(line["event"], "added");
        assert_eq!(line["name"], "a\u{1b}");
        assert_eq!(
            (&line["state"], &line["reason"]),
            (&"Broken".into(), &"empty".into())
        );
        assert!(!changes[0].line(at(), Output::Json).contains('\u{1b}'));
    }
}
