//! Mirrored objects of kinds with fields that their server or a controller chooses.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::ClusterSelector;
use mcr_sync::{BuildError, NameTemplate, Related};
use mcr_testkit::waiting::eventually;
use serde_json::{Value, json};

use crate::world::{LIMIT, Widgets, World, name, sync, widget};

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn mirror(kind: &ApiResource) -> Widgets {
    Widgets::with("mirror", kind, kind)
        .from(ClusterSelector::name("team"))
        .to(name("berlin"))
        .name_by(NameTemplate::parse("{name}").unwrap())
        .mirror()
}

/// Group, kind, an object as its cluster has it, and what of it is copied.
fn objects() -> Vec<(&'static str, &'static str, Value, Value)> {
    let ids = json!({"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "x", "batch.kubernetes.io/job-name": "x", "app": "a"});
    let template = |labels: &Value| json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let job = |extra: Value, labels: &Value| {
        let mut job = json!({"spec": {"template": template(labels), "backoffLimit": 2}});
        job["spec"]
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        job
    };
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
    vec![
        (
            "",
            "Service",
            json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
                "healthCheckNodePort": 31000, "selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30300}]}}),
            json!({"spec": {"type": "NodePort", "selector": {"app": "a"}, "ports": [{"port": 80, "protocol": "TCP"}]}}),
        ),
        (
            "",
            "Service",
            json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "selector": {"app": "a"}}}),
            json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"], "selector": {"app": "a"}}}),
        ),
        (
            "batch",
            "Job",
            job(json!({"selector": selector}), &ids),
            job(json!({}), &json!({"app": "a"})),
        ),
        (
            "batch",
            "Job",
            job(
                json!({"selector": selector, "manualSelector": true}),
                &json!({"app": "a"}),
            ),
            job(
                json!({"selector": selector, "manualSelector": true}),
                &json!({"app": "a"}),
            ),
        ),
        (
            "",
            "PersistentVolumeClaim",
            json!({"spec": {"volumeName": "pv-1", "storageClassName": "slow", "accessModes": ["ReadWriteOnce"]}}),
            json!({"spec": {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"]}}),
        ),
        (
            "",
            "ServiceAccount",
            json!({"secrets": [{"name": "robot-token-1"}], "imagePullSecrets": [{"name": "pull"}]}),
            json!({"imagePullSecrets": [{"name": "pull"}]}),
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template(&json!({"app": "a"}))}}),
            json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template(&json!({"app": "a"}))}}),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn sync_mirror_leaves_out_what_belongs_to_a_server_or_a_controller() {
    for (group, of, object, wanted) in objects() {
        let resource = kind(group, of);
        let mut world = World::new();
        let mut source = object;
        source["apiVersion"] = resource.api_version.clone().into();
        source["kind"] = of.into();
        source["metadata"] = json!({
            "name": "x", "namespace": "default", "finalizers": ["example.com/theirs"],
            "labels": {"app": "a"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": true}],
            "annotations": {"team": "a", "deployment.kubernetes.io/revision": "5", "pv.kubernetes.io/bind-completed": "yes",
                "volume.kubernetes.io/selected-node": "n", "control-plane.alpha.kubernetes.io/leader": "{}"},
        });
        if of == "Job" && source["spec"]["manualSelector"].is_null() {
            source["metadata"]["labels"]["controller-uid"] = "u".into();
        }
        world.team.create(source).unwrap();
        world.start_with(mirror(&resource).build().unwrap(), []);
        let kind_of = if group.is_empty() {
            resource.plural.clone()
        } else {
            format!("{}.{group}", resource.plural)
        };
        let found = || world.berlin.get(&kind_of, "default/x");
        let mut target = eventually(LIMIT, format!("the {of}"), found).await;
        let meta = target["metadata"].take();
        let marks = |field: &str| -> Vec<String> {
            let all = meta[field].as_object().unwrap().keys();
            all.filter(|key| !key.starts_with("sync.mcr.dev/"))
                .cloned()
                .collect()
        };
        assert_eq!(
            (marks("labels"), marks("annotations")),
            (vec!["app".to_owned()], vec!["team".to_owned()])
        );
        assert_eq!(
            (&meta["finalizers"], &meta["ownerReferences"]),
            (&Value::Null, &Value::Null)
        );
        for field in wanted.as_object().unwrap().keys() {
            assert_eq!(target[field], wanted[field], "{of}");
        }
        assert_eq!(target["secrets"], Value::Null);
        world.stop().await;
    }
}

#[test]
fn sync_mirror_of_a_kind_that_belongs_to_its_cluster_is_refused_in_words() {
    for (group, of) in [
        ("", "Pod"),
        ("", "Node"),
        ("events.k8s.io", "Event"),
        ("coordination.k8s.io", "Lease"),
    ] {
        let refused = mirror(&kind(group, of)).build().unwrap_err();
        assert!(matches!(refused, BuildError::NotMirrored(_)), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            format!(
                "a {of} can't be mirrored, because it belongs to its cluster; use `project` to make another kind from it, or only the fields that you choose"
            )
        );
        // A projection says itself what it takes along.
        let projected = mirror(&kind(group, of)).project(|pod: &DynamicObject, _| pod.clone());
        projected.build().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn sync_mirror_and_default_copy_of_a_service_account_token_are_refused_in_words() {
    let mut world = World::new();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "default",
        "annotations": {"kubernetes.io/service-account.name": "default"}}, "type": "kubernetes.io/service-account-token"});
    world.team.create(secret).unwrap();
    let words = "a token of a ServiceAccount is of use in its own cluster only";
    world.start_with(mirror(&kind("", "Secret")).build().unwrap(), []);
    world.fails_with(words).await;
    world.stop().await;
    let token =
        Related::<DynamicObject, DynamicObject, DynamicObject>::down_with("token", &kind("", "Secret"))
            .named(|_, _| ["token"]);
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync().related(token));
    let message = world.told("w", "FunctionFailed").await;
    assert!(message.contains(words), "{message}");
    world.stop().await;
}
