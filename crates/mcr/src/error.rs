//! What can go wrong around controllers and managers.

use std::{sync::Arc, time::Duration};

use mcr_core::BoxError;

/// Why a controller can't be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The controller has no name.
    #[error("a controller needs a name: it shows in logs, metrics and its status")]
    EmptyName,
    /// Nothing would ever lead to a request.
    #[error(
        "controller {controller}: nothing is watched, so it would never be triggered. Give it a primary kind (Controller::new), or add watches, watches_fleet or a source"
    )]
    NoWatches {
        /// Its name.
        controller: Arc<str>,
    },
    /// A setting is zero that must not be.
    #[error(
        "controller {controller}: {setting} is zero, so nothing would ever run to its end. Set it to at least one, or leave it out"
    )]
    Zero {
        /// Its name.
        controller: Arc<str>,
        /// The setting.
        setting: &'static str,
    },
    /// A function that says which objects to watch names another kind.
    #[error(
        "controller {controller}: the request for {kind} was changed to {other}. Change its namespace and selectors only, and watch {other} with `watches`"
    )]
    OtherKind {
        /// Its name.
        controller: Arc<str>,
        /// The kind that was declared.
        kind: String,
        /// What the function made of it.
        other: String,
    },
}

/// Why a controller ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A part of the controller itself panicked.
    #[error(
        "controller {controller}: a part of it panicked: {panic}. This is a fault of mcr; please report it"
    )]
    Panicked {
        /// Its name.
        controller: Arc<str>,
        /// What the panic said.
        panic: String,
    },
}

/// Why a manager can't be built, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// A controller can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two controllers have the same name.
    #[error(
        "two controllers are named {name}: logs and metrics could not tell them apart. Rename one, or allow it with ManagerBuilder::allow_equal_names"
    )]
    EqualNames {
        /// The name.
        name: Arc<str>,
    },
    /// There is nothing that clusters could come from.
    #[error(
        "the manager has neither a provider nor a fleet, so it would never have a cluster. Add ManagerBuilder::provider, or use Manager::single"
    )]
    NoProvider,
    /// A ready fleet was given together with providers or settings, which it would ignore.
    #[error(
        "the manager was given a fleet of its own and providers or fleet settings besides: give those to the fleet's builder"
    )]
    TwoFleets,
    /// Metrics and health can't be served.
    #[cfg(feature = "server")]
    #[error(transparent)]
    Serve(#[from] crate::server::ServeError),
    /// Signals can't be listened to.
    #[error("can't listen to signals: {0}")]
    Signals(#[source] std::io::Error),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A task ended with an error.
    #[error("task {task} failed: {source}")]
    Task {
        /// Its name.
        task: Arc<str>,
        /// The error.
        source: BoxError,
    },
    /// A task panicked.
    #[error("task {task} panicked: {panic}")]
    TaskPanicked {
        /// Its name.
        task: Arc<str>,
        /// What the panic said.
        panic: String,
    },
    /// Something did not end in time after the manager was told to stop.
    #[error("{what} did not end within {} s after the manager was told to stop", grace.as_secs_f32())]
    Stuck {
        /// What it was.
        what: String,
        /// The grace period.
        grace: Duration,
    },
}
