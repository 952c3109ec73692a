//! The options of a provider.

use std::sync::{Arc, atomic::AtomicBool};

use mcr_core::{Access, Scope};
use parking_lot::Mutex;

use crate::{labels::LabelKeys, paths::Paths, readiness::Readiness, slice::Api};

/// The name of an export, or of an initializer or terminator, that a discovery finds out.
pub(crate) type ExportName = Arc<Mutex<Option<Arc<str>>>>;

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) name: Arc<str>,
    pub(crate) access: Access,
    pub(crate) api: Api,
    pub(crate) readiness: Readiness,
    pub(crate) label_keys: LabelKeys,
    pub(crate) name_prefix: String,
    pub(crate) paths: Paths,
    pub(crate) scope: Scope,
    /// The name, once the slice or the WorkspaceType has been read. The layout of the scope has it, too.
    pub(crate) export: ExportName,
    /// Whether a discovery has announced all clusters.
    pub(crate) discovered: AtomicBool,
}
