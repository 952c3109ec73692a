#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod config;
mod diff;
mod doctor;
mod entry;
mod error;
mod label;
mod names;
mod provider;
mod read;
mod resolve;
mod scan;
mod search;
mod watch;

pub use builder::FileProviderBuilder;
pub use error::FileError;
pub use label::FileContext;
pub use mcr_core::LABELS_EXTENSION;
pub use provider::FileProvider;
pub use search::Environment;
