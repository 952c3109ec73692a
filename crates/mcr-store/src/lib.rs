#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod cache;
mod codec;
mod key;

pub use cache::{Indexer, ObjectChange, ObjectChanges, ObjectStore};
pub use codec::{
    DecodeError, Encoder, Encoding, EventError, EventObject, Incarnation, Item, LineDecoder, LineTooLong,
    ListDecoder, ListEnd, ListError, ListPage, MAX_LINE, NotAnObject, Object, ObjectMetadata, ParsedObject,
    RawObject, RawObjects, Status, StatusDetails, StatusMetadata, TemplateRegistry, WatchEvent, describe,
    parse_event, parse_list, parse_status,
};
pub use key::ObjectKey;

/// For the other crates and the fuzz targets of this workspace. Not part of the API: it may change at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::codec::{parse_event_by_part, parse_list_by_item};
}
