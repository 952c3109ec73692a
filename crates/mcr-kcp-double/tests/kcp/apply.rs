use serde_json::json;

use crate::world::{IN_DEFAULT, call, create, get, merge, widget, worlds};

const APPLY: &str = "application/apply-patch+yaml";

#[tokio::test]
async fn an_apply_in_a_virtual_workspace_keeps_dropped_fields() {
    for world in worlds(1).await {
        let provider = world.provider("apply", json!([])).await;
        let (one, url) = world.consumer("apply-one", &provider, json!([])).await;
        let path = format!("{IN_DEFAULT}/w?fieldManager=test&force=true");
        let mut both = widget("w");
        both["spec"] = json!({ "a": 1, "b": 2 });
        let mut less = widget("w");
        less["spec"] = json!({ "a": 3 });
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        for object in [&both, &less] {
            let answer = call(&scoped, "PATCH", &path, APPLY, "", object).await;
            assert!(matches!(answer.code, 200 | 201), "{answer:?}");
        }
        let live = get(&scoped, &format!("{IN_DEFAULT}/w")).await;
        assert_eq!(live.json["spec"], json!({ "a": 3, "b": 2 }));
        let managers = live.json["metadata"]["managedFields"].as_array().unwrap();
        assert!(
            managers.iter().all(|entry| entry["operation"] == "Update"),
            "{managers:?}"
        );

        // In the workspace itself it is a real apply.
        let path = format!("{IN_DEFAULT}/direct?fieldManager=test&force=true");
        for object in [&both, &less] {
            let mut object = object.clone();
            object["metadata"]["name"] = "direct".into();
            call(&one.client, "PATCH", &path, APPLY, "", &object).await;
        }
        let live = get(&one.client, &format!("{IN_DEFAULT}/direct")).await;
        assert_eq!(live.json["spec"], json!({ "a": 3 }));
    }
}

#[tokio::test]
async fn writes_with_an_id_work_and_a_stale_one_is_a_conflict() {
    for world in worlds(1).await {
        let provider = world.provider("writes", json!([])).await;
        let (one, url) = world.consumer("writes-one", &provider, json!([])).await;
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        create(&scoped, IN_DEFAULT, &widget("w")).await;
        let path = format!("{IN_DEFAULT}/w");
        let first = get(&scoped, &path).await;
        let patched = merge(
            &scoped,
            &path,
            &json!({ "spec": { "size": null, "color": "red" } }),
        )
        .await;
        assert_eq!(patched.json["spec"], json!({ "color": "red" }));
        let status = merge(
            &scoped,
            &format!("{path}/status"),
            &json!({ "status": { "phase": "Up" } }),
        )
        .await;
        assert_eq!(status.json["status"]["phase"], "Up", "{status:?}");
        let add = json!([{ "op": "add", "path": "/spec/size", "value": 5 }]);
        let added = call(&scoped, "PATCH", &path, "application/json-patch+json", "", &add).await;
        assert_eq!(added.json["spec"]["size"], 5, "{added:?}");
        let stale = call(&scoped, "PUT", &path, "application/json", "", &first.json).await;
        assert_eq!(stale.code, 409, "{stale:?}");
        assert_eq!(get(&scoped, &format!("{path}/scale")).await.code, 404);
        assert_eq!(crate::world::delete(&scoped, &path).await.code, 200);
    }
}
