//! The report of `mcr clusters`: the JSON document of a controller's `/clusters`, with versions and addresses added.

use jiff::Timestamp;
use mcr_core::DISPLAY_NAME;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::details::{self, Failing, Gating, InController, Kind};
use crate::{
    colour::{Colours, Tone},
    names::{Ambiguous, Wanted},
    output::{printable, table},
    values::short,
};

/// Shown instead of the name of the leader while the process itself is about to lead.
const BEGINS_TO_LEAD: &str = "this process has written its name into a new Lease, and leads when no earlier holder can be working any more: after the duration of the Lease, 15 s by default";

/// The state of a fleet, as data.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) clusters: Vec<Row>,
    #[serde(default)]
    pub(crate) providers: Vec<ProviderRow>,
    /// Fields that this program does not know. The JSON output keeps them.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
    /// Whether each provider has announced its clusters, or has failed.
    #[serde(skip)]
    pub(crate) all_known: bool,
    /// Whether the fleet runs in this process. Then its clusters are as old as the process.
    #[serde(skip)]
    pub(crate) is_local: bool,
}

/// The state of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The name for people, if the provider gives one.
    #[serde(default, rename = "displayName", skip_serializing_if = "Option::is_none")]
    pub(crate) display_name: Option<String>,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) since: Option<String>,
    #[serde(default)]
    pub(crate) provider: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// The version of its API server, if this program has requested it or the controller reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<String>,
    /// The address of its API server, if this program connects to the cluster itself or the controller reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

/// The state of a provider.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProviderRow {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) synced: bool,
    #[serde(default)]
    pub(crate) last_error: Option<String>,
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Report {
    /// The report in a JSON document. `None` if the document is something else.
    pub(crate) fn of(document: Value) -> Option<Self> {
        let mut report: Self = serde_json::from_value(document).ok()?;
        let has_reported = |provider: &ProviderRow| provider.synced || provider.last_error.is_some();
        report.all_known = report.providers.iter().all(has_reported);
        for row in report
            .clusters
            .iter_mut()
            .filter(|row| row.display_name.is_none())
        {
            // The snapshot of a fleet has the display name only as a property.
            let name = row.rest.get("properties").and_then(|all| all.get(DISPLAY_NAME));
            row.display_name = name.and_then(Value::as_str).map(str::to_owned);
        }
        Some(report)
    }

    /// Keeps only the clusters that the command line names.
    pub(crate) fn only(mut self, wanted: &mut Wanted) -> Result<Self, Ambiguous> {
        self.find(wanted, self.all_known)?;
        self.clusters.retain(|row| wanted.selects(&row.name));
        Ok(self)
    }

    /// Searches for names first, then for display names. See [`Wanted::find`].
    pub(crate) fn find(&self, wanted: &mut Wanted, all: bool) -> Result<(), Ambiguous> {
        let known: Vec<&str> = self.clusters.iter().map(|row| row.name.as_str()).collect();
        wanted.find(&known, all)?;
        let rows = self.clusters.iter();
        let shown: Vec<(&str, &str)> = rows
            .filter_map(|row| Some((row.display_name.as_deref()?, row.name.as_str())))
            .collect();
        wanted.find_shown(&shown, all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// The watches for which all requests of controllers wait.
    pub(crate) fn gating(&self) -> Vec<Gating<'_>> {
        details::gating(&self.rest)
    }

    /// Who leads, if the controller is a standby in a leader election.
    pub(crate) fn standby(&self) -> Option<String> {
        Some(match details::standby(&self.rest)? {
            Some(_) if details::begins_to_lead(&self.rest) => BEGINS_TO_LEAD.to_owned(),
            Some(holder) => {
                format!("this controller is a standby and reconciles nothing; the leader is {holder}")
            }
            None => "this controller is a standby and reconciles nothing; there is no leader now".to_owned(),
        })
    }

    /// Which process to ask instead, if the controller is a standby in a leader election.
    pub(crate) fn leader(&self) -> Option<String> {
        Some(match details::standby(&self.rest)? {
            Some(_) if details::begins_to_lead(&self.rest) => BEGINS_TO_LEAD.to_owned(),
            Some(holder) => format!("this process is a standby: ask the leader {holder}, with --server at its address"),
            None => "this process is a standby, and there is no leader now: repeat when one of the processes leads".to_owned(),
        })
    }

    /// Whether each provider is synced without an error, and each cluster is Ready, without failing objects and
    /// without blocked kinds that a controller needs.
    pub(crate) fn is_ready(&self) -> bool {
        self.providers
            .iter()
            .all(|provider| provider.synced && provider.last_error.is_none())
            && self.clusters.iter().all(Row::is_ready)
            && !self.gating().iter().any(|gating| gating.kind.blocked)
    }

    /// The errors of providers, the providers that are not synced, and the watches for which all clusters wait.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let of = |provider: &ProviderRow| {
            let name = printable(&provider.name);
            match (&provider.last_error, provider.synced) {
                (Some(error), false) => Some(format!("provider {name}: {}", printable(error))),
                (None, false) => Some(format!(
                    "provider {name} has not announced yet which clusters there are"
                )),
                _ => None,
            }
        };
        let gating = self.gating();
        let gated = gating
            .iter()
            .map(|gating| printable(&format!("controller {}: {}", gating.controller, gating.text())));
        let standby = self.standby().map(|text| printable(&text));
        let providers = self.providers.iter().filter_map(of);
        providers.chain(gated).chain(standby).collect()
    }

    pub(crate) fn table(&self, wide: bool, now: Timestamp, colours: Colours) -> String {
        let mut header = vec!["NAME", "STATE", "AGE", "PROVIDER", "VERSION"];
        let is_named = self.clusters.iter().any(|row| row.display_name.is_some());
        if is_named {
            header.insert(1, "DISPLAY NAME");
        }
        if wide {
            header.push("ADDRESS");
        }
        header.extend(["KINDS", "QUEUE", "FAILING", "REASON"]);
        let age = |row: &Row| row.age(now).filter(|_| !self.is_local);
        let rows: Vec<Vec<String>> = self
            .clusters
            .iter()
            .map(|row| {
                let mut cells = row.cells(wide, age(row));
                if is_named {
                    cells.insert(1, row.display_name.clone().unwrap_or_default());
                }
                cells
            })
            .collect();
        table(&header, &rows, colours, |title, cell| match title {
            "STATE" => Tone::of_state(cell),
            "KINDS" => Some(Tone::Warning).filter(|_| !is_complete(cell)),
            "FAILING" => Some(Tone::Bad).filter(|_| !matches!(cell, "-" | "0")),
            _ => None,
        })
    }
}

