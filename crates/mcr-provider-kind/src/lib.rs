#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod cli;
mod config;
mod containers;
mod detection;
mod discovery;
mod doctor;
mod engine;
mod error;
mod events;
mod inventory;
mod kubeconfig;
mod provider;

pub use builder::KindProviderBuilder;
pub use engine::Engine;
pub use error::{EngineError, KindError};
pub use provider::KindProvider;
