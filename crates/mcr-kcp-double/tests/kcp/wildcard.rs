use std::time::Duration;

use serde_json::json;

use crate::world::{
    BINDING, IN_DEFAULT, WIDGETS, bind, create, delete, get, merge, names, until, watch, widget, worlds,
};

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
        // Another watch has the object; the first one never does.
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
