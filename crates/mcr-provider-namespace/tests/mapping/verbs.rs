//! What is done in a cluster that is a namespace, seen from inside and from its host.

use std::{collections::BTreeMap, time::Duration};

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Namespace, Node, Pod, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Resource,
    api::{
        DeleteParams, EvictParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy,
        WatchEvent, WatchParams,
    },
};
use mcr_provider_namespace::NamespaceMapping;
use mcr_testkit::control_plane::ControlPlane;
use serde_json::{Value, json};

use crate::harness::{Raw, ask, crd, namespace};

struct World {
    _plane: ControlPlane,
    host: Client,
    island: Client,
    kept: Client,
}

async fn world() -> World {
    let plane = ControlPlane::builder()
        .crd(crd("widgets", "Widget", "Namespaced"))
        .start()
        .await
        .unwrap();
    let host = plane.client();
    for name in ["island", "zoo"] {
        namespace(&host, name).await;
    }
    let island = NamespaceMapping::new().client(&host, "island").unwrap();
    let kept = NamespaceMapping::new()
        .keep_names(true)
        .client(&host, "island")
        .unwrap();
    World {
        _plane: plane,
        host,
        island,
        kept,
    }
}

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused by a Status: {other:?}"),
    }
}

/// Nothing but bookmarks comes for a while.
async fn quiet<K: std::fmt::Debug>(watch: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin)) {
    let until = tokio::time::Instant::now() + Duration::from_millis(500);
    while let Ok(event) = tokio::time::timeout_at(until, watch.next()).await {
        assert!(matches!(event, Some(Ok(WatchEvent::Bookmark(_)))), "{event:?}");
    }
}

fn names<K: Resource>(objects: impl IntoIterator<Item = K>) -> Vec<(String, String)> {
    let both = |object: K| {
        (
            object.meta().namespace.clone().unwrap_or_default(),
            object.meta().name.clone().unwrap_or_default(),
        )
    };
    let mut names: Vec<_> = objects.into_iter().map(both).collect();
    names.sort();
    names
}

#[tokio::test]
async fn everything_written_and_read_inside_is_in_the_namespace() {
    let world = world().await;
    let (inside, real) = (maps(&world.island, "default"), maps(&world.host, "island"));
    let neighbours = [maps(&world.host, "zoo"), maps(&world.host, "default")];
    for neighbour in &neighbours {
        neighbour
            .create(&PostParams::default(), &map("a", &[("k", "theirs")]))
            .await
            .unwrap();
    }

    let created = inside
        .create(&PostParams::default(), &map("a", &[("k", "1")]))
        .await
        .unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("default"));
    let seen = real.get("a").await.unwrap();
    assert_eq!(
        (seen.metadata.uid, seen.metadata.namespace.as_deref()),
        (created.metadata.uid.clone(), Some("island"))
    );

    // Written back with its namespace as it was read.
    let mut changed = inside.get("a").await.unwrap();
    changed.data = Some(BTreeMap::from([("k".into(), "2".into())]));
    let replaced = inside
        .replace("a", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_eq!(replaced.metadata.namespace.as_deref(), Some("default"));

    let apply = PatchParams::apply("me").force();
    let with = |namespace: Option<&str>, value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}, "data": {"k": value}});
    for (number, namespace) in [Some("default"), None].into_iter().enumerate() {
        let value = |form: &str| format!("{form}-{number}");
        for patch in [
            (&apply, Patch::Apply(with(namespace, &value("applied")))),
            (
                &PatchParams::default(),
                Patch::Merge(with(namespace, &value("merged"))),
            ),
            (
                &PatchParams::default(),
                Patch::Strategic(with(namespace, &value("strategic"))),
            ),
        ] {
            let patched = inside.patch("a", patch.0, &patch.1).await.unwrap();
            assert_eq!(patched.metadata.namespace.as_deref(), Some("default"));
            assert_eq!(real.get("a").await.unwrap().data, patched.data);
        }
    }
    let operations: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/namespace", "value": "default"},
        {"op": "replace", "path": "/metadata/namespace", "value": "default"},
        {"op": "add", "path": "/data/json", "value": "yes"},
    ]))
    .unwrap();
    let patched = inside
        .patch("a", &PatchParams::default(), &Patch::Json::<()>(operations))
        .await
        .unwrap();
    assert_eq!(patched.metadata.namespace.as_deref(), Some("default"));
    assert_eq!(real.get("a").await.unwrap().data.unwrap()["json"], "yes");

    // All namespaces are one.
    inside
        .create(&PostParams::default(), &map("b", &[]))
        .await
        .unwrap();
    let everywhere: Api<ConfigMap> = Api::all(world.island.clone());
    for api in [&inside, &everywhere] {
        let list = api.list(&ListParams::default()).await.unwrap();
        assert_eq!(
            names(list),
            [
                ("default".to_owned(), "a".to_owned()),
                ("default".to_owned(), "b".to_owned())
            ]
        );
    }
    let by_field = |selector: &str| {
        let (everywhere, params) = (everywhere.clone(), ListParams::default().fields(selector));
        async move { everywhere.list(&params).await.unwrap().items.len() }
    };
    assert_eq!(by_field("metadata.namespace=default").await, 2);
    assert_eq!(by_field("metadata.namespace!=default").await, 0);
    assert_eq!(by_field("metadata.namespace=island").await, 0);
    assert_eq!(by_field("metadata.namespace=zoo").await, 0);
    assert_eq!(by_field("metadata.namespace=default,metadata.name=a").await, 1);
    let metadata = everywhere.list_metadata(&ListParams::default()).await.unwrap();
    assert!(
        metadata
            .iter()
            .all(|object| object.metadata.namespace.as_deref() == Some("default"))
    );

    let paged = everywhere.list(&ListParams::default().limit(1)).await.unwrap();
    let next = ListParams::default()
        .limit(1)
        .continue_token(&paged.metadata.continue_.unwrap());
    assert_eq!(names(everywhere.list(&next).await.unwrap())[0].1, "b");

    inside.delete("b", &DeleteParams::default()).await.unwrap();
    assert_eq!(code(real.get("b").await), 404);
    let options = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    inside
        .delete_collection(&options, &ListParams::default())
        .await
        .unwrap();
    assert_eq!(names(real.list(&ListParams::default()).await.unwrap()), []);
    // Of the real namespace called default too.
    for neighbour in &neighbours {
        assert_eq!(neighbour.get("a").await.unwrap().data.unwrap()["k"], "theirs");
    }
}

