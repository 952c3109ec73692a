//! Lists and watches, on bytes.
//!
//! Written for fleets, where kube's `watcher` would log whole response bodies that don't parse, dial a dead
//! server every second, loop on 410 and 422, wait minutes for a silent server, and never tell of objects that
//! were deleted while it was not connected.

mod contents;
mod decode;
mod driver;
mod error;
mod hub;
mod lines;
mod mirror;
mod request;
mod scoped;
mod shared;

#[cfg(feature = "fuzzing")]
pub(crate) use self::{
    decode::{
        BadLine, BadList, ListPage, WatchLine, list_page, list_page_by_item, status, watch_line,
        watch_line_by_part,
    },
    lines::Lines,
};
pub use driver::WatchSettings;
pub(crate) use driver::{DriverEnv, Line, Phase, Seen, drive};
pub use error::WatchError;
pub use hub::{HubEvent, HubWatch};
pub(crate) use mirror::Mirror;
pub use request::WatchRequest;
pub(crate) use scoped::ScopeWatch;
pub(crate) use shared::SharedWatch;
pub use shared::{ChangeSink, WatchProblem, WatchStatus};
