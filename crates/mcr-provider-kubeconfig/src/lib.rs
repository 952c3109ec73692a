#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod config;
mod decisions;
mod doctor;
mod error;
mod provider;
mod secret;

pub use builder::{KubeconfigProviderBuilder, SECRET_KEY, SECRET_LABEL};
pub use error::KubeconfigError;
pub use provider::KubeconfigProvider;
pub use secret::{CONTEXT_ANNOTATION, PROPERTY_ANNOTATION_PREFIX};
