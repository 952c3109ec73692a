//! Layers: providers that change the announcements of other providers.
//!
//! - [`prefix`] puts a prefix in front of the names of all clusters.
//! - [`filter`] announces only some of the clusters.
//! - [`merge`] combines several providers into one.

mod filter;
mod merge;
mod prefix;

pub use filter::{Filter, filter};
pub use merge::{Merge, merge};
pub use prefix::{Prefix, prefix};
