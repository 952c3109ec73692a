#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod backoff;
mod body;
mod channel;
mod connect;
mod core;
mod error;
mod explain;
mod foreign;
mod guard;
mod headers;
mod latest;
mod lease;
mod path;
mod pool;
mod refresh;
mod request;
mod service;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use body::{AnswerBody, ResponseBody};
pub use channel::{Channel, Dialer, Route};
pub use error::{TransportError, TransportErrorKind};
pub use explain::explain as explain_error;
pub use settings::Settings;
pub use transport::Transport;

/// For the crates of this workspace. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        backoff::Backoff,
        channel::{Complete, LastRequest, prefixed},
        latest::Latest,
    };

    pub mod foreign {
        pub use crate::foreign::{CLIENT, DISCOVERED, DISCOVERY, Foreign, LAYOUT, Panicked, SOURCE, call};
    }
}