#[tokio::test]
async fn with_kept_names_the_namespace_is_called_as_it_is() {
    let world = world().await;
    let inside = maps(&world.kept, "island");
    assert_eq!(world.kept.default_namespace(), "island");
    let mut written = map("a", &[]);
    written.metadata.namespace = Some("island".into());
    let created = inside.create(&PostParams::default(), &written).await.unwrap();
    assert_eq!(created.metadata.namespace.as_deref(), Some("island"));
    let everywhere: Api<ConfigMap> = Api::all(world.kept.clone());
    assert_eq!(
        names(everywhere.list(&ListParams::default()).await.unwrap()),
        [("island".to_owned(), "a".to_owned())]
    );
    for other in ["default", "zoo"] {
        assert_eq!(code(maps(&world.kept, other).get("a").await), 404);
        assert_eq!(
            code(
                maps(&world.kept, other)
                    .create(&PostParams::default(), &map("x", &[]))
                    .await
            ),
            404
        );
        assert_eq!(
            maps(&world.kept, other)
                .list(&ListParams::default())
                .await
                .unwrap()
                .items
                .len(),
            0
        );
        written.metadata.namespace = Some(other.into());
        let path = "/api/v1/namespaces/island/configmaps";
        let refused =
            Raw::new("POST", path).body("application/json", serde_json::to_string(&written).unwrap());
        assert_eq!(ask(&world.kept, &refused).await.unwrap().code, 400);
    }
    let namespaces: Api<Namespace> = Api::all(world.kept.clone());
    assert_eq!(
        names(namespaces.list(&ListParams::default()).await.unwrap()),
        [(String::new(), "island".to_owned())]
    );
}

