//! Explains the state of an object from the report of a controller. Without I/O.

use std::fmt::Write;

use jiff::Timestamp;
use mcr_core::doctor::Level;
use serde::Serialize;
use serde_json::Value;

use super::target::Target;
use crate::{
    clusters::{Failing, Gating, InController, Report, Row},
    colour::{Colours, Tone},
    level::{self, many},
    output::printable,
    values::long,
};

/// Everything that a report contains about an object.
#[derive(Debug, Serialize)]
pub(super) struct Explanation {
    cluster: String,
    object: String,
    pub(super) problems: usize,
    warnings: usize,
    findings: Vec<Finding>,
    /// If the process is a standby: which process to ask instead.
    #[serde(skip)]
    standby: Option<String>,
}

/// One fact about the object, its cluster or a controller there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// `None`: the finding is about the cluster, and so concerns all controllers.
    controller: Option<String>,
    check: &'static str,
    result: Level,
    message: String,
}

/// Explains the state of an object at a time.
pub(super) fn explain(report: &Report, target: &Target, now: Timestamp) -> Explanation {
    let mut explaining = Explaining {
        object: &target.object,
        now,
        found: Vec::new(),
    };
    let standby = report.standby();
    if let Some(standby) = &standby {
        explaining.add(None, "leader", Level::Warning, standby.as_str());
    }
    let rows = report.clusters.iter().filter(|row| row.name == target.cluster);
    for row in rows.filter(|_| target.is_known) {
        explaining.cluster(row);
        let controllers = row.controllers();
        let is_named = |of: &InController<'_>| {
            !explaining.failing_of(of).is_empty() || running(report, target, of.name).is_some()
        };
        if !controllers.iter().any(is_named) {
            explaining.watched(row);
        }
        for controller in controllers {
            for gating in report.gating() {
                if gating.controller == controller.name {
                    // Not a problem in a standby, which reconciles nothing anyway.
                    let level = if gating.kind.blocked || standby.is_none() {
                        Level::Problem
                    } else {
                        Level::Warning
                    };
                    explaining.add(Some(controller.name), "gate", level, gate(&gating));
                }
            }
            explaining.controller(&controller, running(report, target, controller.name));
        }
        if row.controllers().is_empty() {
            let message = "no controller works on this cluster, so nothing reconciles the object; check the selectors of \
                       the controllers";
            explaining.add(None, "controllers", Level::Problem, message);
        }
    }
    if !target.is_known {
        explaining.add(None, "cluster", Level::Problem, unknown(report));
    }
    let findings = explaining.found;
    let [problems, warnings] = level::counts(findings.iter().map(|finding| finding.result));
    Explanation {
        cluster: target.cluster.clone(),
        object: target.object.clone(),
        problems,
        warnings,
        findings,
        standby: report.leader(),
    }
}

fn gate(gating: &Gating<'_>) -> String {
    let (cluster, kind) = (gating.cluster, gating.kind.text());
    format!(
        "gate of cluster {cluster}: closed: all requests of the controller wait for a watch there: {kind}"
    )
}

fn unknown(report: &Report) -> String {
    let names: Vec<&str> = report.clusters.iter().map(|row| row.name.as_str()).collect();
    let (some, more) = names.split_at(names.len().min(5));
    let listed = match (some, more.len()) {
        ([], _) => "it has none".to_owned(),
        (some, 0) => format!("it has {}", some.join(", ")),
        (some, more) => format!("it has {} and {more} more", some.join(", ")),
    };
    format!("the controller has no cluster of this name ({listed}); mcr doctor finds out why")
}

/// How many seconds the reconcile of this object has been running. `None` if another reconcile of this controller runs
/// longer, because the report shows only the longest.
fn running(report: &Report, target: &Target, controller: &str) -> Option<u64> {
    let controllers = report.rest.get("controllers")?.as_array()?;
    let of = controllers.iter().find(|of| of["name"] == controller)?;
    let run = of.pointer("/queue/longestRunning")?;
    let is_it = run["cluster"] == target.cluster.as_str() && run["object"] == target.object.as_str();
    let seconds = run.get("seconds").and_then(Value::as_f64).filter(|_| is_it)?;
    Some(std::time::Duration::try_from_secs_f64(seconds).ok()?.as_secs())
}

struct Explaining<'a> {
    object: &'a str,
    now: Timestamp,
    found: Vec<Finding>,
}

