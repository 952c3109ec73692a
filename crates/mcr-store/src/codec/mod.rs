//! The codec: from the bytes of lists and watch events to encoded objects, and from those to Rust types.
//!
//! Reading goes through these layers:
//!
//! 1. [`scan`] finds fields and *scalars*, which are strings and numbers, in JSON.
//! 2. [`fields`] reads the fields of objects. [`list_template`] reads an object of a list by comparing it with earlier
//!    ones. [`fallback`] reads an object that the scanner declines.
//! 3. [`response`], [`list`] and [`parsed`] provide them as raw objects.
//! 4. [`raw_object`] encodes a raw object: the [`splitter`] splits it into a [`template`], which objects of the same
//!    layout share, and [`values`] for the template's placeholders. A [`template_registry`] has the templates of a
//!    kind, and an [`encoder`] uses it for one watch.
//! 5. [`object`] holds the values and decodes them with [`deserialize`].

mod deserialize;
mod encoder;
mod encoding;
mod error;
mod escape;
mod facts;
mod fallback;
mod field;
mod fields;
mod line_decoder;
mod list;
mod list_template;
mod metadata;
mod object;
mod parsed;
mod placeholder;
mod raw_object;
mod response;
mod scalar;
mod scan;
mod scratch;
mod splitter;
mod template;
mod template_registry;
mod text;
mod timestamp;
mod uid;
mod values;
mod varint;

pub use encoder::Encoder;
pub use encoding::Encoding;
pub use error::{DecodeError, NotAnObject, describe};
pub use line_decoder::{LineDecoder, LineTooLong, MAX_LINE};
pub use list::RawObjects;
pub use metadata::ObjectMetadata;
pub use object::{Incarnation, Object};
pub use parsed::ParsedObject;
pub use raw_object::{Item, RawObject};
pub use response::{
    EventError, EventObject, ListDecoder, ListEnd, ListError, ListPage, Status, StatusDetails,
    StatusMetadata, WatchEvent, parse_event, parse_event_by_part, parse_list, parse_list_by_item,
    parse_status,
};
pub use template_registry::TemplateRegistry;
