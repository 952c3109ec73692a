//! Mirrored objects of kinds with fields that their server or a controller chooses.

use kube::core::{ApiResource, GroupVersionKind};
use mcr_sync::{BuildError, NameTemplate, Related};

use crate::world::widgets::*;

fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

fn mirror(kind: &ApiResource) -> Widgets {
    let sync = Widgets::with("mirror", kind, kind).to(name("berlin"));
    sync.name_by(NameTemplate::parse("{name}").unwrap()).mirror()
}

/// Group, kind, what its cluster and its controllers have added, and what is copied.
fn objects() -> Value {
    let ids = json!({"controller-uid": "u", "batch.kubernetes.io/controller-uid": "u", "job-name": "x",
        "batch.kubernetes.io/job-name": "x", "app": "a"});
    let [plain, with_ids] =
        [&json!({"app": "a"}), &ids].map(|labels| json!({"metadata": {"labels": labels}}));
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
    json!([
        ["", "Service",
            {"spec": {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
                "healthCheckNodePort": 31000, "ports": [{"nodePort": 30300, "port": 80}]}},
            {"spec": {"type": "NodePort", "selector": {"app": "a"}, "ports": [{"port": 80}]}}],
        ["", "Service", {}, {"spec": {"clusterIP": "None", "clusterIPs": ["None"], "selector": {"app": "a"}}}],
        ["batch", "Job", {"spec": {"template": with_ids, "selector": selector}, "metadata": {"labels": ids}},
            {"spec": {"template": plain, "backoffLimit": 2}}],
        ["batch", "Job", {}, {"spec": {"template": plain, "selector": selector, "manualSelector": true}}],
        ["", "PersistentVolumeClaim", {"spec": {"volumeName": "pv-1"}}, {"spec": {"storageClassName": "slow"}}],
        ["", "ServiceAccount", {"secrets": [{"name": "token-1"}]}, {"imagePullSecrets": [{"name": "pull"}]}],
        ["apps", "Deployment", {}, {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": plain}}],
    ])
}

/// Puts the fields of one object into another one.
fn merge(into: &mut Value, from: &Value) {
    let Some(fields) = from.as_object() else {
        *into = from.clone();
        return;
    };
    for (field, value) in fields {
        merge(&mut into[field], value);
    }
}

#[tokio::test(start_paused = true)]
async fn sync_mirror_leaves_out_what_belongs_to_a_server_or_a_controller() {
    for row in objects().as_array().unwrap() {
        let (group, of, wanted) = (row[0].as_str().unwrap(), row[1].as_str().unwrap(), &row[3]);
        let resource = kind(group, of);
        let mut source = json!({"apiVersion": resource.api_version, "kind": of, "metadata": {
            "name": "x", "namespace": "default", "finalizers": ["example.com/theirs"], "labels": {"app": "a"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u",
                "controller": true}],
            "annotations": {"team": "a", "deployment.kubernetes.io/revision": "5",
                "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n",
                "control-plane.alpha.kubernetes.io/leader": "{}"},
        }});
        merge(&mut source, wanted);
        merge(&mut source, &row[2]);
        let mut world = World::new();
        world.team_a.create(source).unwrap();
        world.begin(mirror(&resource));
        let plural = format!("{}.{group}", resource.plural);
        let found = || world.berlin.get(plural.trim_end_matches('.'), "default/x");
        let mut target = until(format!("the {of}"), found).await;
        let mut meta = target["metadata"].take();
        for (field, wanted) in [
            ("labels", json!({"app": "a"})),
            ("annotations", json!({"team": "a"})),
        ] {
            let marks = meta[field].as_object_mut().unwrap();
            marks.retain(|mark, _| !mark.starts_with("sync.mcr.dev/"));
            assert_eq!(meta[field], wanted, "{of}");
        }
        for field in ["finalizers", "ownerReferences"] {
            assert_eq!(meta[field], Value::Null);
        }
        for field in wanted.as_object().unwrap().keys() {
            assert_eq!(target[field], wanted[field], "{of}");
        }
        assert_eq!(target["secrets"], Value::Null);
    }
}

#[test]
fn sync_mirror_of_a_kind_that_belongs_to_its_cluster_is_refused_in_words() {
    for of in "/Pod /Node events.k8s.io/Event coordination.k8s.io/Lease".split(' ') {
        let (group, of) = of.split_once('/').unwrap();
        let refused = mirror(&kind(group, of)).build().unwrap_err();
        assert!(matches!(refused, BuildError::NotMirrored(_)), "{refused:?}");
        let words = "because it belongs to its cluster; use `project` to make another kind from it, \
            or only the fields that you choose";
        assert_eq!(refused.to_string(), format!("a {of} can't be mirrored, {words}"));
        // A projection chooses itself what it copies.
        mirror(&kind(group, of))
            .project(|it, _| it.clone())
            .build()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn sync_mirror_and_default_copy_of_a_service_account_token_are_refused_in_words() {
    let secrets = kind("", "Secret");
    let token = Related::<_, _, DynamicObject>::down_with("token", &secrets);
    let mut world = World::with(&["w"]);
    let of = json!({"kubernetes.io/service-account.name": "default"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "token", "namespace": "default", "annotations": of}});
    world.team_a.create(secret).unwrap();
    let words = "a token of a ServiceAccount is of use in its own cluster only";
    world.begin(mirror(&secrets));
    world.fails(words).await;
    world.stop().await;
    world.begin(sync().related(token.named(|_, _| ["token"])));
    world.reported("w", "FunctionFailed", words).await;
}
