//! The rights of the manifest.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcr_testkit::waiting::OrFail;
use serde_json::{Value, json};

use crate::management::granted;
use crate::objects::{CLUSTER, SECRET};
use crate::running::Running;
use crate::workload::{self, works};
use crate::{PATIENCE, byo, on_capi};

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

#[test]
fn the_readme_has_the_rules_of_the_manifest() {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once("```"));
    let role = blocks
        .map(|(block, _)| block)
        .find(|block| block.contains("verbs"))
        .expect("the README shows a role");
    let role: Value = serde_saphyr::from_str(role.split("\n---").next().unwrap_or_default()).or_fail();
    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).or_fail();
    assert_eq!(rules, granted());
}
