#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
mod cli;
mod clusters;
mod colour;
mod contexts;
mod doctor;
mod level;
mod log;
mod man;
mod names;
mod output;
mod providers;
mod secret;
mod session;
mod stop;
mod values;
mod why;

pub use app::Mcr;
pub use providers::ProviderOptions;
