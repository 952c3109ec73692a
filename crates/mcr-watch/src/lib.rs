#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod budget;
mod cache;
mod counters;
mod driver;
mod error;
mod event_publisher;
mod health;
mod hub;
mod kinds;
mod logged_watch;
mod notice;
mod permit;
mod places;
mod request;
mod scope;
mod settings;
mod shared;
mod sink;
mod status;
mod store;
mod target;
mod watches;

pub use counters::KindCounts;
pub use error::WatchError;
pub use hub::{HubEvent, HubWatch};
pub use places::Placement;
pub use request::WatchRequest;
pub use settings::WatchSettings;
pub use sink::ChangeSink;
pub use status::{KindStatus, WatchProblem, WatchStatus};
pub use store::{Store, StoreError};
pub use watches::WatchHandle;

/// For the crates of this workspace. Not part of the API: it may change or go at any time.
#[doc(hidden)]
pub mod internal {
    pub use crate::{
        budget::ListBudget,
        cache::Cache,
        counters::{CountersByKind, KindCounters, count},
        driver::{DriverEnv, confirm_grant, drive},
        event_publisher::EventPublisher,
        health::Health,
        kinds::KindTables,
        logged_watch::LoggedWatch,
        notice::{Ledger, Notice, NoticeKind},
        permit::Permit,
        places::Places,
        scope::ScopeWatch,
        shared::{Feed, Grant, SharedWatch},
        watches::Watches,
    };
}
