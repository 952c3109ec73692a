//! Layers: a provider mapped to another provider.

mod filter;
mod merge;
mod prefix;

pub use filter::{Filter, filter};
pub use merge::{Merge, merge};
pub use prefix::{Prefix, prefix};
