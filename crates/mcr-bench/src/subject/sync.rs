//! What the subjects of suite `sync` have in common, and the one with mcr-sync.
//!
//! Each ConfigMap with a counter in a source cluster becomes a ConfigMap in the first cluster of the kubeconfig.

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{ClusterName, ClusterSelector};
use mcr_sync::{NameTemplate, ObjectSync};

use super::{SubjectArgs, Tally};

/// The name of the context of the target cluster.
pub const TARGET: &str = "cluster-00000";
/// The field of a source that is copied last, and by which sources are selected.
pub const COUNTER: &str = "counter";
/// How many reconciles each subject runs at once.
pub const CONCURRENCY: usize = 64;

/// The name of the target of a source.
pub fn target_name(cluster: &str, source: &str) -> String {
    format!("{cluster}-{source}")
}

/// Whether a ConfigMap is a source.
pub fn is_source(map: &ConfigMap) -> bool {
    map.data.as_ref().is_some_and(|data| data.contains_key(COUNTER))
}

/// The sync with mcr-sync.
///
/// # Errors
///
/// When the manager can't start, or fails.
pub async fn run(args: SubjectArgs, _: Tally) -> Result<()> {
    let controller = ObjectSync::<ConfigMap, ConfigMap>::new("bench")
        .from(!ClusterSelector::name(TARGET))
        .to(ClusterName::new(TARGET)?)
        .name_by(NameTemplate::parse("{cluster}-{name}")?)
        .filter(is_source)
        .mirror()
        .build_with(|controller| controller.concurrency(CONCURRENCY))?;
    super::mcr::manage(args.kubeconfig, vec![controller], args.gzip).await
}
