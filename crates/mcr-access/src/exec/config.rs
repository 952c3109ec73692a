//! The configuration of a plugin.

use std::{path::PathBuf, time::Duration};

use super::service::PluginService;
use crate::endpoint::Endpoint;

/// The deadline of plugins without one of their own.
pub(crate) const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);

/// The version of the exec credential protocol that a plugin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ApiVersion {
    /// `client.authentication.k8s.io/v1`.
    V1,
    /// `client.authentication.k8s.io/v1beta1`.
    V1Beta1,
}

impl ApiVersion {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

/// The configuration of a plugin. Plugins with equal configurations share their runs.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PluginConfig {
    pub(crate) command: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(super) version: ApiVersion,
    /// The cluster in the plugin's input.
    pub(crate) cluster: Option<ClusterInfo>,
    pub(crate) deadline: Duration,
    pub(super) install_hint: Option<String>,
    /// What answers in the place of a program.
    pub(crate) service: Option<PluginService>,
}

/// The cluster that a plugin is to log in to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClusterInfo {
    pub(crate) endpoint: Endpoint,
    /// The JSON of the plugin's configuration.
    pub(super) config: String,
    pub(super) disable_compression: bool,
}
