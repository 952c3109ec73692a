//! What is wrong with the options of a provider.

use std::io;

use mcr_core::{PluginAddressError, hub::OptionError};

/// The error of building a [`ClusterInventoryProvider`](crate::ClusterInventoryProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterInventoryError {
    /// An option that all providers of a hub have.
    #[error(transparent)]
    Hub(#[from] OptionError),
    /// There is no strategy to reach clusters.
    #[error(
        "there is no way to reach the clusters; give `access_providers`, or one of `consumer_secrets`, `kubeconfig_secret` and `kubeconfig_of`"
    )]
    NoAccess,
    /// There are two strategies to reach clusters.
    #[error(
        "`access_providers`, `consumer_secrets`, `kubeconfig_secret` and `kubeconfig_of` exclude each other; leave all but one out"
    )]
    TwoAccesses,
    /// A key of PlacementDecisions that can't be the value of a label.
    #[error(
        "{0:?} can't be the key of PlacementDecisions, which has 1 to 63 letters, digits, hyphens, underscores and dots; \
         correct `placement`"
    )]
    Placement(String),
    /// A name of a consumer that can't be the value of a label.
    #[error(
        "{0:?} can't be the name of a consumer, which has 1 to 63 letters, digits, hyphens, underscores and dots; correct \
         `consumer_secrets`"
    )]
    Consumer(String),
}

/// The error of reading [`AccessProviders`](crate::AccessProviders).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AccessProvidersError {
    /// The file can't be read.
    #[error("the provider file {0:?} can't be read: {1}; check the path and the rights of this process")]
    Read(String, io::ErrorKind),
    /// Not the JSON of a provider file. With line and column.
    #[error(
        "the provider file is no JSON of the form {{\"providers\": [...]}} (line {0}, column {1}); correct it there"
    )]
    Json(usize, usize),
    /// An access provider without a name. With its number, from 0.
    #[error(
        "providers[{0}] has no name; give it the name that ClusterProfiles have in status.accessProviders"
    )]
    NoName(usize),
    /// An access provider without a command.
    #[error("the access provider {0:?} has no command; give its execConfig one, the path of the plugin")]
    NoCommand(String),
    /// The command of an access provider is no address of a service.
    #[error("the command of the access provider {0:?} is an address, and {1}")]
    Service(String, PluginAddressError),
    /// The certificate authority of a service is not base64.
    #[error(
        "mcr.dev/certificateAuthorityData of the access provider {0:?} is not base64; write the PEM of the authority as in a kubeconfig"
    )]
    Authority(String),
    /// An access provider with an unknown version of the protocol.
    #[error(
        "the execConfig of the access provider {0:?} has an apiVersion that is none of client.authentication.k8s.io/v1 and \
         v1beta1; write the one that the plugin speaks"
    )]
    ApiVersion(String),
    /// Two access providers of one name.
    #[error("there are two access providers {0:?}; remove one")]
    Twice(String),
    /// An unknown policy for arguments.
    #[error(
        "the profileSourcedCLIArgsPolicy of the access provider {0:?} is none of Ignore and Append; correct it"
    )]
    ArgsPolicy(String),
    /// An unknown policy for environment variables.
    #[error(
        "the profileSourcedEnvVarsPolicy of the access provider {0:?} is none of Ignore, AppendIfNotExists and Replace; \
         correct it"
    )]
    EnvPolicy(String),
}
