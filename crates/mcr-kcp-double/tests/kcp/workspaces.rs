use serde_json::json;

use crate::world::{
    BINDING, BINDINGS, IN_DEFAULT, WIDGETS, condition, create, delete, get, merge, until, watch, widget,
    worlds,
};

const WORKSPACES: &str = "/apis/tenancy.kcp.io/v1alpha1/workspaces";

#[tokio::test]
async fn a_deleted_workspace_keeps_its_bindings_until_its_objects_are_gone() {
    for world in worlds(1).await {
        let root = world.at(&world.url("root"));
        let provider = world.provider("deleted", json!([])).await;
        let (one, url) = world.consumer("deleted-one", &provider, json!([])).await;
        let mut held = widget("held");
        held["metadata"]["finalizers"] = json!(["example.io/hold"]);
        create(&one.client, IN_DEFAULT, &held).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let mut bindings = watch(&all, &format!("{BINDINGS}?watch=true")).await;
        let mut widgets = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        let at = format!("{WORKSPACES}/{}", one.path.strip_prefix("root:").unwrap());
        delete(&root, &at).await;
        widgets
            .find(|event| event["object"]["metadata"]["deletionTimestamp"].is_string())
            .await;
        assert!(get(&root, &at).await.json["metadata"]["deletionTimestamp"].is_string());
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        let binding = get(&scoped, BINDING).await;
        assert_eq!(binding.code, 200, "{binding:?}");
        assert!(
            binding.json["metadata"]["deletionTimestamp"].is_null(),
            "{binding:?}"
        );
        assert_eq!(condition(&binding.json, "Ready"), "True");
        let release = json!({ "metadata": { "finalizers": null } });
        merge(&scoped, &format!("{IN_DEFAULT}/held"), &release).await;
        bindings
            .find(|event| event["object"]["metadata"]["deletionTimestamp"].is_string())
            .await;
        bindings.find(|event| event["type"] == "DELETED").await;
        until(&root, &at, |answer| answer.code == 404).await;
        until(&provider.client, crate::world::SLICE, |answer| {
            answer.json["status"]["endpoints"].is_null()
        })
        .await;
    }
}

#[tokio::test]
async fn a_type_has_both_kinds_of_urls() {
    for world in worlds(1).await {
        let provider = world.provider("types", json!([])).await;
        let of_type = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": { "name": "bound" },
            "spec": {
                "extend": { "with": [{ "name": "universal", "path": "root" }] },
            },
        });
        create(
            &provider.client,
            "/apis/tenancy.kcp.io/v1alpha1/workspacetypes",
            &of_type,
        )
        .await;
        let at = "/apis/tenancy.kcp.io/v1alpha1/workspacetypes/bound";
        let written = until(&provider.client, at, |answer| {
            answer.json["status"]["virtualWorkspaces"].is_array()
        })
        .await;
        let urls = written.json["status"]["virtualWorkspaces"].as_array().unwrap();
        for kind in ["initializing", "terminating"] {
            assert!(urls.iter().any(|url| url["type"] == kind), "{urls:?}");
        }
    }
}
