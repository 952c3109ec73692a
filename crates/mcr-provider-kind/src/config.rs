use std::{ffi::OsString, path::PathBuf, time::Duration};

use crate::engine::Engine;

/// The options of a provider, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) prefix: String,
    pub(crate) engine: Option<Engine>,
    pub(crate) program: Option<PathBuf>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) poll: Duration,
    pub(crate) poll_without_events: Duration,
    pub(crate) events: bool,
    pub(crate) deadline: Duration,
    pub(crate) refresh: Duration,
}
