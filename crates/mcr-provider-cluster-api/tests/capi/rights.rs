//! The rights of the manifest, and the fields of the CRD.

use std::collections::BTreeSet;

use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::management::{folder, granted};
use crate::objects::{CLUSTER, SECRET};
use crate::running::Running;
use crate::workload::{self, works};
use crate::{PATIENCE, byo, manifests, on_capi};

#[test]
fn the_provider_uses_each_right_of_the_manifest_and_needs_no_other() {
    on_capi(async |management| {
        let hub = management.hub("rights").await;
        let workload = workload::shared().await;
        let kubeconfig = byo::kubeconfig(workload, "rights").await;
        byo::ready(&hub.objects, "broken", "").await;
        let running = Running::start("rights", hub.provider().await);
        running.shows("broken", "Broken", "").await;
        let rights = granted();
        let wanted: BTreeSet<(String, String)> = rights
            .iter()
            .flat_map(|rule| {
                let resources = rule.resources.iter().flatten();
                resources.flat_map(|resource| rule.verbs.iter().map(|verb| (resource.clone(), verb.clone())))
            })
            .collect();

        // The same problem twice is one event that is changed.
        let started = tokio::time::Instant::now();
        let mut round = 0;
        let used = loop {
            round += 1;
            byo::rewrite(&hub.objects, "broken", &kubeconfig).await;
            works(workload, "rights", &format!("round-{round}"), "broken").await;
            byo::rewrite(&hub.objects, "broken", "").await;
            let now = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            hub.objects.merge(CLUSTER, "broken", now.clone()).await;
            hub.objects.merge(SECRET, "broken-kubeconfig", now).await;
            running.shows("broken", "Ready", "broken-kubeconfig").await;
            let log = hub.plane.audit().await.or_fail();
            let ours = log
                .events()
                .filter(|event| event.user == hub.robot.name() && event.is_start());
            // The test kit asks whether the rights work.
            let ours =
                ours.filter(|event| event.group != "authorization.k8s.io" && !event.resource.is_empty());
            let used: BTreeSet<_> = ours
                .map(|event| (event.resource.clone(), event.verb.clone()))
                .collect();
            if used == wanted || started.elapsed() > PATIENCE / 4 {
                break used;
            }
        };
        assert_eq!(used, wanted);
        let log = hub.plane.audit().await.or_fail();
        let refused = log.count(|event| event.user == hub.robot.name() && event.code == 403);
        assert_eq!(refused, 0);
        running.stop().await;
    });
}

/// The type that a schema gives to a path.
fn type_in(schema: &Value, path: &str) -> String {
    let mut at = schema;
    for name in path.split('.') {
        at = &at["properties"][name.trim_end_matches("[]")];
        for _ in 0..name.matches("[]").count() {
            at = &at["items"];
        }
    }
    let format = at["format"].as_str().map(|format| format!(":{format}"));
    format!(
        "{}{}",
        at["type"].as_str().unwrap_or("nothing"),
        format.unwrap_or_default()
    )
}

/// `tests/types.rs` compares the types with this list.
#[test]
fn the_list_of_fields_is_that_of_the_crd() {
    on_capi(async |_| {
        let mut crds = manifests::read(&folder().unwrap(), "core.yaml").into_iter();
        let clusters = crds
            .find(|crd| crd["spec"]["names"]["kind"] == "Cluster")
            .unwrap();
        let versions = clusters["spec"]["versions"].as_array().unwrap();
        for line in include_str!("../data/schema.txt").lines() {
            let [version, path, type_] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let version = versions.iter().find(|served| served["name"] == version).unwrap();
            assert_eq!(
                type_in(&version["schema"]["openAPIV3Schema"], path),
                type_,
                "{line}"
            );
        }
    });
}
