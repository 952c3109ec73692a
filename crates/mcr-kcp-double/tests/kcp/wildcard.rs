use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{
    BINDING, BINDINGS, IN_DEFAULT, WIDGETS, bind, call, create, delete, get, merge, names, post, until,
    watch, widget, worlds,
};

#[tokio::test]
async fn pages_and_selectors_work() {
    for world in worlds(1).await {
        let provider = world.provider("pages", json!([])).await;
        let (one, url) = world.consumer("pages-one", &provider, json!([])).await;
        let (two, _) = world.consumer("pages-two", &provider, json!([])).await;
        for (consumer, name) in [(&one, "a"), (&one, "b"), (&two, "c")] {
            let mut object = widget(name);
            object["metadata"]["labels"] = json!({ "is": name });
            create(&consumer.client, IN_DEFAULT, &object).await;
        }
        let all = world.at(&format!("{url}/clusters/*"));
        let mut found = Vec::new();
        let mut path = format!("{WIDGETS}?limit=1");
        loop {
            let page = get(&all, &path).await;
            assert_eq!(page.code, 200, "{page:?}");
            found.extend(names(&page));
            match page.json["metadata"]["continue"].as_str() {
                Some(token) if !token.is_empty() => path = format!("{WIDGETS}?limit=1&continue={token}"),
                _ => break,
            }
        }
        found.sort();
        assert_eq!(found, ["a", "b", "c"]);
        assert_eq!(
            names(&get(&all, &format!("{WIDGETS}?labelSelector=is%3Dc")).await),
            ["c"]
        );
        let by_name = format!("{WIDGETS}?fieldSelector=metadata.name%3Db");
        assert_eq!(names(&get(&all, &by_name).await), ["b"]);
    }
}

#[tokio::test]
async fn a_namespace_is_refused_for_all_workspaces() {
    for world in worlds(1).await {
        let provider = world.provider("namespaced", json!([])).await;
        let (one, url) = world.consumer("namespaced-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("w")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        for path in [IN_DEFAULT.to_owned(), format!("{IN_DEFAULT}?watch=true")] {
            let answer = get(&all, &path).await;
            assert_eq!(answer.code, 400, "{answer:?}");
            assert!(
                answer.text.contains("required to be cross-namespace"),
                "{answer:?}"
            );
        }
        let list = get(
            &all,
            &format!("{WIDGETS}?fieldSelector=metadata.namespace%3Ddefault"),
        )
        .await;
        assert_eq!((list.code, names(&list).len()), (200, 0));
        // With the id of the workspace both work.
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        assert_eq!(names(&get(&scoped, IN_DEFAULT).await), ["w"]);
        let by_namespace = format!("{WIDGETS}?fieldSelector=metadata.namespace%3Ddefault");
        assert_eq!(names(&get(&scoped, &by_namespace).await), ["w"]);
    }
}

#[tokio::test]
async fn one_object_cannot_be_read_or_created_across_workspaces() {
    for world in worlds(1).await {
        let claim = json!([{ "group": "", "resource": "namespaces", "verbs": ["*"] }]);
        let provider = world.provider("single", claim).await;
        let (one, url) = world.consumer("single-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("w")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        assert_eq!(get(&all, &format!("{IN_DEFAULT}/w")).await.code, 404);
        assert_eq!(post(&all, IN_DEFAULT, &widget("x")).await.code, 404);
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "everywhere" } });
        assert_eq!(post(&all, "/api/v1/namespaces", &namespace).await.code, 404);
    }
}

