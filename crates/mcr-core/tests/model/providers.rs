//! Providers that are added and removed while a fleet runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, stream};
use mcr_core::{
    Access, BrokenCluster, Change, ClusterName, ClusterSink, ClusterSpec, Discovery, DiscoverySettings,
    Fleet, Provider, ProviderId, ProviderSet, Trust,
};
use tokio_util::sync::CancellationToken;

use crate::paused::paused;

/// Announces suspended clusters, which the fleet does not connect. Never synced without any.
struct Fixed(&'static str, &'static [&'static str]);

impl Provider for Fixed {
    fn name(&self) -> &str {
        self.0
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let upsert = |name: &&str| {
            let access = Access::kubeconfig("", Trust::Trusted);
            Ok(Change::Upsert(
                ClusterSpec::named(*name, access)?.suspended("asleep"),
            ))
        };
        let synced = (!self.1.is_empty()).then_some(Ok(Change::Synced));
        let changes: Vec<_> = self.1.iter().map(upsert).chain(synced).collect();
        let changes = stream::iter(changes).chain(stream::pending());
        changes.take_until(stop.cancelled_owned()).boxed()
    }
}

/// The names of all clusters with those of their providers, after all tasks have run.
async fn clusters(fleet: &Fleet) -> Vec<String> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let clusters = fleet.clusters();
    let named = clusters
        .iter()
        .map(|cluster| format!("{} {}", cluster.name(), cluster.provider()));
    named.collect()
}

#[test]
fn providers_are_added_and_removed_while_a_fleet_runs() {
    paused(|| async {
        let fleet = Fleet::builder().provider(Fixed("built", &["a"])).build();
        let first = fleet.add_provider(Fixed("first", &["b"]));
        let (running, stop) = (fleet.clone(), CancellationToken::new());
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { running.run(stop).await }
        });
        assert!(fleet.discovered().await);
        assert_eq!(clusters(&fleet).await, ["a built", "b first"]);

        let late = fleet.add_provider(Fixed("late", &["b", "c"]));
        assert!(!fleet.is_discovered() && fleet.discovered().await);
        assert_eq!(clusters(&fleet).await, ["a built", "b first", "c late"]);

        // The next that announced a name inherits it.
        assert!(fleet.remove_provider(first) && !fleet.remove_provider(first));
        assert_eq!(clusters(&fleet).await, ["a built", "b late", "c late"]);
        assert!(fleet.remove_provider(late));
        assert_eq!(clusters(&fleet).await, ["a built"]);

        // A provider that never syncs is not waited for any more.
        let stuck = fleet.add_provider(Fixed("stuck", &[]));
        let (discovered, removed) = tokio::join!(fleet.discovered(), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            fleet.remove_provider(stuck)
        });
        assert!(discovered && removed);
        let names: Vec<_> = fleet.providers().into_iter().map(|status| status.name).collect();
        assert_eq!(names, ["built".into()]);
        stop.cancel();
        task.await.unwrap();
    });
}

/// The clusters of a set. Panics when `b` is removed.
#[derive(Default)]
struct Fragile(Mutex<BTreeSet<String>>);

impl ClusterSink for Fragile {
    type Spec = ClusterSpec;

    async fn store(&self, spec: ClusterSpec) -> ClusterSpec {
        spec
    }
    fn set(&self, _: &Arc<str>, name: &ClusterName, _: &Arc<ClusterSpec>) {
        self.0.lock().unwrap().insert(name.to_string());
    }
    fn unset(&self, name: &ClusterName) {
        assert_ne!(name, "b", "out of order");
        self.0.lock().unwrap().remove(&**name);
    }
    fn show_broken(&self, _: &ClusterName, _: Option<&BrokenCluster>) {}
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_one_cluster_is_removed_keeps_no_other_cluster() {
    let set = Arc::new(ProviderSet::new(Fragile::default(), Duration::ZERO));
    set.add(ProviderId(0), Arc::new(Fixed("all", &["a", "b", "c"])));
    set.add(ProviderId(1), Arc::new(Fixed("other", &["d"])));
    let stop = CancellationToken::new();
    let mut discovering = set.run(stop.clone(), DiscoverySettings::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        tasks.spawn(discovering.next().await);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(set.sink().0.lock().unwrap().len(), 4);
    assert!(set.remove(ProviderId(0)));
    let left: Vec<_> = set.sink().0.lock().unwrap().iter().cloned().collect();
    assert_eq!(left, ["b", "d"]);
    assert!(set.remove(ProviderId(1)));
    stop.cancel();
    tasks.join_all().await;
}