#[tokio::test]
async fn a_watch_tells_of_the_namespace_only() {
    let world = world().await;
    let events = |api: Api<ConfigMap>, version: &str| {
        let version = version.to_owned();
        async move {
            api.watch(&WatchParams::default(), &version)
                .await
                .unwrap()
                .boxed()
        }
    };
    let everywhere: Api<ConfigMap> = Api::all(world.island.clone());
    let mut all = events(everywhere.clone(), "0").await;
    let mut missing = events(maps(&world.island, "zoo"), "0").await;
    for (namespace, name) in [("zoo", "z"), ("default", "d"), ("island", "i"), ("zoo", "y")] {
        maps(&world.host, namespace)
            .create(&PostParams::default(), &map(name, &[]))
            .await
            .unwrap();
    }
    maps(&world.host, "island")
        .delete("i", &DeleteParams::default())
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let event = tokio::time::timeout(Duration::from_secs(10), all.try_next())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        match event {
            WatchEvent::Added(map) => seen.push(format!(
                "added {} {}",
                map.metadata.namespace.unwrap(),
                map.metadata.name.unwrap()
            )),
            WatchEvent::Deleted(map) => seen.push(format!(
                "deleted {} {}",
                map.metadata.namespace.unwrap(),
                map.metadata.name.unwrap()
            )),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["added default i", "deleted default i"]);
    quiet(&mut missing).await;
    // In the form of a table, as kubectl asks for it, and in lines although it is to be pretty.
    maps(&world.island, "default")
        .create(&PostParams::default(), &map("t", &[]))
        .await
        .unwrap();
    let watch = Raw::new("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1&pretty=true")
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let table = ask(&world.island, &watch).await.unwrap();
    let row: Value = serde_json::from_str(table.text.lines().next().unwrap()).unwrap();
    assert_eq!(
        row["object"]["rows"][0]["object"]["metadata"]["namespace"], "default",
        "{}",
        table.text
    );
    let stale = Raw::new(
        "GET",
        "/api/v1/configmaps?watch=1&resourceVersion=1&timeoutSeconds=1",
    );
    let stale = ask(&world.island, &stale).await.unwrap();
    assert!(!stale.text.contains("\"zoo\""), "{}", stale.text);
}

#[tokio::test]
async fn subresources_are_those_of_the_own_objects() {
    let world = world().await;
    for namespace in ["zoo", "default"] {
        let other: Api<Deployment> = Api::namespaced(world.host.clone(), namespace);
        other.create(&PostParams::default(), &deployment()).await.unwrap();
    }
    let inside: Api<Deployment> = Api::namespaced(world.island.clone(), "default");
    inside
        .create(&PostParams::default(), &deployment())
        .await
        .unwrap();
    let scale = inside
        .patch_scale(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"replicas": 5}})),
        )
        .await
        .unwrap();
    assert_eq!(
        (scale.metadata.namespace.as_deref(), scale.spec.unwrap().replicas),
        (Some("default"), Some(5))
    );
    let mut scale = inside.get_scale("web").await.unwrap();
    assert_eq!(scale.metadata.namespace.as_deref(), Some("default"));
    scale.spec.as_mut().unwrap().replicas = Some(4);
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let put = Raw::new("PUT", path).body("application/json", serde_json::to_string(&scale).unwrap());
    assert_eq!(
        ask(&world.island, &put).await.unwrap().json()["metadata"]["namespace"],
        "default"
    );
    let status =
        Patch::Merge(json!({"metadata": {"namespace": "default"}, "status": {"observedGeneration": 7}}));
    let patched = inside
        .patch_status("web", &PatchParams::default(), &status)
        .await
        .unwrap();
    assert_eq!(patched.metadata.namespace.as_deref(), Some("default"));
    let real: Deployment = Api::namespaced(world.host.clone(), "island")
        .get("web")
        .await
        .unwrap();
    assert_eq!(real.spec.unwrap().replicas, Some(4));
    assert_eq!(real.status.unwrap().observed_generation, Some(7));
    for namespace in ["zoo", "default"] {
        let other: Deployment = Api::namespaced(world.host.clone(), namespace)
            .get("web")
            .await
            .unwrap();
        assert_eq!(
            (
                other.spec.unwrap().replicas,
                other.status.unwrap().observed_generation
            ),
            (Some(1), None)
        );
    }

    let pods: Api<Pod> = Api::namespaced(world.island.clone(), "default");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                     "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
        .await
        .unwrap();
    let binding =
        json!({"metadata": {"name": "p", "namespace": "default"}, "target": {"kind": "Node", "name": "n"}});
    let bind =
        Raw::new("POST", "/api/v1/namespaces/default/pods/p/binding").body("application/json", binding);
    assert_eq!(ask(&world.island, &bind).await.unwrap().code, 201);
    let real: Api<Pod> = Api::namespaced(world.host.clone(), "island");
    assert_eq!(
        real.get("p").await.unwrap().spec.unwrap().node_name.as_deref(),
        Some("n")
    );
    // Without a kubelet there is no log, but an answer that says so in the terms of this cluster.
    assert!((400..600).contains(&code(pods.logs("p", &Default::default()).await)));
    let eviction = json!({"metadata": {"name": "p", "namespace": "default"}, "deleteOptions": {"gracePeriodSeconds": 0}});
    let evict =
        Raw::new("POST", "/api/v1/namespaces/default/pods/p/eviction").body("application/json", eviction);
    assert_eq!(ask(&world.island, &evict).await.unwrap().code, 201);
    assert_eq!(code(real.get("p").await), 404);
    assert_eq!(code(pods.evict("p", &EvictParams::default()).await), 404);

    let accounts: Api<ServiceAccount> = Api::namespaced(world.island.clone(), "default");
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("robot".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let token =
        json!({"metadata": {"namespace": "default"}, "spec": {"audiences": [], "expirationSeconds": 600}});
    let ask_token = Raw::new("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token")
        .body("application/json", token);
    let token = ask(&world.island, &ask_token).await.unwrap();
    assert_eq!(
        (token.code.as_u16(), &token.json()["metadata"]["namespace"]),
        (201, &json!("default")),
        "{}",
        token.text
    );

    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "default"}});
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let created = ask(
        &world.island,
        &Raw::new("POST", widgets).body("application/json", widget),
    )
    .await
    .unwrap();
    assert_eq!(created.json()["metadata"]["namespace"], "default");
    let all = ask(&world.island, &Raw::new("GET", "/apis/example.com/v1/widgets"))
        .await
        .unwrap();
    assert_eq!(all.json()["items"][0]["metadata"]["namespace"], "default");
}

