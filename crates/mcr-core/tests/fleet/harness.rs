//! What the tests of this folder share.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use mcr_core::{Access, Cluster, ClusterSpec, FleetSettings, Trust};
use mcr_testkit::control_plane::ControlPlane;
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};

pub(crate) use crate::common::*;

/// How long anything is waited for: on a busy machine an API server takes half a minute and more to start.
pub(crate) const SOON: Duration = Duration::from_secs(120);

pub(crate) fn spec(cluster: &str, kubeconfig: &str) -> ClusterSpec {
    ClusterSpec::new(name(cluster), Access::kubeconfig(kubeconfig, Trust::Trusted))
}

/// Lets no request end because it takes long. On a busy machine one that is cut short is made again, and a test that counts
/// requests, or waits beside a silent server, would see that.
pub(crate) fn cut_no_request_short(settings: &mut FleetSettings) {
    const HOUR: Duration = Duration::from_secs(3600);
    let transport = Arc::make_mut(&mut settings.transport);
    transport.connect_timeout = HOUR;
    transport.head_timeout = HOUR;
}

pub(crate) fn short_pauses(settings: &mut FleetSettings) {
    pause_at_most(settings, Duration::from_millis(300));
    Arc::make_mut(&mut settings.transport).rotation_spread = Duration::from_millis(300);
    // Most tests of this folder have one API server under several names.
    settings.allow_duplicates = true;
}

impl Running {
    pub(crate) async fn join(&self, cluster: &str, kubeconfig: &str) -> Cluster {
        self.announce(spec(cluster, kubeconfig)).await
    }

    /// Waits until a cluster has been asked so many times more whether it answers, or tried to be connected.
    pub(crate) async fn asked_again(&self, cluster: &str, times: usize) {
        let last = || {
            let clusters = self.fleet.snapshot().clusters;
            let status = clusters.into_iter().find(|status| status.name == *cluster);
            status.and_then(|status| status.last_probe)
        };
        for _ in 0..times {
            let before = last();
            eventually(SOON, format!("{cluster} is asked"), || last() != before).await;
        }
    }
}

pub(crate) async fn create(plane: &ControlPlane, object: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(plane.client(), "default");
    api.create(&PostParams::default(), &config_map(object))
        .await
        .or_fail();
}

pub(crate) async fn delete(plane: &ControlPlane, object: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(plane.client(), "default");
    api.delete(object, &DeleteParams::default()).await.or_fail();
}
