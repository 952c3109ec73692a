//! All verbs in a cluster that is a namespace, seen from inside and from its host.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Namespace, Pod, ServiceAccount},
};
use kube::{
    Api,
    api::{
        DeleteParams, EvictParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, PropagationPolicy,
        WatchEvent, WatchParams,
    },
};
use serde_json::{Value, json};

use crate::harness::{Raw, ask};

use crate::world::*;

#[tokio::test]
async fn everything_written_and_read_inside_is_in_the_namespace() {
    let world = world().await;
    let (inside, real) = (maps(&world.island, "default"), maps(&world.host, "island"));
    let neighbours = [maps(&world.host, "zoo"), maps(&world.host, "default")];
    for neighbour in &neighbours {
        create(neighbour, &map("a", &[("k", "theirs")])).await;
    }

    let created = create(&inside, &map("a", &[("k", "1")])).await;
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
    let operations = json!([
        {"op": "test", "path": "/metadata/namespace", "value": "default"},
        {"op": "replace", "path": "/metadata/namespace", "value": "default"},
        {"op": "add", "path": "/data/json", "value": "yes"},
    ]);
    let patch = Raw::new("PATCH", "/api/v1/namespaces/default/configmaps/a")
        .body("application/json-patch+json", operations);
    let patched = ask(&world.island, &patch).await.unwrap();
    assert_eq!(
        patched.json()["metadata"]["namespace"],
        "default",
        "{}",
        patched.text
    );
    assert_eq!(real.get("a").await.unwrap().data.unwrap()["json"], "yes");

    // All namespaces are one.
    create(&inside, &map("b", &[])).await;
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
    let created = create(&inside, &written).await;
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
async fn a_watch_reports_of_the_namespace_only() {
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
        create(&maps(&world.host, namespace), &map(name, &[])).await;
    }
    maps(&world.host, "island")
        .delete("i", &DeleteParams::default())
        .await
        .unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        match next(&mut all).await {
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
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["added default i", "deleted default i"]);
    // In the form of a table, as kubectl asks for it, and in lines although it is to be pretty.
    create(&maps(&world.island, "default"), &map("t", &[])).await;
    let watch = Raw::new("GET", "/api/v1/configmaps?watch=1&timeoutSeconds=1&pretty=true")
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json");
    let table = loop {
        // On a busy machine its second may be over before anything is told.
        let table = ask(&world.island, &watch).await.unwrap();
        if !table.text.is_empty() {
            break table;
        }
    };
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
    // Two watches have come and gone since something happened in the namespace that this cluster has not.
    has_been_quiet(&mut missing);
}

#[tokio::test]
async fn subresources_are_those_of_the_own_objects() {
    let world = world().await;
    for namespace in ["zoo", "default"] {
        let other: Api<Deployment> = Api::namespaced(world.host.clone(), namespace);
        create(&other, &deployment()).await;
    }
    let inside: Api<Deployment> = Api::namespaced(world.island.clone(), "default");
    create(&inside, &deployment()).await;
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
    let real = world.both::<Deployment>().1.get("web").await.unwrap();
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
    create(&pods, &serde_json::from_value(pod).unwrap()).await;
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
    create(&accounts, &account).await;
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
    let all = world.get("/apis/example.com/v1/widgets").await;
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
