//! The objects of the fleet's clusters, held as compact JSON and read as owned values.

mod core;
mod form;
mod key;
mod object;
mod open;
#[cfg_attr(not(feature = "packed"), path = "unpacked.rs")]
mod packing;
mod parse;
mod quoted;
mod reader;
mod room;
mod scan;
mod table;
mod typed;
mod uid;

pub use self::core::ObjectChange;
pub(crate) use self::core::{Indexer, StoreCore};
pub(crate) use form::Form;
pub use key::ObjectKey;
pub(crate) use object::describe;
pub use object::{DecodeError, Object};
pub(crate) use open::{OpenObjects, Opened, Text};
pub(crate) use packing::{Packer, Packers};
#[cfg(feature = "packed")]
pub use packing::{Packing, PackingStatus};
pub use parse::ObjectMetadata;
pub(crate) use parse::{Item, Namespaces, NotAnObject, OpenObject};
pub use reader::{Store, StoreError};
pub(crate) use scan::Scanner;
