//! The states of a cluster, and what is published with each of them.

use std::{fmt, sync::Arc};

use mcr_client::{EndpointNumber, LinkState};

/// The state of a cluster.
///
/// Whether a kind is listed is not part of it: a `Ready` cluster answers, and each of its
/// [kinds](crate::Cluster::kinds) has a status of its own.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "state", rename_all = "camelCase")]
#[non_exhaustive]
pub enum ClusterState {
    /// A provider has announced it.
    Discovered,
    /// The fleet connects to it for the first time, or after a change of its address.
    Connecting,
    /// It answers.
    Ready,
    /// It does not answer, or it refuses the credentials. The fleet tries it again after growing pauses.
    Unreachable {
        /// The cause and what to do about it, as text for people.
        reason: Arc<str>,
    },
    /// Its provider does not expect it to answer, or it is another name of a cluster that is engaged already. The fleet does
    /// not use it.
    Suspended {
        /// The reason, as text for people.
        reason: Arc<str>,
    },
    /// It leaves the fleet. Running work for it is ending.
    Draining,
    /// It has left the fleet, and no task, socket or store of it is left.
    Gone,
}

impl ClusterState {
    /// The names of all states.
    pub const NAMES: &'static [&'static str] = &[
        "Discovered",
        "Connecting",
        "Ready",
        "Unreachable",
        "Suspended",
        "Draining",
        "Gone",
    ];

    /// Whether both are the same state. Reasons are not compared.
    pub fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether the cluster answers.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// Whether the cluster leaves or has left.
    pub(crate) fn has_left(&self) -> bool {
        matches!(self, Self::Draining | Self::Gone)
    }

    /// The reason, for states that have one.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Unreachable { reason } | Self::Suspended { reason } => Some(reason),
            _ => None,
        }
    }

    /// The name of the state, without a reason.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Discovered => "Discovered",
            Self::Connecting => "Connecting",
            Self::Ready => "Ready",
            Self::Unreachable { .. } => "Unreachable",
            Self::Suspended { .. } => "Suspended",
            Self::Draining => "Draining",
            Self::Gone => "Gone",
        }
    }
}

impl fmt::Display for ClusterState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason() {
            Some(reason) => write!(f, "{}: {reason}", self.as_str()),
            None => f.write_str(self.as_str()),
        }
    }
}

/// Whether a cluster can be used: what its requests and watches may do, and the state that shows why.
pub(crate) struct Published {
    pub(crate) state: ClusterState,
    /// None if the link stays as it is: running work of a cluster that leaves may send requests during its grace period.
    pub(crate) link: Option<LinkState>,
    /// Whether the transport closes for good.
    pub(crate) closes: bool,
}

impl Published {
    pub(crate) fn new(state: ClusterState, link: LinkState) -> Self {
        Self {
            state,
            link: Some(link),
            closes: false,
        }
    }

    /// The provider does not expect the cluster to answer.
    pub(crate) fn suspended(reason: Arc<str>) -> Self {
        let why = format!("the cluster is suspended: {reason}");
        Self::new(ClusterState::Suspended { reason }, LinkState::down(why))
    }

    /// A cluster in a scope: its requests go to its endpoint, whose link decides. This is the state of the endpoint.
    pub(crate) fn behind(endpoint: ClusterState) -> Self {
        Self::new(endpoint, LinkState::Up(EndpointNumber::default()))
    }

    /// The cluster leaves. If another cluster may answer at its address already, no further request may go there.
    pub(crate) fn draining(is_replaced: bool) -> Self {
        Self {
            state: ClusterState::Draining,
            link: None,
            closes: is_replaced,
        }
    }

    pub(crate) fn gone() -> Self {
        Self {
            state: ClusterState::Gone,
            link: None,
            closes: true,
        }
    }
}
