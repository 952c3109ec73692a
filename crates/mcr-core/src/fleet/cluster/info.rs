//! The properties of a cluster that change during one engagement.

use std::{sync::Arc, time::SystemTime};

use mcr_access::internal::namespace;

use crate::fleet::{description::Description, state::ClusterState};
use mcr_access::ClusterName;

/// The name of a check, and why the cluster does not pass it.
type CheckOutcome = (Arc<str>, Option<Arc<str>>);

/// The properties of a cluster that can change without replacing the cluster.
#[derive(Debug, Clone)]
pub(crate) struct ClusterInfo {
    /// The newest description. Its labels and properties are shown.
    pub(crate) spec: Arc<Description>,
    pub(crate) identity: Option<Arc<str>>,
    /// The cluster beside which this one waits, because it is another name of it.
    pub(crate) same_as: Option<ClusterName>,
    /// The default namespace of the description in use.
    pub(crate) default_namespace: Arc<str>,
    pub(crate) credential_expires: Option<SystemTime>,
    pub(crate) last_probe: Option<SystemTime>,
    /// A problem that does not interrupt the cluster, such as a new description that can't be used.
    pub(crate) warning: Option<Arc<str>>,
    /// The checks of the program. Empty without checks.
    pub(crate) checks: Arc<[CheckOutcome]>,
}

impl ClusterInfo {
    /// The properties of a cluster that has just been announced.
    pub(crate) fn announced(spec: &Arc<Description>) -> Self {
        Self {
            spec: spec.clone(),
            identity: spec.identity.clone(),
            same_as: None,
            default_namespace: spec
                .default_namespace
                .clone()
                .unwrap_or_else(namespace::default_name),
            credential_expires: None,
            last_probe: None,
            warning: None,
            checks: Arc::default(),
        }
    }
}

/// A state, and the time since when the cluster is in it.
#[derive(Debug, Clone)]
pub(crate) struct StateSince {
    pub(crate) state: ClusterState,
    pub(crate) since: SystemTime,
    /// Whether the transport is closed for good, also if it does not exist yet.
    pub(crate) closed: bool,
}
