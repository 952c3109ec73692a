#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod affected;
mod api;
mod apply;
mod away;
mod builder;
mod claims;
mod copies;
mod departures;
mod desired;
mod error;
mod events;
mod functions;
mod kinds;
mod left;
mod link;
mod mirror;
mod name;
mod orphan;
mod owned;
mod plan;
mod reconcile;
mod record;
mod related;
mod relation;
mod report;
mod servers;
mod sight;
mod silent;
mod status;
mod told;
mod values;
mod waiting;
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
