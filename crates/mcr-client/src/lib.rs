#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// A client for the whole life of a cluster.
mod current;
mod layer;
mod link;
mod refresh;
mod service;
mod settings;
mod state;
mod transport;

// Channels: requests to one API server with one credential.
mod agent;
mod channel;
mod dialer;
mod headers;
mod object_path;
mod path;
mod prefix;
mod request;

// Connecting a cluster.
mod connect_error;
mod endpoint_credentials;
mod kube_client;
mod probe;
mod proof;

// Connections.
mod connect;
mod lookups;
mod plugin_service;
mod pool;
mod proxies;
mod server_tls;
mod tls;

// Responses.
mod answer_body;
mod body;
mod frame;
mod guard;

// Errors.
mod error;
mod explain;
mod user_code;

// Tools.
mod backoff;
mod observable;
mod requests;

#[cfg(test)]
mod tests;

pub use agent::{InvalidUserAgent, UserAgent};
pub use answer_body::AnswerBody;
pub use body::ResponseBody;
pub use channel::{Channel, Route};
pub use dialer::Dialer;
pub use error::{TransportError, TransportErrorKind};
pub use explain::explain as explain_error;
pub use layer::{LimitedRequests, RequestLimit, RequestService, TransportLayer};
pub use link::{EndpointNumber, Link, LinkState};
pub use object_path::{ObjectPath, UnusableName};
pub use plugin_service::{PluginAddressError, plugin_at};
pub use proxies::ProxyEnvironment;
pub use settings::Settings;
pub use transport::Transport;

/// Items for the other crates of this workspace. Not part of the API: they may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        agent::Sender,
        backoff::{Backoff, jitter},
        connect_error::ConnectError,
        endpoint_credentials::{EndpointCredentials, IssuedCredential},
        kube_client::{inferred_kube_config, is_login_error, kube_client, kube_config},
        observable::Observable,
        prefix::{AbsolutePath, prefixed},
        proxies::{hint as proxy_hint, unused_variable as unused_proxy_variable},
        request::HeadTimeout,
        requests::{Request, Requests, Ticket},
        state::Doubts,
    };

    pub mod tls {
        pub use crate::{
            server_tls::{ServerTls, ServerTlsProblem},
            tls::{Verifier, system, verifier},
        };
    }

    pub mod probe {
        pub use crate::{
            probe::{ProbeConnection, alive, identify, try_credential},
            proof::{ANONYMOUS, describe_foreign, is_status, refused_user},
        };
    }

    pub mod user_code {
        pub use crate::user_code::{
            ANNOUNCED, CLIENT, CREDENTIAL_SOURCE, CatchPanic, DISCOVERY, LAYOUT, Panicked, READY_CHECK,
            SPEC_LAYER, TRANSPORT_LAYER, catch_panic,
        };
    }
}