/// Whether a cell of the column KINDS has as many listed kinds as watched kinds.
fn is_complete(cell: &str) -> bool {
    cell.split_once('/').is_none_or(|(listed, all)| listed == all)
}

impl Row {
    fn cells(&self, wide: bool, age: Option<String>) -> Vec<String> {
        let mut cells = vec![
            self.name.clone(),
            self.state.clone(),
            age.unwrap_or_default(),
            self.provider.clone(),
            self.version.clone().unwrap_or_default(),
        ];
        if wide {
            cells.push(self.address.clone().unwrap_or_default());
        }
        let kinds = self.kinds();
        cells.push(match kinds.len() {
            0 => String::new(),
            all => format!("{}/{all}", kinds.iter().filter(|kind| kind.synced).count()),
        });
        let queue = self.rest.get("queueDepth").and_then(Value::as_u64);
        cells.push(queue.map(|depth| depth.to_string()).unwrap_or_default());
        cells.push(self.failing().map(|count| count.to_string()).unwrap_or_default());
        cells.push(self.why());
        cells
    }

    /// The time since the cluster entered its state.
    fn age(&self, now: Timestamp) -> Option<String> {
        let since: Timestamp = self.since.as_deref()?.parse().ok()?;
        Some(short(now.duration_since(since).unsigned_abs()))
    }

    /// The reason of the state, else a kind that can't be listed, else the worst failing object. The warnings
    /// follow.
    pub(crate) fn why(&self) -> String {
        let reason = self
            .reason
            .clone()
            .or_else(|| Some(self.blocked()?.text()))
            .or_else(|| {
                let (_, worst) = self.worst()?;
                Some(format!("{}: {}", worst.object, worst.error))
            });
        let text: Vec<&str> = reason.iter().chain(&self.warnings).map(String::as_str).collect();
        text.join("; ")
    }

    /// The watched kinds.
    pub(crate) fn kinds(&self) -> Vec<Kind<'_>> {
        details::kinds(&self.rest)
    }

    /// The watches, with their namespaces and selectors.
    pub(crate) fn watches(&self) -> Vec<&str> {
        details::watches(&self.rest)
    }

    /// The controllers that work on the cluster.
    pub(crate) fn controllers(&self) -> Vec<InController<'_>> {
        details::controllers(&self.rest)
    }

    /// The first kind that can't be listed before somebody corrects something: a kind of this cluster, or of another
    /// cluster for which a controller waits.
    fn blocked(&self) -> Option<Kind<'_>> {
        let of_gates = self
            .controllers()
            .into_iter()
            .flat_map(|controller| controller.waits_for);
        self.kinds().into_iter().chain(of_gates).find(|kind| kind.blocked)
    }

    /// The failing object with the most attempts, and its controller.
    fn worst(&self) -> Option<(&str, Failing<'_>)> {
        let controllers = self.controllers().into_iter().rev();
        let worst =
            controllers.filter_map(|controller| Some((controller.name, *controller.failing.first()?)));
        // The iterator is reversed, because `max_by_key` returns the last of equal elements.
        worst.max_by_key(|(_, failing)| failing.attempt)
    }

    /// The number of failing objects in all controllers. `None` if no controller reports it.
    fn failing(&self) -> Option<u64> {
        self.controllers()
            .iter()
            .filter_map(|controller| controller.failing_count)
            .reduce(|sum, count| sum + count)
    }

    fn is_ready(&self) -> bool {
        self.state == "Ready" && !self.lacks_a_kind() && self.failing().unwrap_or(0) == 0
    }

    /// Whether a blocked kind keeps a controller waiting, or was listed before it became blocked.
    ///
    /// Other blocked kinds are optional, and no controller waits for them. If no controller works on the cluster, the
    /// report does not show which kinds are optional. Then all blocked kinds count.
    fn lacks_a_kind(&self) -> bool {
        let controllers = self.controllers();
        let mut waited_for = controllers.iter().flat_map(|controller| &controller.waits_for);
        let counts = |kind: &Kind<'_>| kind.blocked && (kind.synced || controllers.is_empty());
        waited_for.any(|kind| kind.blocked) || self.kinds().iter().any(counts)
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
