//! A management cluster that goes away and comes back.

use mcr_testkit::control_plane::ControlPlane;
use mcr_testkit::waiting::OrFail;

use crate::management::{Management, folder};
use crate::objects::{CLUSTER, Objects};
use crate::running::Running;
use crate::workload::{self, credential, works};
use crate::{byo, on_capi};

#[test]
fn capi_13_what_changed_while_the_hub_was_away_is_seen_when_it_is_back_and_the_rest_works_on() {
    on_capi(async |_| {
        // One of its own: the others need theirs.
        let management = Management::start(&folder().unwrap(), false).await.or_fail();
        let hub = management.hub("capi-13").await;
        let workload = workload::shared().await;
        let user = async |name: &str| byo::kubeconfig(workload, name).await;
        for name in ["changes", "leaves", "stays"] {
            byo::ready(&hub.objects, name, &user(&format!("capi-13-{name}")).await).await;
        }
        let second = ControlPlane::builder()
            .name("second")
            .replica_of(&hub.plane)
            .start()
            .await
            .or_fail();
        let behind = Objects {
            client: second.client(),
            namespace: hub.namespace().to_owned(),
        };
        let running = Running::start("capi-13", hub.provider().await);
        let stays = running.ready("stays").await;
        running.ready("changes").await;
        running.ready("leaves").await;

        hub.plane.stop().await.or_fail();
        works(workload, "capi-13", "while-it-is-away", "stays").await;
        // A server that starts knows no earlier change, so each watch that goes on from before is answered with 410.
        behind.delete(CLUSTER, "leaves").await;
        byo::rewrite(&behind, "changes", user("capi-13-changed").await).await;
        byo::create(&behind, byo::cluster("joins")).await;
        behind
            .create(byo::secret("joins", user("capi-13-joins").await))
            .await;
        let mark = hub.mark().await;
        hub.plane.restart().await.or_fail();

        running.is_gone("leaves").await;
        credential(workload, "it asks with the new certificate", |event| {
            event.user == "capi-13-changed"
        })
        .await;
        byo::initialize(&behind, "ByoCluster", "joins").await;
        running.ready("joins").await;
        works(workload, "capi-13", "afterwards", "joins").await;
        assert!(running.fleet.get("stays").or_fail().is_same(&stays));
        let log = hub.audit_since(mark).await;
        for resource in ["clusters", "secrets"] {
            let lists = log.count(|event| {
                event.is_list(resource) && event.code == 200 && event.user == hub.robot.name()
            });
            assert_eq!(lists, 1, "{resource} are listed once after the 410");
        }
        running.stop().await;
    });
}
