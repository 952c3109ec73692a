//! The answers of an API server to lists and watches.

mod event;
mod list_decoder;
mod list_page;
mod status;

pub use event::{EventError, EventObject, WatchEvent, parse_event, parse_event_by_part};
pub use list_decoder::{ListDecoder, parse_list};
pub use list_page::{ListEnd, ListError, ListPage, parse_list_by_item};
pub use status::{Status, StatusDetails, StatusMetadata, parse_status};

#[cfg(test)]
mod tests;
