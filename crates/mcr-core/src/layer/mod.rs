//! Layers: providers that change the announcements of other providers.
//!
//! - [`prefix`] puts a prefix in front of the names of all clusters.
//! - [`filter`] announces only some of the clusters.
//! - [`merge`] combines several providers into one.
//!
//! ```
//! use mcr_core::{Provider, layer};
//!
//! # fn example(files: impl Provider) {
//! let production = layer::filter(files, |spec| spec.labels.get("env").is_some_and(|env| env == "prod"));
//! let provider = layer::prefix("prod#", production);
//! # }
//! ```

mod filter;
mod merge;
mod prefix;

pub use filter::{Filter, filter};
pub use merge::{Merge, merge};
pub use prefix::{Prefix, prefix};
