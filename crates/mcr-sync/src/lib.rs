#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod api;
mod builder;
mod desired;
mod error;
mod link;
mod name;
mod owned;
mod plan;
mod reconcile;
mod record;
mod related;
mod relation;
mod report;
mod sight;
mod status;

pub use builder::Sync;
pub use error::{BuildError, SyncError};
pub use link::{Link, Ownership, PREFIX, is_copied};
pub use name::{MAX_NAME, NameError, NameTemplate, SourceName, hashed};
pub use owned::{Fields, MAX_FIELDS_BYTES, Record, TooManyFields, merge, without_nulls};
pub use plan::{Hold, HoldReason, Observed, SourceState, Step, TargetState, next_step};
pub use record::ABANDON;
pub use related::Related;
pub use relation::TargetNamespace;
pub use status::{Condition, status_difference};
