//! Names in annotations that anybody may write, and what they would be as parts of a path.

use kube::core::{ApiResource, GroupVersionKind};
use mcr_sync::{TargetNamespace, hashed};

use crate::world::widgets::*;

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

/// The requests for single objects that a cluster got, except for this one.
fn asked(cluster: &SimCluster, but: &str) -> Vec<String> {
    let mut asked: Vec<String> = Vec::new();
    for event in cluster.audit().events().filter(|event| event.verb == "get") {
        let is_other = !event.uri.contains("/namespaces/kube-system?") && !event.uri.ends_with(but);
        if event.uri.contains("/namespaces/") && is_other {
            asked.push(event.uri.clone());
        }
    }
    asked
}

#[tokio::test(start_paused = true)]
async fn sync_record_with_a_name_that_no_object_can_have_is_reported_and_leads_to_no_request() {
    let world = World::of(&["w"], sync()).await;
    // Another generation each time, so that the new words are reported at once.
    let write = |generation: usize, record: &Value| {
        let spec = json!({"size": 2, "generation": generation});
        set(&world.team_a, "w", &["spec"], spec);
        annotate(&world.team_a, "w", RECORD, &record.to_string());
    };
    let own = json!(["berlin", "default", "w"]);
    for (generation, hostile) in HOSTILE.into_iter().enumerate() {
        for [namespace, name] in [[hostile, "y"], ["y", hostile]] {
            write(generation, &json!([own, ["berlin", namespace, name]]));
            let words =
                format!("the annotation {RECORD} of cluster://team-a/default/w has the name {hostile:?}");
            world.waits(&words).await;
            world.condition_is("w", "InvalidName", &words).await;
        }
    }
    write(HOSTILE.len(), &json!([own]));
    is_there(&world.berlin, "w", 2).await;
    assert_eq!(asked(&world.berlin, "v1/namespaces/default/widgets/w"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn sync_link_with_a_name_that_no_object_can_have_is_reported_and_leads_to_no_request() {
    let places = HOSTILE
        .into_iter()
        .flat_map(|hostile| [(hostile, "y"), ("x", hostile)]);
    for (namespace, source) in places {
        let of = source_name(Some(namespace), source);
        let target = hashed(of);
        let mut world = World::with(&[]);
        make(&world.berlin, &target, json!({}));
        let labels = json!({"sync.mcr.dev/sync": "widgets", "sync.mcr.dev/source": of.hash()});
        set(&world.berlin, &target, &["metadata", "labels"], labels);
        let annotations = json!({"sync.mcr.dev/source-cluster": "team-a",
            "sync.mcr.dev/source-namespace": namespace, "sync.mcr.dev/source-name": source});
        set(&world.berlin, &target, &["metadata", "annotations"], annotations);
        let sync = Widgets::with("widgets", &widgets(), &widgets()).to(name("berlin"));
        let namespaces = TargetNamespace::Fixed("default".to_owned());
        world.begin(sync.mirror().namespace(namespaces));
        let (what, hostile) = if source == "y" {
            ("namespace", namespace)
        } else {
            ("name", source)
        };
        // A ClusterRole may have such a name, so it is asked for, in a path that leads to no other object.
        if source == "root?x=" {
            world.fails("which no longer exists").await;
            let uri = "/apis/example.com/v1/namespaces/x/widgets/root%3Fx%3D";
            assert_eq!(asked(&world.team_a, "nothing"), [uri]);
        } else {
            let annotation =
                format!("annotation sync.mcr.dev/source-{what} of cluster://berlin/default/{target}");
            let words = format!("the {annotation} has the name {hostile:?}");
            world.waits(&words).await;
            assert_eq!(asked(&world.team_a, "nothing"), [""; 0]);
        }
    }
}

/// The names of RBAC objects may have characters that end the path of a URL.
#[tokio::test(start_paused = true)]
async fn sync_source_whose_name_would_end_a_path_is_synced_and_no_other_object_is_touched() {
    const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
    let mut world = World::new();
    let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let make = |name: &str| {
        let api = kind.api_version();
        let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": []});
        world.team_a.create(role).unwrap()
    };
    let (edit, _) = (make("edit"), make("edit?x="));
    let roles = ApiResource::from_gvk(&kind);
    let sync = Widgets::with("roles", &roles, &roles).to(name("berlin")).mirror();
    world.begin(sync.filter(|role| role.metadata.name.as_deref() == Some("edit?x=")));
    let target = hashed(source_name(None, "edit?x="));
    until("the target", || world.berlin.get(ROLES, &target)).await;
    world.team_a.delete(ROLES, "edit?x=").unwrap();
    until("the end", || world.team_a.get(ROLES, "edit?x=").is_none()).await;
    assert_eq!(world.berlin.get(ROLES, &target), None);
    assert_eq!(world.team_a.get(ROLES, "edit"), Some(edit));
    let is_other = |uri: &str| uri.ends_with("/edit") || uri.contains("/edit?");
    assert_eq!(world.team_a.audit().count(|event| is_other(&event.uri)), 0);
}
