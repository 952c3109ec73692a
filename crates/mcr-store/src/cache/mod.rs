//! The objects of one watch, with indexes.

mod change;
mod index;
mod store;
mod table;

pub use change::{ObjectChange, ObjectChanges};
pub use index::Indexer;
pub use store::ObjectStore;
