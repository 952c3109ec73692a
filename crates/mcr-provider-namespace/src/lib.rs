#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod error;
mod host;
mod layout;
mod provider;
mod route;
mod shared;

pub use builder::NamespaceProviderBuilder;
pub use error::NamespaceError;
pub use provider::NamespaceProvider;
pub use shared::NamespaceMapping;
