#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod buffer;
mod connection;
mod content;
mod error;
mod framing;
mod head;
mod send;

pub use connection::Connection;
pub use content::Content;
pub use error::{Error, Malformed, RequestFailed};
pub use framing::Framing;
pub use head::{Head, MAX_HEAD};
pub use send::serialize;

/// For tests of the crates of this workspace. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::connection::HEAD_READ;
}
