//! Layers: providers that change the announcements of other providers.
//!
//! - [`prefix`] puts a prefix in front of the names of all clusters.
//! - [`filter`] announces only some of the clusters.
//! - [`change`] changes specs: labels, or how clusters are reached.
//! - [`merge`] combines several providers into one.

mod change;
mod filter;
mod merge;
mod prefix;

pub use change::{Changed, change};
pub use filter::{Filter, filter};
pub use merge::{Merge, merge};
pub use prefix::{Prefix, prefix};
