//! The report of `mcr clusters`: the data of `/clusters` of a controller, with versions and addresses added.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    names::{Ambiguous, Wanted},
    output::{printable, table},
    values::short,
};

/// The state of a fleet, as data.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) clusters: Vec<Row>,
    #[serde(default)]
    pub(super) providers: Vec<ProviderRow>,
    /// Fields that this version does not know, which the JSON output keeps.
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
    /// Whether each provider has said which clusters there are, or has failed.
    #[serde(skip)]
    pub(super) all_known: bool,
}

/// The state of a cluster.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) state: String,
    #[serde(default)]
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) provider: String,
    #[serde(default)]
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) warnings: Vec<String>,
    /// The version of its API server. Only if this program has requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// The address of its API server. Only if this program connects to the cluster itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

/// The state of a provider.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProviderRow {
    pub(super) name: String,
    #[serde(default)]
    pub(super) synced: bool,
    #[serde(default)]
    pub(super) last_error: Option<String>,
    #[serde(flatten)]
    pub(super) rest: Map<String, Value>,
}

impl Report {
    /// The report in a JSON document. `None` if the document is something else.
    pub(super) fn of(document: Value) -> Option<Self> {
        let mut report: Self = serde_json::from_value(document).ok()?;
        let has_spoken = |provider: &ProviderRow| provider.synced || provider.last_error.is_some();
        report.all_known = report.providers.iter().all(has_spoken);
        Some(report)
    }

    /// Keeps only the clusters that are meant.
    pub(super) fn only(mut self, wanted: &mut Wanted) -> Result<Self, Ambiguous> {
        let known: Vec<&str> = self.clusters.iter().map(|row| row.name.as_str()).collect();
        wanted.find(&known, self.all_known)?;
        self.clusters.retain(|row| wanted.means(&row.name));
        Ok(self)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// Whether every provider is synced without an error, and every cluster is Ready.
    pub(super) fn is_ready(&self) -> bool {
        self.providers
            .iter()
            .all(|provider| provider.synced && provider.last_error.is_none())
            && self.clusters.iter().all(|row| row.state == "Ready")
    }

    /// The errors of providers, and the providers that are not synced.
    pub(super) fn troubles(&self) -> Vec<String> {
        let of = |provider: &ProviderRow| {
            let name = printable(&provider.name);
            match (&provider.last_error, provider.synced) {
                (Some(error), false) => Some(format!("provider {name}: {}", printable(error))),
                (None, false) => Some(format!(
                    "provider {name} has not said yet which clusters there are"
                )),
                _ => None,
            }
        };
        self.providers.iter().filter_map(of).collect()
    }

    pub(super) fn table(&self, wide: bool, now: Timestamp) -> String {
        let mut header = vec!["NAME", "STATE", "AGE", "PROVIDER", "VERSION"];
        if wide {
            header.push("ADDRESS");
        }
        header.push("REASON");
        let rows: Vec<Vec<String>> = self.clusters.iter().map(|row| row.cells(wide, now)).collect();
        table(&header, &rows)
    }
}

impl Row {
    fn cells(&self, wide: bool, now: Timestamp) -> Vec<String> {
        let mut cells = vec![
            self.name.clone(),
            self.state.clone(),
            self.age(now).unwrap_or_default(),
            self.provider.clone(),
            self.version.clone().unwrap_or_default(),
        ];
        if wide {
            cells.push(self.address.clone().unwrap_or_default());
        }
        cells.push(self.why());
        cells
    }

    /// The time since the cluster entered its state.
    fn age(&self, now: Timestamp) -> Option<String> {
        let since: Timestamp = self.since.as_deref()?.parse().ok()?;
        Some(short(now.duration_since(since).unsigned_abs()))
    }

    /// The reason of the state, and the warnings.
    pub(super) fn why(&self) -> String {
        let said: Vec<&str> = self
            .reason
            .iter()
            .chain(&self.warnings)
            .map(String::as_str)
            .collect();
        said.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Report {
        Report::of(json!({
            "clusters": [
                {"name": "eu", "state": "Ready", "since": "2026-01-01T00:00:00.000Z", "provider": "file", "objects": 3,
                 "reason": null, "warnings": [], "version": "v1.36.1"},
                {"name": "us\u{1b}[2J", "state": "Unreachable", "since": "2026-01-01T00:09:00.000Z", "provider": "file",
                 "reason": "connection refused", "warnings": ["old\ntoken"], "address": "https://us:6443"},
            ],
            "providers": [{"name": "file", "synced": false, "restarts": 1, "lastError": "gone"}],
            "controllers": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_table_for_people() {
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        assert_eq!(
            report().table(false, now),
            "NAME           STATE        AGE  PROVIDER  VERSION  REASON\n\
             eu             Ready        10m  file      v1.36.1  -\n\
             \"us\\u{1b}[2J\"  Unreachable  60s  file      -        connection refused; old token\n"
        );
        assert!(report().table(true, now).contains("https://us:6443"));
    }

    #[test]
    fn what_is_not_known_is_passed_on_as_it_is() {
        let value = serde_json::to_value(report()).unwrap();
        assert_eq!(value["clusters"][0]["objects"], 3);
        assert_eq!(value["controllers"], json!([]));
        assert_eq!(value["providers"][0]["restarts"], 1);
    }

    #[test]
    fn ready_means_all_of_it() {
        assert!(!report().is_ready());
        assert_eq!(report().troubles(), ["provider file: gone"]);
        let mut wanted = Wanted::new(&["eu".into(), "us".into()]);
        let mut well = report().only(&mut wanted).unwrap();
        assert_eq!((well.clusters.len(), wanted.missing()), (1, vec!["us"]));
        assert!(!well.is_ready());
        well.providers[0] = ProviderRow {
            synced: true,
            ..ProviderRow::default()
        };
        assert!(well.is_ready() && well.troubles().is_empty());
    }

    #[test]
    fn all_is_known_once_each_provider_has_spoken() {
        let known = |providers: Value| {
            let document = json!({"clusters": [{"name": "a/eu", "state": "Ready"}], "providers": providers});
            let report = Report::of(document).unwrap();
            report
                .only(&mut Wanted::new(&["eu".into()]))
                .unwrap()
                .clusters
                .len()
        };
        let (synced, failed) = (
            json!({"name": "a", "synced": true}),
            json!({"name": "b", "lastError": "gone"}),
        );
        assert_eq!(known(json!([synced, failed])), 1);
        assert_eq!(known(json!([synced, {"name": "b"}])), 0);
        assert!(Report::of(json!("<html>")).is_none());
    }
}
