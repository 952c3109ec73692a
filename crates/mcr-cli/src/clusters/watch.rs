//! `mcr clusters --watch`: prints a line for each change.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::report::{Report, Row};
use crate::{
    names::Ambiguous,
    output::{escaped, one_word, print_line, printable},
};

/// The pause between two reports of a fleet in this process.
pub(super) const PAUSE: Duration = Duration::from_millis(250);

/// The state of a cluster that a line shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    state: String,
    since: Option<String>,
    provider: String,
    version: Option<String>,
    why: String,
}

impl Seen {
    fn of(row: &Row) -> Self {
        Self {
            state: row.state.clone(),
            since: row.since.clone(),
            provider: row.provider.clone(),
            version: row.version.clone(),
            why: row.why(),
        }
    }
}

/// A difference between two reports.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Added(String, Seen),
    Changed(String, Seen),
    Removed(String),
}

/// The clusters of the last report, by name.
#[derive(Debug, Default)]
struct LastReport(BTreeMap<String, Seen>);

impl LastReport {
    fn update(&mut self, report: &Report) -> Vec<Change> {
        // A name is in the report twice while one cluster leaves and the description of the next one can't be used. The
        // last entry counts.
        let now: BTreeMap<String, Seen> = report
            .clusters
            .iter()
            .map(|row| (row.name.clone(), Seen::of(row)))
            .collect();
        let gone = self.0.keys().filter(|name| !now.contains_key(*name));
        let mut changes: Vec<Change> = gone.cloned().map(Change::Removed).collect();
        for (name, seen) in &now {
            match self.0.get(name) {
                None => changes.push(Change::Added(name.clone(), seen.clone())),
                Some(known) if known != seen => changes.push(Change::Changed(name.clone(), seen.clone())),
                Some(_) => {}
            }
        }
        self.0 = now;
        changes
    }
}

impl Change {
    fn line(&self, as_json: bool) -> String {
        let (event, name, seen) = match self {
            Self::Added(name, seen) => ("added", name, Some(seen)),
            Self::Changed(name, seen) => ("changed", name, Some(seen)),
            Self::Removed(name) => ("removed", name, None),
        };
        if as_json {
            let mut line = json!({"event": event, "name": name});
            if let Some(seen) = seen {
                line["state"] = seen.state.as_str().into();
                line["since"] = seen.since.clone().into();
                line["provider"] = seen.provider.as_str().into();
                line["version"] = seen.version.clone().into();
                line["reason"] = Some(seen.why.as_str()).filter(|why| !why.is_empty()).into();
            }
            return escaped(&line.to_string());
        }
        let rest = seen.map_or_else(String::new, |seen| {
            let version = seen
                .version
                .as_deref()
                .map(|version| format!("  {version}"))
                .unwrap_or_default();
            let why = Some(&seen.why).filter(|why| !why.is_empty());
            let why = why.map(|why| format!("  {why}")).unwrap_or_default();
            format!("  {}{version}{why}", seen.state)
        });
        format!("{event:<7}  {}{}", one_word(name), printable(&rest))
    }
}

/// Prints changes until `stop` is cancelled or the pipe is closed. A report that fails is tried again, and its error is
/// printed once. An ambiguous name is an error.
pub(super) async fn follow(
    mut look: impl AsyncFnMut() -> anyhow::Result<Report>,
    stop: &CancellationToken,
    as_json: bool,
    pause: Duration,
) -> anyhow::Result<()> {
    let mut known = LastReport::default();
    let mut told = None;
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let looked = tokio::select! {
            looked = async { ticks.tick().await; look().await } => looked,
            () = stop.cancelled() => return Ok(()),
        };
        match looked {
            Ok(report) => {
                told = None;
                for change in known.update(&report) {
                    if !print_line(&change.line(as_json))? {
                        return Ok(());
                    }
                }
            }
            Err(error) if error.is::<Ambiguous>() => return Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                if told.as_ref() != Some(&text) {
                    eprintln!("{}; trying again", printable(&text));
                }
                told = Some(text);
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
    fn each_change_is_told_once() {
        let mut known = LastReport::default();
        let mut lines = |rows: &[_]| -> Vec<String> {
            let changes = known.update(&report(rows));
            changes.iter().map(|change| change.line(false)).collect()
        };
        let eu = ("eu", "Ready", None);
        assert_eq!(lines(&[eu]), ["added    eu  Ready"]);
        assert_eq!(lines(&[eu]), [""; 0]);
        assert_eq!(
            lines(&[("eu", "Unreachable", Some("no\nroute")), ("us", "Ready", None)]),
            ["changed  eu  Unreachable  no route", "added    us  Ready"]
        );
        assert_eq!(lines(&[("us", "Ready", None)]), ["removed  eu"]);
    }

    #[test]
    fn a_line_of_json_has_all_of_it() {
        let changes = LastReport::default().update(&report(&[("a\u{1b}", "Broken", Some("empty"))]));
        let line: serde_json::Value = serde_json::from_str(&changes[0].line(true)).unwrap();
        assert_eq!(line["event"], "added");
        assert_eq!(line["name"], "a\u{1b}");
        assert_eq!(
            (&line["state"], &line["reason"]),
            (&"Broken".into(), &"empty".into())
        );
        assert!(!changes[0].line(true).contains('\u{1b}'));
    }
}
