#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod book;
mod builder;
mod cli;
mod containers;
mod discovery;
mod engine;
mod error;
mod events;
mod kubeconfig;
mod provider;

pub use builder::KindProviderBuilder;
pub use engine::Engine;
pub use error::{EngineError, KindError};
pub use provider::KindProvider;
