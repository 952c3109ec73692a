//! Records the announcements of a provider without changing them.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use mcr_core::{Change, ClusterSpec, Discovery, DiscoverySettings, Provider, explain_error};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::Kind;

/// A provider that wraps another one and records its announcements.
#[derive(Clone)]
pub(crate) struct Tap {
    name: Arc<str>,
    pub(crate) kind: Kind,
    provider: Arc<dyn Provider>,
    heard: Arc<Mutex<Heard>>,
}

/// The announcements of a provider so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// The specs, by the provider's own names.
    pub(crate) specs: BTreeMap<String, ClusterSpec>,
    /// The faulty object or file, and its error.
    pub(crate) broken: BTreeMap<String, (String, String)>,
    pub(crate) synced: bool,
    /// Why the last discovery ended, if it has ended.
    pub(crate) error: Option<String>,
}

impl Heard {
    fn hear(&mut self, change: &Change) {
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
    pub(crate) fn new(name: &str, kind: Kind, provider: Box<dyn Provider>) -> Self {
        Self {
            name: name.into(),
            kind,
            provider: Arc::from(provider),
            heard: Arc::default(),
        }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().clone()
    }

    /// Whether the provider is synced or has failed.
    pub(crate) fn has_spoken(&self) -> bool {
        let heard = self.heard.lock();
        heard.synced || heard.error.is_some()
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
        let heard = self.heard.clone();
        let ended = (heard.clone(), stop.clone());
        let update = |heard: &Mutex<Heard>, change: &dyn Fn(&mut Heard)| {
            change(&mut heard.lock());
        };
        let said = self
            .provider
            .discover_with(stop, settings)
            .inspect(move |item| match item {
                Ok(change) => update(&heard, &|heard| heard.hear(change)),
                Err(error) => {
                    let why = explain_all(error.as_ref());
                    update(&heard, &|heard| heard.error = Some(why.clone()));
                }
            });
        // A discovery that ends by itself has failed too.
        let end = stream::once(async move {
            let (heard, stop) = ended;
            if !stop.is_cancelled() {
                update(&heard, &|heard| {
                    heard
                        .error
                        .get_or_insert_with(|| "its discovery ended".to_owned());
                });
            }
        });
        said.map(Some)
            .chain(end.map(|()| None))
            .filter_map(async |item| item)
            .boxed()
    }
}

/// The text of a provider's error, with its cause if the text does not contain it.
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
    fn the_last_word_on_a_cluster_counts() {
        let name = || ClusterName::new("a").unwrap();
        let spec = ClusterSpec::new(name(), Access::kubeconfig("", Trust::Untrusted));
        let mut heard = Heard::default();
        heard.hear(&Change::Broken(BrokenCluster::new(name(), "file x", "is empty")));
        assert_eq!(heard.broken["a"], ("file x".into(), "is empty".into()));
        heard.hear(&Change::Upsert(spec));
        assert!(heard.broken.is_empty() && heard.specs.contains_key("a"));
        heard.hear(&Change::Broken(BrokenCluster::new(name(), "file x", "is empty")));
        assert!(heard.specs.contains_key("a"), "the last good description goes on");
        heard.error = Some("x".into());
        heard.hear(&Change::Synced);
        assert!(heard.synced && heard.error.is_none());
        heard.hear(&Change::Remove(name()));
        assert!(heard.broken.is_empty() && heard.specs.is_empty());
    }
}
