//! The two stages in the life of a workspace that controllers wait for. No I/O.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use sha2::{Digest, Sha224};

use crate::labels::Labels;

/// Why kcp holds a workspace: initializers or terminators have not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Initializing,
    Terminating,
}

/// The fields that are read of a LogicalCluster. Not the whole type: a field that a later kcp changes must not matter.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawLogicalCluster {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    deletion_timestamp: Option<Time>,
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
    pub(crate) labels: Labels,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    initializers: Vec<String>,
    terminators: Vec<String>,
}

impl Stage {
    /// `initializer` or `terminator`: the field in the spec of a WorkspaceType, and the beginning of the label.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Initializing => "initializer",
            Self::Terminating => "terminator",
        }
    }

    /// The verb on WorkspaceTypes that gives the right.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Initializing => "initialize",
            Self::Terminating => "terminate",
        }
    }

    /// As a WorkspaceType names the stage of an endpoint.
    pub(crate) fn of_endpoint(self) -> &'static str {
        match self {
            Self::Initializing => "initializing",
            Self::Terminating => "terminating",
        }
    }

    /// The field in the status of a LogicalCluster.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Initializing => "initializers",
            Self::Terminating => "terminators",
        }
    }

    /// The service in the URL of an endpoint.
    pub(crate) fn service(self) -> &'static str {
        match self {
            Self::Initializing => "initializingworkspaces",
            Self::Terminating => "terminatingworkspaces",
        }
    }

    /// The label with which kcp marks the LogicalClusters that wait for an initializer or terminator of this name.
    pub(crate) fn label(self, name: &str) -> (String, String) {
        // The name of a label has at most 63 characters, and kcp counts its prefix among them.
        const LONGEST: usize = 63;
        let hash = Sha224::digest(name);
        let value: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let prefix = format!("{}.internal.kcp.io/", self.word());
        let kept = LONGEST.saturating_sub(prefix.len()).min(value.len());
        (format!("{prefix}{}", &value[..kept]), value)
    }

    /// Whether a workspace waits for the initializer or terminator of this name.
    ///
    /// Nobody initializes a workspace that is being deleted, and nobody terminates one that is not.
    pub(crate) fn waits(self, cluster: &RawLogicalCluster, name: &str) -> bool {
        let is_deleting = cluster.metadata.deletion_timestamp.is_some();
        let (names, is_now) = match self {
            Self::Initializing => (&cluster.status.initializers, !is_deleting),
            Self::Terminating => (&cluster.status.terminators, is_deleting),
        };
        is_now && names.iter().any(|known| known == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values are of `sha224sum`.
    #[test]
    fn the_label_has_the_hash_of_the_name() {
        let (key, value) = Stage::Initializing.label("root:example");
        assert_eq!(
            (&*key, &*value),
            (
                "initializer.internal.kcp.io/38e7732cde2d692db77aa02ff9191566864",
                "38e7732cde2d692db77aa02ff9191566864333f33580d861066abb16"
            )
        );
        let (key, _) = Stage::Terminating.label("1rlzadlzb44i0g5n:managed");
        assert_eq!(
            (&*key, key.len()),
            (
                "terminator.internal.kcp.io/4d683f2fd4befe45ac4c4a417eea25291a27",
                63
            )
        );
    }

    #[test]
    fn a_workspace_waits_for_the_names_in_its_status() {
        let cluster = |deleting: bool, initializers: &[&str], terminators: &[&str]| -> RawLogicalCluster {
            let mut value = json!({
                "metadata": {}, "status": {"initializers": initializers, "terminators": terminators},
            });
            if deleting {
                value["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
            }
            serde_json::from_value(value).unwrap()
        };
        let waits = |stage: Stage, cluster: &RawLogicalCluster| stage.waits(cluster, "root:a");
        let both = |deleting| cluster(deleting, &["root:b", "root:a"], &["root:a"]);
        assert!(waits(Stage::Initializing, &both(false)) && !waits(Stage::Initializing, &both(true)));
        assert!(waits(Stage::Terminating, &both(true)) && !waits(Stage::Terminating, &both(false)));
        for deleting in [true, false] {
            for stage in [Stage::Initializing, Stage::Terminating] {
                assert!(
                    !waits(stage, &cluster(deleting, &["root:b"], &["root:b"])),
                    "{stage:?}"
                );
            }
        }
        let new: RawLogicalCluster = serde_json::from_value(json!({})).unwrap();
        assert!(!waits(Stage::Initializing, &new));
    }
}
