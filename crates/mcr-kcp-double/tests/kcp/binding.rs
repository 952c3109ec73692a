use serde_json::json;

use crate::world::{
    BINDING, BINDINGS, IN_DEFAULT, WIDGETS, binding, condition, create, delete, get, merge, until, watch,
    widget, worlds,
};

#[tokio::test]
async fn a_binding_is_added_empty_then_binding_then_bound_and_ready() {
    for world in worlds(1).await {
        let provider = world.provider("phases", json!([])).await;
        let consumer = world.workspace("phases-one").await;
        let mut events = watch(
            &consumer.client,
            &format!("{BINDINGS}?watch=true&fieldSelector=metadata.name%3Dwidgets"),
        )
        .await;
        create(&consumer.client, BINDINGS, &binding(&provider, json!([]))).await;
        let added = events.find(|event| event["type"] == "ADDED").await;
        assert!(
            added["object"]["status"]["phase"]
                .as_str()
                .unwrap_or_default()
                .is_empty(),
            "{added}"
        );
        let phase = |event: &serde_json::Value| event["object"]["status"]["phase"].clone();
        let first = events
            .find(|event| phase(event).as_str().is_some_and(|phase| !phase.is_empty()))
            .await;
        assert_eq!(phase(&first), "Binding");
        let bound = events.find(|event| phase(event) == "Bound").await;
        let bound = if condition(&bound["object"], "Ready") == "True" {
            bound
        } else {
            events
                .find(|event| condition(&event["object"], "Ready") == "True")
                .await
        };
        let object = &bound["object"];
        assert_eq!(condition(object, "InitialBindingCompleted"), "True");
        assert_eq!(condition(object, "APIExportValid"), "True");
        assert_eq!(object["status"]["apiExportClusterName"], provider.id);
        let resource = &object["status"]["boundResources"][0];
        assert_eq!(
            (&resource["group"], &resource["resource"]),
            (&json!("example.io"), &json!("widgets"))
        );
        let identity = get(&provider.client, "/apis/apis.kcp.io/v1alpha2/apiexports/widgets").await;
        assert_eq!(
            resource["schema"]["identityHash"],
            identity.json["status"]["identityHash"]
        );
        let finalizers = object["metadata"]["finalizers"].as_array().unwrap();
        assert!(finalizers.contains(&json!("apis.kcp.io/apibinding-finalizer")));
        // Its claims are applied before or after that.
        until(&consumer.client, BINDING, |answer| {
            condition(&answer.json, "PermissionClaimsApplied") == "True"
        })
        .await;
    }
}

#[tokio::test]
async fn an_unbinding_waits_for_finalizers_and_objects_go_before_the_binding() {
    for world in worlds(1).await {
        let provider = world.provider("held", json!([])).await;
        let (one, url) = world.consumer("held-one", &provider, json!([])).await;
        let mut held = widget("held");
        held["metadata"]["finalizers"] = json!(["example.io/hold"]);
        create(&one.client, IN_DEFAULT, &held).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let mut bindings = watch(&all, &format!("{BINDINGS}?watch=true")).await;
        let mut widgets = watch(&all, &format!("{WIDGETS}?watch=true")).await;
        delete(&one.client, BINDING).await;
        let leaving = bindings
            .find(|event| condition(&event["object"], "BindingResourceDeleteSuccess") == "False")
            .await;
        assert!(leaving["object"]["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(condition(&leaving["object"], "Ready"), "True");
        let mut marked = widgets
            .find(|event| event["object"]["metadata"]["deletionTimestamp"].is_string())
            .await;
        let cluster = &marked["object"]["metadata"]["annotations"]["kcp.io/cluster"];
        assert_eq!(*cluster, one.id);
        // The provider releases it through the virtual workspace.
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        let release = json!({ "metadata": { "finalizers": null } });
        let released = merge(&scoped, &format!("{IN_DEFAULT}/held"), &release).await;
        assert_eq!(released.code, 200, "{released:?}");
        if marked["type"] != "DELETED" {
            marked = widgets.find(|event| event["type"] == "DELETED").await;
        }
        let gone = bindings.find(|event| event["type"] == "DELETED").await;
        let version = |event: &serde_json::Value| -> u64 {
            event["object"]["metadata"]["resourceVersion"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        };
        assert!(version(&marked) < version(&gone));
        until(&scoped, IN_DEFAULT, |answer| answer.code == 403).await;
    }
}
