//! The format of scenarios. Its description for people is `consumers/README.md`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Feature, Reason, State};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) about: String,
    pub(super) source: String,
    #[serde(default)]
    pub(super) requires: Vec<Feature>,
    #[serde(default = "both_versions")]
    pub(super) served: Vec<String>,
    #[serde(default)]
    pub(super) consumer: Options,
    #[serde(default = "one_provider")]
    pub(super) providers: Value,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Options {
    #[serde(default)]
    pub(super) all_namespaces: bool,
    #[serde(default)]
    pub(super) labels: Option<String>,
    #[serde(default)]
    pub(super) managers: Vec<String>,
    #[serde(default)]
    pub(super) ready: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Step {
    pub(super) about: String,
    #[serde(default)]
    pub(super) restart: bool,
    #[serde(default)]
    pub(super) delete: Vec<String>,
    #[serde(default)]
    pub(super) create: Vec<Value>,
    #[serde(default)]
    pub(super) merge: BTreeMap<String, Value>,
    #[serde(default = "once")]
    pub(super) repeat: usize,
    pub(super) fleet: BTreeMap<String, Expected>,
    #[serde(default)]
    pub(super) unchanged: Vec<String>,
    #[serde(default)]
    pub(super) replaced: Vec<String>,
    #[serde(default)]
    pub(super) runs: Option<Vec<Run>>,
    #[serde(default)]
    pub(super) lists: Option<usize>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expected {
    pub(super) state: State,
    #[serde(default)]
    pub(super) reason: Option<Reason>,
    /// The cluster that is reached. None: the one with the name of the ClusterProfile.
    #[serde(default)]
    pub(super) member: Option<String>,
    /// The access provider whose credentials are used.
    #[serde(default = "preferred")]
    pub(super) by: String,
    #[serde(default)]
    pub(super) properties: BTreeMap<String, String>,
}

/// A run of a plugin.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Run {
    pub(super) by: String,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// The cluster that `KUBERNETES_EXEC_INFO` names. None: it names none.
    #[serde(default)]
    pub(super) member: Option<String>,
    #[serde(default)]
    pub(super) config: Option<Value>,
}

impl Scenario {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// The version that a consumer reads.
    pub(super) fn best_version(&self) -> &'static str {
        if self.served.iter().any(|version| version == "v1alpha2") {
            "v1alpha2"
        } else {
            "v1alpha1"
        }
    }
}

fn both_versions() -> Vec<String> {
    vec!["v1alpha1".into(), "v1alpha2".into()]
}

fn one_provider() -> Value {
    json!([{
        "name": preferred(),
        "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "$(plugin)"},
    }])
}

fn once() -> usize {
    1
}

fn preferred() -> String {
    "p".into()
}
