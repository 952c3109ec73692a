//! The options of a provider, and the children that its discoveries should run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use mcr_core::{Provider, ProviderId};

/// The options of a provider.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) separator: Arc<str>,
    pub(crate) removal_grace: Duration,
    pub(crate) sync_timeout: Duration,
}

pub(crate) type Children = BTreeMap<Arc<str>, Child>;

/// A child that every discovery should run.
#[derive(Clone)]
pub(crate) struct Child {
    /// A number that no other child has, not even a later one with the same name.
    pub(crate) id: ProviderId,
    pub(crate) provider: Arc<dyn Provider>,
}