impl Explaining<'_> {
    fn add(
        &mut self,
        controller: Option<&str>,
        check: &'static str,
        result: Level,
        message: impl Into<String>,
    ) {
        self.found.push(Finding {
            controller: controller.map(str::to_owned),
            check,
            result,
            message: message.into(),
        });
    }

    fn cluster(&mut self, row: &Row) {
        let level = match row.state.as_str() {
            "Ready" => Level::Ok,
            "Unreachable" | "Broken" => Level::Problem,
            _ => Level::Warning,
        };
        let mut message = row.state.clone();
        if let Some(span) = row.since.as_deref().and_then(|since| self.span(since)) {
            let _ = write!(message, " for {}", long(span.unsigned_abs()));
        }
        if let Some(reason) = &row.reason {
            let _ = write!(message, ": {reason}");
        }
        self.add(None, "cluster", level, message);
        for warning in &row.warnings {
            self.add(None, "cluster", Level::Warning, warning.as_str());
        }
        let kinds = row.kinds();
        let listed = kinds.iter().filter(|kind| kind.synced).count();
        if !kinds.is_empty() && listed == kinds.len() {
            self.add(
                None,
                "kinds",
                Level::Ok,
                format!("{listed} of {listed} kinds are listed"),
            );
        }
        for kind in kinds {
            if kind.blocked {
                self.add(None, "kinds", Level::Problem, kind.text());
            } else if !kind.synced || kind.problem.is_some() {
                self.add(None, "kinds", Level::Warning, kind.text());
            }
        }
    }

    /// The watches of the controllers. Shown if the report does not name the object, because the object may match no
    /// watch.
    fn watched(&mut self, row: &Row) {
        let watches = row.watches();
        if !watches.is_empty() {
            let message = format!(
                "the controllers watch {}; kubectl get shows whether {} is there and matches",
                watches.join("; "),
                self.object
            );
            self.add(None, "watched", Level::Ok, message);
        }
    }

    fn controller(&mut self, of: &InController<'_>, running: Option<u64>) {
        let name = Some(of.name);
        let kinds: Vec<String> = of.waits_for.iter().map(|kind| kind.text()).collect();
        match of.gate {
            "open" => self.add(name, "kinds", Level::Ok, "kinds of this cluster: listed"),
            gate => {
                let level = match gate {
                    "blocked" => Level::Problem,
                    _ => Level::Warning,
                };
                let message = format!(
                    "kinds of this cluster: no object of the cluster is reconciled before these are listed: {}",
                    kinds.join("; ")
                );
                self.add(name, "kinds", level, message);
            }
        }
        if of.parked {
            let message = "parked: the requests of the cluster wait until it answers again";
            self.add(name, "queue", Level::Warning, message);
        }
        let message = format!(
            "{} ready, {} delayed, {} running in this cluster",
            of.ready, of.delayed, of.running
        );
        self.add(name, "queue", Level::Ok, message);
        if let Some(seconds) = running {
            let span = long(std::time::Duration::from_secs(seconds));
            self.add(
                name,
                "running",
                Level::Ok,
                format!("its reconcile has been running for {span}"),
            );
        }
        self.failing(of);
    }

    /// The failing objects that match. If the command line has no namespace, objects of the same name in any namespace
    /// match.
    fn failing_of<'a>(&self, of: &InController<'a>) -> Vec<Failing<'a>> {
        let known = of.failing.iter().filter(|failing| {
            let plain = failing.object.rsplit('/').next();
            failing.object == self.object || !self.object.contains('/') && plain == Some(self.object)
        });
        known.copied().collect()
    }

    fn failing(&mut self, of: &InController<'_>) {
        let name = Some(of.name);
        let known = self.failing_of(of);
        for failing in &known {
            let mut message = format!("attempt {} failed: {}", failing.attempt, failing.error);
            if failing.object != self.object {
                message = format!("{}: {message}", failing.object);
            }
            if let Some(span) = failing.since.and_then(|since| self.span(since)) {
                let _ = write!(message, "; failing for {}", long(span.unsigned_abs()));
            }
            message.push_str(&match failing.retry_at.map(|at| self.span(at)) {
                Some(Some(span)) if span.is_negative() => {
                    format!("; next try in {}", long(span.unsigned_abs()))
                }
                Some(_) => "; the next try is due".to_owned(),
                None => "; no further try is planned before the object changes".to_owned(),
            });
            self.add(name, "failing", Level::Problem, message);
        }
        let listed = of.failing.len() as u64;
        match of.failing_count {
            _ if !known.is_empty() => {}
            None => {
                let message =
                    "this controller does not report failing objects; its version of mcr may be too old";
                self.add(name, "failing", Level::Warning, message);
            }
            Some(count) if count > listed => {
                let message = format!(
                    "the report has only {listed} of {count} failing objects, and {} is not among them",
                    self.object
                );
                self.add(name, "failing", Level::Warning, message);
            }
            Some(_) => {
                let message = format!("{} is not among the failing objects", self.object);
                self.add(name, "failing", Level::Ok, message);
            }
        }
    }

    /// The time between a moment in the report and now.
    fn span(&self, moment: &str) -> Option<jiff::SignedDuration> {
        let moment: Timestamp = moment.parse().ok()?;
        Some(self.now.duration_since(moment))
    }
}

impl Explanation {
    pub(super) fn text(&self, colours: Colours) -> String {
        let mut text = String::new();
        let title = format!(
            "object {} in cluster {}",
            printable(&self.object),
            printable(&self.cluster)
        );
        let _ = writeln!(text, "{}", colours.paint(Some(Tone::Title), &title));
        let mut of = &None;
        for finding in &self.findings {
            if finding.controller != *of
                && let Some(controller) = &finding.controller
            {
                let title = format!("controller {}", printable(controller));
                let _ = writeln!(text, "{}", colours.paint(Some(Tone::Title), &title));
            }
            of = &finding.controller;
            text.push_str(&level::line(
                finding.result,
                finding.check,
                &finding.message,
                colours,
            ));
        }
        let _ = match (self.problems, self.warnings, &self.standby) {
            (0, _, Some(_)) => Ok(()),
            (0, 0, None) => writeln!(
                text,
                "nothing is known of this object that keeps it waiting: it was reconciled, or is in the queue, or does not \
                 exist, or no controller watches it"
            ),
            (count, ..) => writeln!(text, "{}", many(count, "problem")),
        };
        if let Some(standby) = &self.standby {
            let _ = writeln!(text, "{}", printable(standby));
        }
        text
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
