//! Reads the kinds and the controllers of a cluster from a report. A field that is missing or has another type counts
//! as absent, so that reports of other versions of mcr can be read.

use serde_json::{Map, Value};

/// A kind that is watched in a cluster, or for which a controller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind<'a> {
    /// The kind, or the watch with its selectors.
    pub(crate) name: &'a str,
    pub(crate) synced: bool,
    pub(crate) blocked: bool,
    pub(crate) problem: Option<&'a str>,
}

impl<'a> Kind<'a> {
    fn of(value: &'a Value, name: &str, problem: &str) -> Self {
        Self {
            name: text(value, name)
                .or_else(|| text(value, "watch"))
                .unwrap_or("a kind"),
            synced: flag(value, "synced"),
            blocked: flag(value, "blocked"),
            problem: text(value, problem),
        }
    }

    /// The kind and its problem.
    pub(crate) fn text(&self) -> String {
        match self.problem {
            Some(problem) => format!("{}: {problem}", self.name),
            None if self.blocked => format!("{}: it can't be listed", self.name),
            None => format!("{}: not listed yet", self.name),
        }
    }
}

/// A controller in a cluster.
#[derive(Debug, Clone)]
pub(crate) struct InController<'a> {
    pub(crate) name: &'a str,
    /// `open`, `waiting` or `blocked`.
    pub(crate) gate: &'a str,
    /// The kinds that keep the gate closed.
    pub(crate) waits_for: Vec<Kind<'a>>,
    pub(crate) parked: bool,
    pub(crate) ready: u64,
    pub(crate) delayed: u64,
    pub(crate) running: u64,
    /// The objects whose last reconcile failed, the worst first. May be only some of them.
    pub(crate) failing: Vec<Failing<'a>>,
    /// The number of failing objects. `None` if the report does not contain it.
    pub(crate) failing_count: Option<u64>,
}

/// An object whose last reconcile failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failing<'a> {
    /// `namespace/name`, or `name`.
    pub(crate) object: &'a str,
    pub(crate) attempt: u64,
    pub(crate) error: &'a str,
    pub(crate) since: Option<&'a str>,
    pub(crate) retry_at: Option<&'a str>,
}

/// A watch in one cluster that has not listed yet. Until it has, all requests of the controller wait, in all clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gating<'a> {
    pub(crate) controller: &'a str,
    /// The cluster of the watch.
    pub(crate) cluster: &'a str,
    pub(crate) kind: Kind<'a>,
}

impl Gating<'_> {
    pub(crate) fn text(&self) -> String {
        let (cluster, kind) = (self.cluster, self.kind.text());
        format!("all requests of the controller wait for a watch in cluster {cluster}: {kind}")
    }
}

/// The watches for which all requests of controllers wait.
pub(super) fn gating(report: &Map<String, Value>) -> Vec<Gating<'_>> {
    let of_controller = |controller| {
        let name = text(controller, "name").unwrap_or_default();
        list(controller.get("gatedBy")).iter().map(move |watch| Gating {
            controller: name,
            cluster: text(watch, "cluster").unwrap_or_default(),
            kind: Kind::of(watch, "watch", "reason"),
        })
    };
    list(report.get("controllers"))
        .iter()
        .flat_map(of_controller)
        .collect()
}

/// If the process is a standby in a leader election: the holder of the Lease, if there is one.
pub(super) fn standby(report: &Map<String, Value>) -> Option<Option<&str>> {
    let election = report.get("leaderElection")?;
    (text(election, "role")? == "standby").then(|| text(election, "holder"))
}

/// Whether the process has its name in a new Lease and waits until no earlier holder can be working.
pub(super) fn begins_to_lead(report: &Map<String, Value>) -> bool {
    let of_election = |field| {
        report
            .get("leaderElection")
            .and_then(|election| text(election, field))
    };
    of_election("holder").is_some_and(|holder| of_election("identity") == Some(holder))
}

/// The watched kinds of a cluster.
pub(super) fn kinds(row: &Map<String, Value>) -> Vec<Kind<'_>> {
    list(row.get("kinds"))
        .iter()
        .map(|kind| Kind::of(kind, "kind", "problem"))
        .collect()
}

/// The watches of a cluster: kinds, with their namespaces and selectors.
pub(super) fn watches(row: &Map<String, Value>) -> Vec<&str> {
    let watch = |kind| text(kind, "watch").or_else(|| text(kind, "kind"));
    list(row.get("kinds")).iter().filter_map(watch).collect()
}

/// The controllers that work on a cluster.
pub(super) fn controllers(row: &Map<String, Value>) -> Vec<InController<'_>> {
    let Some(controllers) = row.get("controllers").and_then(Value::as_object) else {
        return Vec::new();
    };
    controllers
        .iter()
        .map(|(name, value)| {
            let failing: Vec<Failing<'_>> = list(value.get("failing")).iter().filter_map(failing).collect();
            let listed = value.get("failing").map(|_| failing.len() as u64);
            InController {
                name,
                gate: text(value, "gate").unwrap_or("open"),
                waits_for: list(value.get("kinds"))
                    .iter()
                    .map(|kind| Kind::of(kind, "watch", "reason"))
                    .collect(),
                parked: flag(value, "parked"),
                ready: number(value, "ready"),
                delayed: number(value, "delayed"),
                running: number(value, "running"),
                failing_count: value.get("failingCount").and_then(Value::as_u64).or(listed),
                failing,
            }
        })
        .collect()
}

fn failing(value: &Value) -> Option<Failing<'_>> {
    Some(Failing {
        object: text(value, "object")?,
        attempt: number(value, "attempt"),
        error: text(value, "error").unwrap_or("the error is not known"),
        since: text(value, "since"),
        retry_at: text(value, "retryAt"),
    })
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str().filter(|text| !text.is_empty())
}

fn flag(value: &Value, field: &str) -> bool {
    value.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn number(value: &Value, field: &str) -> u64 {
    value.get(field).and_then(Value::as_u64).unwrap_or(0)
}