fn deployment() -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
                 "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }))
    .unwrap()
}

#[tokio::test]
async fn events_are_about_objects_of_the_namespace() {
    let world = world().await;
    let created = maps(&world.island, "default")
        .create(&PostParams::default(), &map("a", &[]))
        .await
        .unwrap();
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
    let made = inside.create(&PostParams::default(), &event("e")).await.unwrap();
    assert_eq!(made.involved_object.namespace.as_deref(), Some("default"));
    let real: Event = Api::namespaced(world.host.clone(), "island")
        .get("e")
        .await
        .unwrap();
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
    for name in ["default", "zoo", "new"] {
        assert_eq!(code(namespaces.delete(name, &DeleteParams::default()).await), 403);
        let patch = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
        assert_eq!(
            code(namespaces.patch(name, &PatchParams::default(), &patch).await),
            403
        );
    }
    let mut watch = namespaces
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    namespace(&world.host, "another").await;
    let Some(WatchEvent::Added(seen)) = watch.try_next().await.unwrap() else {
        panic!("no namespace is told")
    };
    assert_eq!(seen.metadata.name.as_deref(), Some("default"));
    quiet(&mut watch).await;

    // What is about the server is the same for all.
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
    assert_eq!(
        ask(&world.island, &Raw::new("GET", "/readyz"))
            .await
            .unwrap()
            .text,
        "ok"
    );
    assert_eq!(
        ask(&world.island, &Raw::new("GET", "/metrics"))
            .await
            .unwrap()
            .code,
        403
    );
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
    roles.create(&PostParams::default(), &role).await.unwrap();
    let inside: Api<RoleBinding> = Api::namespaced(world.island.clone(), "default");
    inside.create(&PostParams::default(), &binding).await.unwrap();
    let real: RoleBinding = Api::namespaced(world.host.clone(), "island")
        .get("b")
        .await
        .unwrap();
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
        assert!(started.elapsed() < Duration::from_secs(10), "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_crd_that_comes_later_is_found_and_one_that_goes_is_missed() {
    let world = world().await;
    let path = "/apis/example.com/v1/gadgets";
    assert_eq!(
        ask(&world.island, &Raw::new("GET", path)).await.unwrap().code,
        404
    );
    world
        ._plane
        .install_crd(crd("gadgets", "Gadget", "Namespaced"))
        .await
        .unwrap();
    let started = std::time::Instant::now();
    while ask(&world.island, &Raw::new("GET", path)).await.unwrap().code != 200 {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "gadgets are not found"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
