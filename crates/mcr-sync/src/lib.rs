#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod act;
mod affected;
mod api;
mod builder;
mod copies;
mod departures;
mod desired;
mod error;
mod events;
mod fields;
mod functions;
mod kinds;
mod link;
mod memory;
#[cfg(feature = "metrics")]
mod metrics;
mod mirror;
mod name;
mod objects;
mod pass;
mod placement;
mod plan;
mod reconcile;
mod record;
mod related;
mod relation;
mod report;
mod silent;
mod status;
mod unowned;
mod values;
mod watches;
mod writes;

pub use builder::ObjectSync;
pub use desired::{Conflicts, MAX_FIELDS_BYTES, TooManyFields};
pub use error::{BuildError, SyncError};
#[cfg(feature = "metrics")]
pub use metrics::SyncMetrics;
pub use name::{MAX_NAME, NameError, NameTemplate, SourceName, hashed};
pub use record::{ABANDON, PAUSED};
pub use related::Related;
pub use relation::TargetNamespace;
