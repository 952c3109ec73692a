//! Providers that are added and removed while a fleet runs.

use std::time::Duration;

use futures::{StreamExt, stream};
use mcr_core::{Access, Change, ClusterSpec, Discovery, Fleet, Provider, Trust};
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
