use std::sync::Arc;

use mcr_core::hub::{Hub, Memory};

use crate::secret::Rules;

/// The options of a provider, checked.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) hub: Hub,
    pub(crate) rules: Rules,
    pub(crate) memory: Arc<Memory>,
}
