//! Clusters that do not answer.

use mcr_testkit::control_plane::ControlPlane;
use mcr_testkit::waiting::OrFail;

use crate::byo;
use crate::objects::{CLUSTER, initialized};
use crate::on_capi;
use crate::running::Running;
use crate::workload::{self, works};

#[test]
fn capi_11_a_killed_api_server_is_reported_and_comes_back_and_nobody_else_notices() {
    on_capi(async |management| {
        let hub = management.hub("capi-11").await;
        let workload = workload::shared().await;
        let mortal = ControlPlane::builder()
            .name("mortal")
            .audit(true)
            .start()
            .await
            .or_fail();
        byo::ready(&hub.objects, "mortal", &mortal.kubeconfig()).await;
        byo::ready(&hub.objects, "other", &byo::kubeconfig(workload, "capi-11").await).await;
        let running = Running::start("capi-11", hub.provider().await);
        let (before, other) = (running.ready("mortal").await, running.ready("other").await);
        works(&mortal, "capi-11", "first", "mortal").await;

        mortal.stop().await.or_fail();
        running.shows("mortal", "Unreachable", "").await;
        // For Cluster API it is initialised for ever, whether it answers or not.
        assert!(initialized(&hub.objects.exists(CLUSTER, "mortal").await));
        works(workload, "capi-11", "meanwhile", "other").await;
        mortal.restart().await.or_fail();
        running.ready("mortal").await;
        works(&mortal, "capi-11", "second", "mortal").await;
        assert!(running.fleet.get("mortal").or_fail().is_same(&before));
        assert!(running.fleet.get("other").or_fail().is_same(&other));
        running.stop().await;
    });
}
