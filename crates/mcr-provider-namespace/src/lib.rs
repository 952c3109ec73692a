#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![allow(dead_code)]

mod error;
mod kinds;
mod mapping;
mod read;
mod route;
mod send;
mod shared;

pub use error::NamespaceError;
pub use shared::NamespaceMapping;
