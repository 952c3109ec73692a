//! Names in annotations that anybody may write, and what they would be as parts of a path.

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use mcr::ClusterSelector;
use mcr_sync::{ObjectSync, SourceName, TargetNamespace, hashed};
use mcr_testkit::{sim::SimCluster, waiting::eventually};
use serde_json::{Value, json};

use crate::world::{LIMIT, WIDGETS, World, is_there, name, sync, widget, widgets};

/// What is no namespace of any object.
const HOSTILE: [&str; 7] = [
    "root?x=",
    "../x",
    "a/b",
    "%2e",
    "..",
    "",
    "kube-system/secrets/root?x=",
];

/// The requests for single objects that a cluster got.
fn asked(cluster: &SimCluster) -> Vec<String> {
    let audit = cluster.audit();
    let is_asked = |uri: &str| uri.contains("/namespaces/") && !uri.contains("/namespaces/kube-system?");
    let asked = audit
        .events()
        .filter(|event| event.verb == "get" && is_asked(&event.uri));
    asked.map(|event| event.uri.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn sync_record_with_a_name_that_no_object_can_have_is_told_and_leads_to_no_request() {
    const RECORD: &str = "sync.mcr.dev/placed.widgets";
    let mut world = World::new();
    world
        .team
        .create(widget("default", "w", json!({"size": 1})))
        .unwrap();
    world.start(sync());
    world.told("w", "Synced").await;
    // Another generation each time, so that the new words are told at once.
    let write = |generation: usize, record: &str| {
        let mut source = world.team.get(WIDGETS, "default/w").unwrap();
        source["metadata"]["annotations"][RECORD] = record.into();
        source["spec"] = json!({"size": 2, "generation": generation});
        world.team.update(source).unwrap();
    };
    let record = world.team.get(WIDGETS, "default/w").unwrap()["metadata"]["annotations"][RECORD].clone();
    for (generation, hostile) in HOSTILE.into_iter().enumerate() {
        for place in [json!([hostile, "y"]), json!(["y", hostile])] {
            let mut places: Vec<Value> = serde_json::from_str(record.as_str().unwrap()).unwrap();
            places.push(json!(["berlin", place[0], place[1]]));
            write(generation, &json!(places).to_string());
            let words =
                format!("the annotation {RECORD} of cluster://team/default/w has the name {hostile:?}");
            let failure = world.fails_with(&words).await;
            assert_eq!(failure.retry_at, None, "it waits for a change: {failure:?}");
            let told = || {
                world
                    .condition("w")
                    .filter(|(_, message)| message.contains(&words))
            };
            let (reason, _) = eventually(LIMIT, "the condition", told).await;
            assert_eq!(reason, "InvalidName");
        }
    }
    write(HOSTILE.len(), record.as_str().unwrap());
    is_there(&world.berlin, "default/w", 2).await;
    let others = asked(&world.berlin)
        .into_iter()
        .filter(|uri| !uri.ends_with("v1/namespaces/default/widgets/w"));
    assert_eq!(others.collect::<Vec<_>>(), [""; 0]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn sync_link_with_a_name_that_no_object_can_have_is_told_and_leads_to_no_request() {
    let places = HOSTILE.map(|hostile| (hostile, "y"));
    let names = HOSTILE.map(|hostile| ("x", hostile));
    for (namespace, source) in places.into_iter().chain(names) {
        let mut world = World::new();
        let of = SourceName {
            cluster: "team",
            namespace: Some(namespace),
            name: source,
        };
        let mut target = widget("default", &hashed(of), json!({}));
        target["metadata"]["labels"] =
            json!({"sync.mcr.dev/sync": "widgets", "sync.mcr.dev/source": of.hash()});
        target["metadata"]["annotations"] = json!({"sync.mcr.dev/source-cluster": "team",
            "sync.mcr.dev/source-namespace": namespace, "sync.mcr.dev/source-name": source});
        world.berlin.create(target).unwrap();
        let sync = ObjectSync::<DynamicObject, DynamicObject>::with("widgets", &widgets(), &widgets())
            .from(ClusterSelector::name("team"))
            .to(name("berlin"))
            .namespace(TargetNamespace::Fixed("default".to_owned()))
            .mirror();
        world.start(sync);
        let (annotation, hostile) = if source == "y" {
            ("namespace", namespace)
        } else {
            ("name", source)
        };
        // A ClusterRole may have such a name, so it is asked for, in a path that leads to no other object.
        if (annotation, hostile) == ("name", "root?x=") {
            world.fails_with("which no longer exists").await;
            let uri = "/apis/example.com/v1/namespaces/x/widgets/root%3Fx%3D";
            assert_eq!(asked(&world.team), [uri]);
        } else {
            let words = format!(
                "the annotation sync.mcr.dev/source-{annotation} of cluster://berlin/default/{} has the name {hostile:?}",
                hashed(of)
            );
            let failure = world.fails_with(&words).await;
            assert_eq!(failure.retry_at, None, "{failure:?}");
            assert_eq!(asked(&world.team), [""; 0]);
        }
        world.stop().await;
    }
}

/// The names of RBAC objects may have characters that end the path of a URL.
#[tokio::test(start_paused = true)]
async fn sync_source_whose_name_would_end_a_path_is_synced_and_no_other_object_is_touched() {
    let mut world = World::new();
    let roles = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "rbac.authorization.k8s.io",
        "v1",
        "ClusterRole",
    ));
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
    let edit = world.team.create(role("edit")).unwrap();
    world.team.create(role("edit?x=")).unwrap();
    let sync = ObjectSync::<DynamicObject, DynamicObject>::with("roles", &roles, &roles)
        .from(ClusterSelector::name("team"))
        .to(name("berlin"))
        .filter(|role| role.metadata.name.as_deref() == Some("edit?x="))
        .project(move |source, _| {
            let mut target = DynamicObject::new("", &roles);
            target.data = json!({"rules": source.data["rules"]});
            target
        });
    world.start_with(sync.build().unwrap(), []);
    let target = hashed(SourceName {
        cluster: "team",
        namespace: None,
        name: "edit?x=",
    });
    const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
    let made = || world.berlin.get(ROLES, &target);
    eventually(LIMIT, "the target", made).await;
    world.team.delete(ROLES, "edit?x=").unwrap();
    let gone = || (made().is_none() && world.team.get(ROLES, "edit?x=").is_none()).then_some(());
    eventually(LIMIT, "the end of both", gone).await;
    assert_eq!(world.team.get(ROLES, "edit"), Some(edit));
    let audit = world.team.audit();
    assert_eq!(
        audit.count(|event| event.uri.ends_with("/edit") || event.uri.contains("/edit?")),
        0
    );
    world.stop().await;
}
