#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod book;
mod builder;
mod error;
mod notice;
mod provider;
mod public;
mod secret;
mod teller;

pub use builder::{
    CONTEXT_ANNOTATION, KubeconfigProviderBuilder, PROPERTY_ANNOTATION_PREFIX, SECRET_KEY, SECRET_LABEL,
};
pub use error::KubeconfigError;
pub use provider::KubeconfigProvider;
