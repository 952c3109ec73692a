use std::{sync::Arc, time::Duration};

use kube::Client;
use mcr_core::{WatchRequest, WatchSettings, internal::Ledger};

use crate::secret::Rules;

/// The options of a provider, checked.
pub(crate) struct Config {
    pub(crate) client: Client,
    /// None: all.
    pub(crate) namespace: Option<String>,
    pub(crate) request: WatchRequest,
    pub(crate) rules: Arc<Rules>,
    pub(crate) events: bool,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) watch: Option<Arc<WatchSettings>>,
    pub(crate) blocked_for: Duration,
}
