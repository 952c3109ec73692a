//! The limits of a cluster that is a namespace, and the answers to requests beyond them.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Node},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};

use crate::harness::{Raw, ask, crd, namespace};

use crate::world::*;

#[tokio::test]
async fn events_are_about_objects_of_the_namespace() {
    let world = world().await;
    let created = create(&maps(&world.island, "default"), &map("a", &[])).await;
    let event = |name: &str| -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "ConfigMap", "name": "a", "namespace": "default", "uid": created.metadata.uid},
            "related": {"kind": "ConfigMap", "name": "b", "namespace": "zoo"},
            "reason": "Tested", "type": "Normal",
        }))
        .unwrap()
    };
    let inside: Api<Event> = Api::namespaced(world.island.clone(), "default");
    let made = create(&inside, &event("e")).await;
    assert_eq!(made.involved_object.namespace.as_deref(), Some("default"));
    let real = world.both::<Event>().1.get("e").await.unwrap();
    assert_eq!(real.involved_object.namespace.as_deref(), Some("island"));
    assert_eq!(real.related.unwrap().namespace.as_deref(), Some("zoo"));

    // The newer form of the same object.
    let newer: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(world.island.clone(), "default");
    let seen = newer.get("e").await.unwrap();
    assert_eq!(
        seen.regarding.clone().unwrap().namespace.as_deref(),
        Some("default")
    );
    let mut patched = seen.clone();
    patched.metadata.labels = Some(BTreeMap::from([("seen".into(), "yes".into())]));
    newer
        .replace("e", &PostParams::default(), &patched)
        .await
        .unwrap();
    let recorder = kube::runtime::events::Recorder::new(world.island.clone(), "tests".into());
    let note = kube::runtime::events::Event {
        type_: kube::runtime::events::EventType::Normal,
        reason: "Recorded".into(),
        note: None,
        action: "Test".into(),
        secondary: None,
    };
    recorder.publish(&note, &created.object_ref(&())).await.unwrap();

    let all: Api<Event> = Api::all(world.island.clone());
    let about = |selector: &str| {
        let (all, params) = (all.clone(), ListParams::default().fields(selector));
        async move { all.list(&params).await.unwrap().items.len() }
    };
    assert_eq!(
        about("involvedObject.namespace=default,involvedObject.name=a").await,
        2
    );
    assert_eq!(about("involvedObject.namespace=island").await, 0);
    assert_eq!(about("involvedObject.namespace!=default").await, 0);
}

#[tokio::test]
async fn what_a_namespace_does_not_have_is_refused_in_words() {
    let world = world().await;
    let nodes: Api<Node> = Api::all(world.island.clone());
    let Err(kube::Error::Api(status)) = nodes.list(&ListParams::default()).await else {
        panic!("nodes are listed")
    };
    assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
    assert!(
        status
            .message
            .contains("no cluster-scoped kinds such as nodes; use the host cluster"),
        "{}",
        status.message
    );

    let namespaces: Api<Namespace> = Api::all(world.island.clone());
    assert_eq!(
        names(namespaces.list(&ListParams::default()).await.unwrap()),
        [(String::new(), "default".to_owned())]
    );
    let own = namespaces.get("default").await.unwrap();
    assert_eq!(
        own.metadata.labels.unwrap()["kubernetes.io/metadata.name"],
        "island"
    );
    for other in ["island", "zoo", "kube-system"] {
        assert_eq!(code(namespaces.get(other).await), 404);
        assert_eq!(
            namespaces
                .list(&ListParams::default().fields(&format!("metadata.name={other}")))
                .await
                .unwrap()
                .items
                .len(),
            0
        );
    }
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    for name in ["default", "zoo", "new"] {
        assert_eq!(code(namespaces.delete(name, &DeleteParams::default()).await), 403);
        assert_eq!(
            code(namespaces.patch(name, &PatchParams::default(), &labelled).await),
            403
        );
    }
    let mut watch = namespaces
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    namespace(&world.host, "another").await;
    let WatchEvent::Added(seen) = next(&mut watch).await else {
        panic!("no namespace is told")
    };
    assert_eq!(seen.metadata.name.as_deref(), Some("default"));
    // What comes next is not the other one, which was made before, but what is then done to this.
    let own: Api<Namespace> = Api::all(world.host.clone());
    own.patch("island", &PatchParams::default(), &labelled)
        .await
        .unwrap();
    let WatchEvent::Modified(seen) = next(&mut watch).await else {
        panic!("another namespace is told")
    };
    assert_eq!(seen.metadata.name.as_deref(), Some("default"));
    assert_eq!(seen.metadata.labels.unwrap()["x"], "y");

    // Paths about the server itself answer the same in all clusters.
    assert_eq!(world.island.apiserver_version().await.unwrap().major, "1");
    assert!(
        world
            .island
            .list_core_api_resources("v1")
            .await
            .unwrap()
            .resources
            .len()
            > 10
    );
    assert_eq!(world.get("/readyz").await.text, "ok");
    assert_eq!(world.get("/metrics").await.code, 403);
}

#[tokio::test]
async fn subjects_are_not_renamed() {
    let world = world().await;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "b", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "default"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
                     {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:serviceaccount:default:robot"}],
    }))
    .unwrap();
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": "default"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }))
    .unwrap();
    let roles: Api<Role> = Api::namespaced(world.island.clone(), "default");
    create(&roles, &role).await;
    let inside: Api<RoleBinding> = Api::namespaced(world.island.clone(), "default");
    create(&inside, &binding).await;
    let real = world.both::<RoleBinding>().1.get("b").await.unwrap();
    assert_eq!(real.subjects, binding.subjects);

    let review = json!({"metadata": {"namespace": "default"}, "spec": {
        "user": "system:serviceaccount:default:robot",
        "resourceAttributes": {"namespace": "default", "verb": "list", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
    let review = Raw::new("POST", path).body("application/json", review);
    // The API server's authorizer learns of the binding a moment later.
    let started = std::time::Instant::now();
    loop {
        let answer = ask(&world.island, &review).await.unwrap().json();
        assert_eq!(
            answer["spec"]["resourceAttributes"]["namespace"], "default",
            "{answer}"
        );
        if answer["status"]["allowed"] == Value::Bool(true) {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_crd_that_comes_later_is_found_and_one_that_goes_is_missed() {
    let world = world().await;
    let path = "/apis/example.com/v1/gadgets";
    assert_eq!(world.get(path).await.code, 404);
    world
        .plane
        .install_crd(crd("gadgets", "Gadget", "Namespaced"))
        .await
        .unwrap();
    let started = std::time::Instant::now();
    while world.get(path).await.code != 200 {
        assert!(started.elapsed() < PATIENCE, "gadgets are not found");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
