#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The bytes of kubeconfigs: parsing them, finding entries by name, splitting files into contexts.
mod contexts;
mod document;
mod index;
mod labels;

// The text of a kubeconfig, and the endpoint with a source of credentials that it is parsed into.
mod endpoint;
mod endpoint_access;
mod kubeconfig;
mod kubeconfig_problem;
mod outline;
mod parse;

// What an untrusted kubeconfig may do.
mod admit;
mod policy;
mod trust;

// The cryptography of TLS.
pub mod crypto;

// Credentials: the trait for sources, static credentials, files, exec plugins, certificates, tokens.
mod claims;
mod credential;
mod exec;
mod file_source;
mod key_kind;
mod pem;

// Types and functions that the other modules share.
mod error;
mod fingerprint;
mod name;
mod namespace;
mod process;
mod schedule;
mod slug;
mod time;
mod unprintable;
mod weak_cache;

pub use contexts::{ContextAccess, KubeconfigFile, Kubeconfigs, contexts};
pub use credential::{
    Basic, ClientCertificate, Credential, CredentialError, CredentialSource, Impersonation, Refresh,
    StaticCredential,
};
pub use endpoint::Endpoint;
pub use endpoint_access::EndpointAccess;
pub use error::{AccessError, BoxError, Place};
pub use exec::{ApiVersion, ExecPlugin, PluginService};
pub use fingerprint::Fingerprint;
pub use kubeconfig::KubeconfigAccess;
pub use labels::LABELS_EXTENSION;
pub use name::{ClusterName, InvalidClusterName};
pub use policy::{
    AccessPolicy, AddressPolicy, AllowedPlugin, CredentialPluginPolicy, ForbiddenAddress, PluginRefusal,
};
pub use trust::Trust;
pub use unprintable::reason;

/// Items for the other crates of this workspace. They are not part of the API, and can change in any release.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        document::Document,
        endpoint::redacted_uri,
        error::list_names,
        exec::{MAX_ANSWER as MAX_PLUGIN_ANSWER, output as exec_output},
        kubeconfig::{literal_ip, split_zone},
        kubeconfig_problem::{KubeconfigProblem, parse_announced},
        outline::{Outline, outline, outline_parsed},
        parse::{InlineCertificate, InlineCredential, inline_credential},
        schedule::{Line, Schedule, Ticket},
        time::{parse_rfc3339, rfc3339, rfc3339_option},
        unprintable::is_format,
        weak_cache::WeakCache,
    };

    pub mod claims {
        pub use crate::claims::{Claims, of};
    }

    pub mod process {
        pub use crate::process::{Ended, Limits, RunError, Running, begin, run, start};
    }

    pub mod namespace {
        pub use crate::namespace::{default_name, interned, is_valid};
    }

    pub mod pem {
        pub use crate::{
            key_kind::{algorithm, unusable_rsa},
            pem::{IdentityPart, IdentityProblem, authorities, supported, verifies_p521},
        };
    }
}
