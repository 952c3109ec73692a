//! The sink of a fleet: engages the clusters that providers announce, and removes them.

use std::{sync::Arc, time::Duration};

use mcr_client::internal::user_code::{DISCOVERY, catch_panic};
use tokio::time::sleep;

use super::{
    description::Description,
    discovery::{ClusterSink, ProviderSet},
    supervisor::Supervisors,
};
use crate::{
    provider::{BrokenCluster, DiscoverySettings},
    spec::ClusterSpec,
};
use mcr_access::ClusterName;

/// The providers of a fleet.
pub(crate) type Announced = ProviderSet<FleetSink>;

/// Engages and removes the clusters of a fleet.
pub(crate) struct FleetSink(pub(crate) Arc<Supervisors>);

impl FleetSink {
    pub(crate) fn settings(&self) -> DiscoverySettings {
        let settings = self.0.fleet.settings();
        DiscoverySettings {
            watch: settings.watch.clone(),
            transport: settings.transport.clone(),
            ..settings.access_policy.clone().into()
        }
    }
}

impl ClusterSink for FleetSink {
    type Spec = Description;

    async fn store(&self, spec: ClusterSpec) -> Description {
        Description::parse(spec).await
    }

    fn set(&self, provider: &Arc<str>, _: &ClusterName, spec: &Arc<Description>) {
        // Such a call itself removes clusters in scopes and moves them to other scope endpoints. Both need a tokio runtime,
        // and the thread of the caller may have none.
        let _entered = self.0.fleet.resources.enter_runtime();
        self.0.set(provider.clone(), spec.clone());
    }

    fn unset(&self, name: &ClusterName) {
        let _entered = self.0.fleet.resources.enter_runtime();
        self.0.unset(name);
    }

    fn show_broken(&self, name: &ClusterName, _: Option<&BrokenCluster>) {
        self.0.fleet.publish(name);
    }

    /// Each cluster joins in a task of its own. When discovery is complete, all of them are in the fleet.
    async fn joined(&self) {
        self.0.starting.wait().await;
    }
}

/// Logs why the fleet has no clusters, if it has none after some time. A controller without clusters shows no error
/// otherwise.
pub(crate) async fn warn_if_empty(announced: Arc<Announced>) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let fleet = announced.sink().0.fleet.clone();
    tokio::select! {
        () = sleep(PATIENCE) => {}
        () = fleet.token().cancelled() => return,
    }
    if fleet.registry.len() > 0 {
        return;
    }
    let broken = announced.desired().never_good().count();
    for running in announced.providers() {
        let status = running.status();
        let state = match (&status.last_error, status.synced) {
            (Some(error), _) => format!("its discovery fails: {error}"),
            (None, true) => "it has found none".to_owned(),
            (None, false) => "it has not finished looking".to_owned(),
        };
        let searched = catch_panic(DISCOVERY, || running.provider.searched()).unwrap_or_default();
        let searched = (!searched.is_empty()).then(|| tracing::field::display(searched));
        tracing::warn!(provider = %status.name, %state, searched, broken, "the fleet has no clusters after {} s", PATIENCE.as_secs());
    }
}
