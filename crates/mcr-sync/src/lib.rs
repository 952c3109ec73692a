#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod act;
mod affected;
mod api;
mod apply;
mod builder;
mod departures;
mod desired;
mod error;
mod events;
mod functions;
mod kinds;
mod link;
mod memory;
mod mirror;
mod name;
mod owned;
mod pass;
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

pub use apply::Conflicts;
pub use builder::ObjectSync;
pub use error::{BuildError, SyncError};
pub use name::{MAX_NAME, NameError, NameTemplate, SourceName, hashed};
pub use owned::{MAX_FIELDS_BYTES, TooManyFields};
pub use record::ABANDON;
pub use related::Related;
pub use relation::TargetNamespace;
