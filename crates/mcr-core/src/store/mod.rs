//! The objects of the fleet's clusters, held as compact JSON and read as owned values.

mod core;
mod form;
mod key;
mod object;
mod parse;
mod quoted;
mod reader;
mod table;
mod uid;

pub use self::core::ObjectChange;
pub(crate) use self::core::{Indexer, StoreCore};
pub(crate) use form::Form;
pub use key::ObjectKey;
pub(crate) use object::describe;
pub use object::{DecodeError, Object};
pub use parse::ObjectMetadata;
pub(crate) use parse::{Namespaces, NotAnObject, OpenObject, Text};
pub use reader::{Store, StoreError};
