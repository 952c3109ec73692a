use std::sync::Arc;

use mcr_core::{
    Discovery, DiscoverySettings, Provider,
    doctor::Doctor,
    hub::{Running, discovery},
};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, decisions::Decisions, doctor::KubeconfigDoctor, secret::secrets};

/// A qualified name, as the API of events wants it.
const CONTROLLER: &str = "mcr.dev/provider-kubeconfig";

/// A provider that finds clusters in Secrets of a hub; see the [documentation of the crate](crate).
///
/// Clones share the record of the events that they have written on Secrets.
///
/// # Cancellation
/// A discovery has one task, its watch, which ends when the discovery is dropped or its token is cancelled. If the discovery
/// is checking kubeconfigs at that moment, the check finishes in the background.
#[derive(Debug, Clone)]
pub struct KubeconfigProvider(pub(crate) Arc<Config>);

impl Provider for KubeconfigProvider {
    fn name(&self) -> &str {
        &self.0.hub.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        let hub = &self.0.hub;
        let (client, namespaces) = (hub.client.clone(), hub.namespaces.clone());
        let label = self.0.rules.label.to_string();
        Some(Arc::new(KubeconfigDoctor::new(client, namespaces, label)))
    }

    fn searched(&self) -> String {
        let (secrets, key) = (self.0.hub.in_words(&secrets()), &self.0.rules.key);
        format!(
            "{secrets} of the hub, each with a kubeconfig under the key {key}. To add a cluster, create such a Secret \
             (mcr kubeconfig-secret create prints one); if there is one, check its namespace and label, and whether the \
             hub's credentials may list and watch Secrets there"
        )
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let (config, settings) = (self.0.clone(), settings.clone());
        discovery(stop, async move {
            let Config { hub, rules, .. } = &*config;
            let watches = hub.objects(&secrets()).into_iter().map(|request| {
                let rules = rules.clone();
                hub.watch(
                    request,
                    &settings,
                    move |object| rules.read(object),
                    |event| event,
                )
            });
            let decisions = Decisions::new(config.clone(), hub.judge(&settings));
            Ok(Running::new(decisions)
                .sources(watches)
                .publisher(hub.publisher(CONTROLLER)))
        })
    }
}
