//! A fleet over the chosen providers.

use std::time::Duration;

use mcr_core::{ClusterSpec, Fleet, FleetSnapshot};
use mcr_provider_multi::{MultiProvider, split_cluster_name};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{LinkedProvider, ProviderOptions, Tap, tap::explain_all};

/// The separator between provider and cluster in a name, if there are several providers.
const SEPARATOR: &str = "#";
/// The pause between two checks whether the state of all clusters is known. Some changes of the fleet cause no event.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A running fleet.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) taps: Vec<Tap>,
    /// Providers that could not be built, and the reasons.
    pub(crate) failed: Vec<(LinkedProvider, String)>,
    options: ProviderOptions,
    merged: bool,
    stop: DropGuard,
    task: JoinHandle<()>,
}

/// Starts a fleet over these providers. A provider that can't be built is left out and listed in `failed`.
pub(crate) async fn start(chosen: Vec<LinkedProvider>, options: ProviderOptions) -> anyhow::Result<Running> {
    let merged = chosen.len() > 1;
    let mut taps = Vec::new();
    let mut failed = Vec::new();
    for linked in chosen {
        match linked.make(options.clone()).await {
            Ok(provider) => taps.push(Tap::new(&linked.name, provider)),
            Err(error) => {
                let why = explain_all(error.as_ref());
                failed.push((linked, why));
            }
        }
    }
    let proxies = options.proxies()?;
    let mut fleet = Fleet::builder()
        .transport(|transport| transport.proxies = proxies)
        .settings(|settings| {
            settings.access_policy = options.access_policy();
            // So that every name is shown, even if its cluster is in the fleet under another name.
            settings.allow_duplicates = true;
            settings.drain_grace = Duration::from_secs(1);
            settings.reconnect_cap = Duration::from_secs(5);
        });
    if merged {
        let mut multi = MultiProvider::builder()
            .separator(SEPARATOR)
            .sync_timeout(Duration::from_secs(5));
        for tap in &taps {
            multi = multi.child(tap.clone());
        }
        fleet = fleet.provider(multi.build()?);
    } else {
        for tap in &taps {
            fleet = fleet.provider(tap.clone());
        }
    }
    let fleet = fleet.build();
    let stop = CancellationToken::new();
    let task = tokio::spawn({
        let (fleet, stop) = (fleet.clone(), stop.clone());
        async move { fleet.run(stop).await }
    });
    Ok(Running {
        fleet,
        taps,
        failed,
        options,
        merged,
        stop: stop.drop_guard(),
        task,
    })
}

impl Running {
    /// The provider of a cluster, and the provider's own name for the cluster.
    pub(crate) fn tap_and_name<'a>(&'a self, cluster: &'a str) -> Option<(&'a Tap, &'a str)> {
        use mcr_core::Provider;
        if !self.merged {
            return self.taps.first().map(|tap| (tap, cluster));
        }
        let (provider, rest) = split_cluster_name(cluster, SEPARATOR)?;
        let tap = self.taps.iter().find(|tap| tap.name() == provider)?;
        Some((tap, rest))
    }

    /// The fleet's name for a cluster of a provider.
    fn fleet_name(&self, tap: &Tap, cluster: &str) -> String {
        use mcr_core::Provider;
        if self.merged {
            format!("{}{SEPARATOR}{cluster}", tap.name())
        } else {
            cluster.to_owned()
        }
    }

    pub(crate) fn spec(&self, cluster: &str) -> Option<ClusterSpec> {
        let (tap, name) = self.tap_and_name(cluster)?;
        tap.received().specs.remove(name)
    }

    /// The providers and clusters that are still pending, as text for people. `None` once each provider is synced or
    /// has failed, and no cluster is Discovered or Connecting.
    pub(crate) fn pending(&self, snapshot: &FleetSnapshot) -> Option<String> {
        use mcr_core::Provider;
        if let Some(tap) = self.taps.iter().find(|tap| !tap.has_reported()) {
            return Some(format!("asking provider {}", tap.name()));
        }
        let there = |name: &str| {
            snapshot
                .clusters
                .iter()
                .any(|cluster| cluster.name.as_str() == name)
        };
        let announced = self.taps.iter().flat_map(|tap| {
            let names = tap.received().names();
            names.into_iter().map(|name| self.fleet_name(tap, &name))
        });
        let coming = announced.filter(|name| !there(name)).count();
        let waiting = |state: &str| matches!(state, "Discovered" | "Connecting");
        let open: Vec<&str> = snapshot
            .clusters
            .iter()
            .filter(|cluster| waiting(cluster.state))
            .map(|cluster| cluster.name.as_str())
            .collect();
        match (open.len() + coming, open.first()) {
            (0, _) => None,
            (count, Some(first)) => Some(format!(
                "waiting for {count} of {} clusters: {first} …",
                snapshot.clusters.len() + coming
            )),
            (count, None) => Some(format!("waiting for {count} clusters")),
        }
    }

    /// Waits until nothing is pending. Stops at the deadline, or when `stop` is cancelled.
    pub(crate) async fn wait_until_known(
        &self,
        deadline: Instant,
        stop: &CancellationToken,
        mut progress: impl FnMut(&str),
    ) -> FleetSnapshot {
        let mut checks = interval(CHECK_INTERVAL);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            let snapshot = self.fleet.snapshot();
            match self.pending(&snapshot) {
                Some(text) if Instant::now() < deadline && !stop.is_cancelled() => progress(&text),
                _ => return snapshot,
            }
        }
    }

    /// Stops the fleet.
    pub(crate) async fn stop(self) {
        drop(self.stop);
        let _ = self.task.await;
        drop((self.fleet, self.taps));
        self.options.close().await;
    }
}
