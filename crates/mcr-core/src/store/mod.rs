//! The objects of the fleet's clusters, held as compact JSON without what they have in common, and read as owned values.

mod core;
mod form;
mod interner;
mod key;
mod moment;
mod numbers;
mod object;
mod open;
mod parse;
mod pattern;
mod quoted;
mod reader;
mod room;
mod scalar;
mod scan;
mod shape;
mod shapes;
mod table;
mod typed;
mod uid;

pub use self::core::ObjectChange;
pub(crate) use self::core::{Indexer, StoreCore};
pub(crate) use form::Form;
pub(crate) use interner::Interner;
pub use key::ObjectKey;
pub(crate) use object::describe;
pub use object::{DecodeError, Object};
pub(crate) use open::{OpenObjects, Opened, Text};
pub use parse::ObjectMetadata;
pub(crate) use parse::{Item, NotAnObject, OpenObject};
pub use reader::{Store, StoreError};
pub(crate) use scan::Scanner;
pub(crate) use shapes::Shapes;