#[tokio::test]
async fn a_streaming_list_ends_with_a_bookmark_and_goes_on() {
    for world in worlds(1).await {
        let provider = world.provider("stream", json!([])).await;
        let (one, url) = world.consumer("stream-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("w")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let query =
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let mut events = watch(&all, &format!("{WIDGETS}?{query}")).await;
        let event = events.next().await.unwrap();
        assert_eq!(
            (&event["type"], &event["object"]["metadata"]["name"]),
            (&json!("ADDED"), &json!("w"))
        );
        let end = events.find(|event| event["type"] == "BOOKMARK").await;
        assert_eq!(
            end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
            "true"
        );
        merge(
            &one.client,
            &format!("{IN_DEFAULT}/w"),
            &json!({ "spec": { "size": 2 } }),
        )
        .await;
        events
            .find(|event| event["type"] == "MODIFIED" && event["object"]["spec"]["size"] == 2)
            .await;
        delete(&one.client, &format!("{IN_DEFAULT}/w")).await;
        let gone = events.find(|event| event["type"] == "DELETED").await;
        assert_eq!(
            gone["object"]["metadata"]["annotations"]["kcp.io/cluster"],
            one.id
        );
    }
}

#[tokio::test]
async fn tables_and_metadata_are_served_and_protobuf_is_not() {
    for world in worlds(1).await {
        let provider = world.provider("forms", json!([])).await;
        let (one, url) = world.consumer("forms-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("w")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let ask = async |accept: &str| call(&all, "GET", WIDGETS, "", accept, &Value::Null).await;
        let table = ask("application/json;as=Table;g=meta.k8s.io;v=v1").await;
        assert_eq!(table.json["kind"], "Table", "{table:?}");
        let metadata = ask("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").await;
        let item = &metadata.json["items"][0]["metadata"];
        assert_eq!(item["annotations"]["kcp.io/cluster"], one.id, "{metadata:?}");
        assert_eq!(ask("application/vnd.kubernetes.protobuf").await.code, 406);
    }
}

#[tokio::test]
async fn a_resource_that_nobody_binds_has_no_version_and_a_dead_watch() {
    for world in worlds(1).await {
        let provider = world.provider("dead", json!([])).await;
        // A binding brings the URL; after unbinding the virtual workspace still answers.
        let (one, url) = world.consumer("dead-one", &provider, json!([])).await;
        delete(&one.client, BINDING).await;
        until(&one.client, BINDING, |answer| answer.code == 404).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let list = until(&all, WIDGETS, |list| {
            list.code == 200 && list.json["metadata"].is_null()
        })
        .await;
        assert_eq!(names(&list).len(), 0);
        let mut dead = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        bind(&one, &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("w")).await;
        // Another watch tells the object; the first one never does.
        let mut live = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        live.find(|event| event["type"] == "ADDED").await;
        let silent = tokio::time::timeout(Duration::from_millis(50), dead.next()).await;
        assert!(silent.is_err(), "{silent:?}");
    }
}

#[tokio::test]
async fn a_watch_goes_on_after_the_last_unbinding() {
    for world in worlds(1).await {
        let provider = world.provider("goes-on", json!([])).await;
        let (one, url) = world.consumer("goes-on-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("first")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let mut events = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        delete(&one.client, BINDING).await;
        events.find(|event| event["type"] == "DELETED").await;
        until(&all, WIDGETS, |list| {
            list.code == 200 && list.json["metadata"].is_null()
        })
        .await;
        bind(&one, &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("second")).await;
        let reported = events.find(|event| event["type"] == "ADDED").await;
        assert_eq!(reported["object"]["metadata"]["name"], "second");
    }
}

#[tokio::test]
async fn a_deletion_has_a_timestamp_if_a_finalizer_held_the_object() {
    for world in worlds(1).await {
        let provider = world.provider("deletions", json!([])).await;
        let (one, url) = world.consumer("deletions-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &widget("plain")).await;
        let mut held = widget("held");
        held["metadata"]["finalizers"] = json!(["example.io/hold"]);
        create(&one.client, IN_DEFAULT, &held).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let mut events = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        for (name, is_held) in [("plain", false), ("held", true)] {
            let at = format!("{IN_DEFAULT}/{name}");
            delete(&one.client, &at).await;
            if is_held {
                merge(&one.client, &at, &json!({ "metadata": { "finalizers": null } })).await;
            }
            let gone = events.find(|event| event["type"] == "DELETED").await;
            let metadata = &gone["object"]["metadata"];
            assert_eq!(metadata["name"], name);
            assert_eq!(metadata["deletionTimestamp"].is_string(), is_held, "{gone}");
        }
    }
}

#[tokio::test]
async fn a_type_that_the_export_does_not_have_is_a_404_for_all_and_a_403_for_one() {
    for world in worlds(1).await {
        let provider = world.provider("foreign", json!([])).await;
        let (one, url) = world.consumer("foreign-one", &provider, json!([])).await;
        let all = world.at(&format!("{url}/clusters/*"));
        assert_eq!(get(&all, "/api/v1/namespaces").await.code, 404);
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        assert_eq!(get(&scoped, "/api/v1/namespaces").await.code, 403);
    }
}

#[tokio::test]
async fn bindings_are_readable_and_not_writable() {
    for world in worlds(1).await {
        let provider = world.provider("readable", json!([])).await;
        let (one, url) = world.consumer("readable-one", &provider, json!([])).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let list = get(&all, BINDINGS).await;
        assert_eq!(names(&list), ["widgets"], "{list:?}");
        let item = &list.json["items"][0]["metadata"]["annotations"];
        assert_eq!(
            (&item["kcp.io/cluster"], &item["kcp.io/path"]),
            (&json!(one.id), &json!(one.path))
        );
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        let labels = json!({ "metadata": { "labels": { "a": "b" } } });
        assert_eq!(merge(&scoped, BINDING, &labels).await.code, 403);
        assert_eq!(get(&scoped, BINDING).await.code, 200);
    }
}
