//! The objects of the fleet's clusters, held as compact JSON and read as owned values.

mod core;
mod object;
mod reader;

pub use self::core::ObjectChange;
pub(crate) use self::core::{Indexer, StoreCore};
pub use object::{DecodeError, Object, ObjectKey, ObjectMetadata};
pub(crate) use object::{Namespaces, NotAnObject, OpenObject, Text, TypePrefix, describe};
pub use reader::{Store, StoreError};
