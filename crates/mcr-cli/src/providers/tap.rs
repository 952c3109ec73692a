//! Records the announcements of a provider, and passes them on unchanged.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use mcr_core::{
    Change, ClusterSpec, Discovery, DiscoverySettings, Provider,
    doctor::{Advice, Doctor},
    explain_error,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A provider that wraps another one and records its announcements.
#[derive(Clone)]
pub(crate) struct Tap {
    name: Arc<str>,
    /// Created once, because a doctor may remember what it has found.
    pub(crate) doctor: Arc<dyn Doctor>,
    provider: Arc<dyn Provider>,
    received: Arc<Mutex<Received>>,
}

/// The announcements of a provider so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    /// The specs, by the provider's own names.
    pub(crate) specs: BTreeMap<String, ClusterSpec>,
    /// The faulty object or file of each broken cluster, and the error.
    pub(crate) broken: BTreeMap<String, (String, String)>,
    pub(crate) synced: bool,
    /// Why the last discovery ended, if it has ended.
    pub(crate) error: Option<String>,
}

/// For providers without a doctor of their own.
pub(crate) struct NoDoctor;

impl Doctor for NoDoctor {
    fn advice(&self) -> &'static [Advice] {
        &[]
    }
}

impl Received {
    /// The names of all clusters.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.specs.keys().chain(self.broken.keys()).cloned().collect()
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Upsert(spec) => {
                self.broken.remove(spec.name.as_str());
                self.specs.insert(spec.name.to_string(), spec.clone());
            }
            Change::Broken(broken) => {
                let what = (broken.object.to_string(), broken.error.to_string());
                self.broken.insert(broken.name.to_string(), what);
            }
            Change::Remove(name) => {
                self.specs.remove(name.as_str());
                self.broken.remove(name.as_str());
            }
            Change::Synced => {
                self.synced = true;
                self.error = None;
            }
            _ => {}
        }
    }
}

impl Tap {
    pub(crate) fn new(name: &str, provider: Box<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            doctor: provider.doctor().unwrap_or_else(|| Arc::new(NoDoctor)),
            provider: Arc::from(provider),
            received: Arc::default(),
        }
    }

    pub(crate) fn received(&self) -> Received {
        self.received.lock().clone()
    }

    /// Whether the provider is synced or has failed.
    pub(crate) fn has_reported(&self) -> bool {
        let received = self.received.lock();
        received.synced || received.error.is_some()
    }
}

impl Provider for Tap {
    fn name(&self) -> &str {
        &self.name
    }

    fn searched(&self) -> String {
        self.provider.searched()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let received = self.received.clone();
        let ended = (received.clone(), stop.clone());
        let announced = self
            .provider
            .discover_with(stop, settings)
            .inspect(move |item| match item {
                Ok(change) => received.lock().apply(change),
                Err(error) => received.lock().error = Some(explain_all(error.as_ref())),
            });
        // A discovery that ends without an error has failed, too.
        let end = stream::once(async move {
            let (received, stop) = ended;
            if !stop.is_cancelled() {
                received
                    .lock()
                    .error
                    .get_or_insert_with(|| "its discovery ended".to_owned());
            }
        });
        announced
            .map(Some)
            .chain(end.map(|()| None))
            .filter_map(async |item| item)
            .boxed()
    }
}

/// The text of a provider's error, with its cause if the text does not contain the cause already.
pub(crate) fn explain_all(error: &(dyn std::error::Error + 'static)) -> String {
    let text = error.to_string();
    let cause = explain_error(error);
    if text.contains(&cause) || cause.is_empty() {
        text
    } else {
        format!("{text}: {cause}")
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::{Access, BrokenCluster, ClusterName, Trust};

    use super::*;

    #[test]
    fn the_last_announcement_of_a_cluster_counts() {
        let name = || ClusterName::new("a").unwrap();
        let spec = ClusterSpec::new(name(), Access::kubeconfig("", Trust::Untrusted));
        let mut received = Received::default();
        received.apply(&Change::Broken(BrokenCluster::new(name(), "file x", "is empty")));
        assert_eq!(received.broken["a"], ("file x".into(), "is empty".into()));
        received.apply(&Change::Upsert(spec));
        assert!(received.broken.is_empty() && received.specs.contains_key("a"));
        received.apply(&Change::Broken(BrokenCluster::new(name(), "file x", "is empty")));
        assert!(
            received.specs.contains_key("a"),
            "the last good description goes on"
        );
        received.error = Some("x".into());
        received.apply(&Change::Synced);
        assert!(received.synced && received.error.is_none());
        received.apply(&Change::Remove(name()));
        assert!(received.broken.is_empty() && received.specs.is_empty());
    }
}
