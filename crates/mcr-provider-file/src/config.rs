use std::{path::PathBuf, time::Duration};

use glob::Pattern;
use mcr_core::Trust;

use crate::{label::LabelFn, search::Environment};

/// The options of a provider, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) dirs: Vec<PathBuf>,
    pub(crate) globs: Vec<Pattern>,
    pub(crate) separator: String,
    /// Whether the names of clusters contain the path of the file.
    pub(crate) qualified: bool,
    pub(crate) labels: Option<LabelFn>,
    pub(crate) trust: Trust,
    pub(crate) poll: Duration,
    pub(crate) debounce: Duration,
    pub(crate) notifications: bool,
    pub(crate) environment: Option<Environment>,
}
