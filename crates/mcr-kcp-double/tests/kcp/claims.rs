use serde_json::{Value, json};

use crate::world::{
    BINDING, bind, claim, condition, config_map, create, delete, get, merge, names, post, until, watch,
    worlds,
};

const MAPS: &str = "/api/v1/configmaps";
const IN_DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";

fn has(name: &str) -> impl Fn(&crate::world::Answer) -> bool {
    let name = name.to_owned();
    move |list| names(list).contains(&name)
}

#[tokio::test]
async fn an_object_created_through_the_virtual_workspace_is_labelled_at_once() {
    for world in worlds(1).await {
        let (claims, accepted) = claim();
        let provider = world.provider("at-once", claims).await;
        let (one, url) = world.consumer("at-once-one", &provider, accepted).await;
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        let made = create(&scoped, IN_DEFAULT, &config_map("made")).await;
        let labels = made.json["metadata"]["labels"].as_object().unwrap();
        assert!(
            labels
                .keys()
                .any(|key| key.starts_with("claimed.internal.apis.kcp.io/")),
            "{made:?}"
        );
        assert_eq!(get(&scoped, &format!("{IN_DEFAULT}/made")).await.code, 200);
    }
}

#[tokio::test]
async fn a_claim_that_is_not_accepted_shows_nothing() {
    for world in worlds(1).await {
        let (claims, mut rejected) = claim();
        rejected[0]["state"] = "Rejected".into();
        let provider = world.provider("rejected", claims).await;
        let (one, url) = world.consumer("rejected-one", &provider, rejected).await;
        create(&one.client, IN_DEFAULT, &config_map("secret")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let list = until(&all, MAPS, |list| list.code == 200).await;
        assert_eq!(names(&list).len(), 0);
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        assert_eq!(get(&scoped, &format!("{IN_DEFAULT}/secret")).await.code / 100, 4);
    }
}

#[tokio::test]
async fn a_claim_added_later_is_in_discovery_and_empty_until_it_is_accepted() {
    for world in worlds(1).await {
        let (claims, accepted) = claim();
        let provider = world.provider("added", json!([])).await;
        let (one, url) = world.consumer("added-one", &provider, json!([])).await;
        create(&one.client, IN_DEFAULT, &config_map("old")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        merge(
            &provider.client,
            EXPORT,
            &json!({ "spec": { "permissionClaims": claims } }),
        )
        .await;
        let list = until(&all, MAPS, |list| list.code == 200).await;
        assert_eq!(names(&list).len(), 0);
        assert!(get(&all, "/api/v1").await.text.contains("configmaps"));
        let binding = get(&one.client, BINDING).await;
        assert_eq!(condition(&binding.json, "Ready"), "True");
        merge(
            &one.client,
            BINDING,
            &json!({ "spec": { "permissionClaims": accepted } }),
        )
        .await;
        until(&all, MAPS, has("old")).await;
    }
}

#[tokio::test]
async fn a_selector_restricts_a_claim_and_its_labels_are_added_on_create() {
    for world in worlds(1).await {
        let (claims, mut accepted) = claim();
        accepted[0]["selector"] = json!({ "matchLabels": { "shared": "yes" } });
        let provider = world.provider("selector", claims).await;
        let (one, url) = world.consumer("selector-one", &provider, accepted).await;
        let mut shared = config_map("shared");
        shared["metadata"]["labels"] = json!({ "shared": "yes" });
        create(&one.client, IN_DEFAULT, &config_map("own")).await;
        create(&one.client, IN_DEFAULT, &shared).await;
        let all = world.at(&format!("{url}/clusters/*"));
        let list = until(&all, MAPS, has("shared")).await;
        assert_eq!(names(&list), ["shared"]);
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        let made = create(&scoped, IN_DEFAULT, &config_map("made")).await;
        assert_eq!(made.json["metadata"]["labels"]["shared"], "yes", "{made:?}");
    }
}

#[tokio::test]
async fn verbs_are_those_of_the_export_and_of_the_binding() {
    for world in worlds(1).await {
        let (mut claims, mut accepted) = claim();
        claims[0]["verbs"] = json!(["get", "list", "watch", "create"]);
        accepted[0]["verbs"] = json!(["get", "list", "watch", "delete"]);
        let provider = world.provider("verbs", claims).await;
        let (one, url) = world.consumer("verbs-one", &provider, accepted).await;
        create(&one.client, IN_DEFAULT, &config_map("a")).await;
        let scoped = world.at(&format!("{url}/clusters/{}", one.id));
        until(&scoped, IN_DEFAULT, has("a")).await;
        assert_eq!(post(&scoped, IN_DEFAULT, &config_map("b")).await.code, 403);
        assert_eq!(delete(&scoped, &format!("{IN_DEFAULT}/a")).await.code, 403);
    }
}

#[tokio::test]
async fn a_claim_on_events_serves_both_groups() {
    for world in worlds(1).await {
        let claim = json!({ "group": "", "resource": "events", "verbs": ["*"] });
        let mut accepted = claim.clone();
        accepted["state"] = "Accepted".into();
        accepted["selector"] = json!({ "matchAll": true });
        let provider = world.provider("events", json!([claim])).await;
        let (_, url) = world.consumer("events-one", &provider, json!([accepted])).await;
        let all = world.at(&format!("{url}/clusters/*"));
        for path in ["/api/v1/events", "/apis/events.k8s.io/v1/events"] {
            until(&all, path, |answer| answer.code == 200).await;
        }
    }
}

#[tokio::test]
async fn a_claim_taken_back_hides_the_objects() {
    for world in worlds(1).await {
        let (claims, accepted) = claim();
        let provider = world.provider("back", claims).await;
        let (one, url) = world.consumer("back-one", &provider, accepted.clone()).await;
        create(&one.client, IN_DEFAULT, &config_map("a")).await;
        let all = world.at(&format!("{url}/clusters/*"));
        until(&all, MAPS, has("a")).await;
        let mut events = watch(&all, &format!("{MAPS}?watch=true")).await;
        let mut rejected = accepted;
        rejected[0]["state"] = "Rejected".into();
        merge(
            &one.client,
            BINDING,
            &json!({ "spec": { "permissionClaims": rejected } }),
        )
        .await;
        until(&all, MAPS, |list| names(list).is_empty()).await;
        let gone = events
            .find(|event| event["type"] == "DELETED" && event["object"]["metadata"]["name"] == "a")
            .await;
        assert!(gone["object"]["metadata"]["deletionTimestamp"].is_null());
        let live: Value = get(&one.client, &format!("{IN_DEFAULT}/a")).await.json;
        assert_eq!(live["data"]["a"], "1");
    }
}

#[tokio::test]
async fn a_claimed_resource_of_another_export_is_dead_without_a_local_binding() {
    for world in worlds(1).await {
        let owner = world.provider("owner", json!([])).await;
        let export = until(&owner.client, EXPORT, |answer| {
            answer.json["status"]["identityHash"].is_string()
        })
        .await;
        let identity = export.json["status"]["identityHash"].clone();
        let claim =
            json!({ "group": "example.io", "resource": "widgets", "verbs": ["*"], "identityHash": identity });
        let mut accepted = claim.clone();
        accepted["state"] = "Accepted".into();
        accepted["selector"] = json!({ "matchAll": true });
        let claiming = world.workspace("claiming").await;
        let mut object = crate::world::export(json!([claim]));
        object["spec"]["resources"] = json!([]);
        create(&claiming.client, "/apis/apis.kcp.io/v1alpha2/apiexports", &object).await;
        let consumer = world.workspace("claiming-one").await;
        let mut binding = crate::world::binding(&claiming, json!([accepted]));
        binding["metadata"]["name"] = "claiming".into();
        create(&consumer.client, crate::world::BINDINGS, &binding).await;
        let at = format!("{}/claiming", crate::world::BINDINGS);
        until(&consumer.client, &at, |answer| {
            answer.json["status"]["phase"] == "Bound"
        })
        .await;
        let url = world.endpoint(&claiming).await;
        let all = world.at(&format!("{url}/clusters/*"));
        until(&all, crate::world::WIDGETS, |list| {
            list.code == 200 && list.json["metadata"].is_null()
        })
        .await;
        bind(&consumer, &owner, json!([])).await;
        create(
            &consumer.client,
            crate::world::IN_DEFAULT,
            &crate::world::widget("w"),
        )
        .await;
        until(&all, crate::world::WIDGETS, has("w")).await;
    }
}

#[tokio::test]
async fn a_claim_of_another_identity_shows_the_objects_of_that_one() {
    const AT: &str = "/apis/apis.kcp.io/v1alpha2/apibindings/claiming";
    for world in worlds(1).await {
        let mut owners = Vec::new();
        for name in ["first", "second"] {
            let owner = world.provider(&format!("identity-{name}"), json!([])).await;
            let export = until(&owner.client, EXPORT, |answer| {
                answer.json["status"]["identityHash"].is_string()
            })
            .await;
            owners.push((owner, export.json["status"]["identityHash"].clone()));
        }
        let claim = |owner: usize| json!({ "group": "example.io", "resource": "widgets", "verbs": ["*"], "identityHash": owners[owner].1 });
        let accepted = |owner: usize| {
            let mut accepted = claim(owner);
            accepted["state"] = "Accepted".into();
            accepted["selector"] = json!({ "matchAll": true });
            json!([accepted])
        };
        let claiming = world.workspace("identity-claiming").await;
        let mut object = crate::world::export(json!([claim(0)]));
        object["spec"]["resources"] = json!([]);
        create(&claiming.client, "/apis/apis.kcp.io/v1alpha2/apiexports", &object).await;
        let mut consumers = Vec::new();
        for (number, (owner, _)) in owners.iter().enumerate() {
            let consumer = world.workspace(&format!("identity-{number}")).await;
            bind(&consumer, owner, json!([])).await;
            let widget = crate::world::widget(&format!("w{number}"));
            create(&consumer.client, crate::world::IN_DEFAULT, &widget).await;
            let mut binding = crate::world::binding(&claiming, accepted(0));
            binding["metadata"]["name"] = "claiming".into();
            create(&consumer.client, crate::world::BINDINGS, &binding).await;
            until(&consumer.client, AT, |answer| {
                answer.json["status"]["phase"] == "Bound"
            })
            .await;
            consumers.push(consumer);
        }
        let url = world.endpoint(&claiming).await;
        let all = world.at(&format!("{url}/clusters/*"));
        until(&all, crate::world::WIDGETS, |list| names(list) == ["w0"]).await;
        let change = json!({ "spec": { "permissionClaims": [claim(1)] } });
        merge(&claiming.client, EXPORT, &change).await;
        until(&all, crate::world::WIDGETS, |list| {
            list.json["metadata"]["resourceVersion"].is_string() && names(list).is_empty()
        })
        .await;
        until(&consumers[1].client, AT, |answer| {
            condition(&answer.json, "PermissionClaimsValid") == "False"
        })
        .await;
        for consumer in &consumers {
            let change = json!({ "spec": { "permissionClaims": accepted(1) } });
            merge(&consumer.client, AT, &change).await;
        }
        until(&all, crate::world::WIDGETS, |list| names(list) == ["w1"]).await;
    }
}
