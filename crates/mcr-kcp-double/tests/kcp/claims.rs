use serde_json::{Value, json};

use crate::world::{BINDING, bind, claim, config_map, create, get, merge, names, until, watch, worlds};

const MAPS: &str = "/api/v1/configmaps";
const IN_DEFAULT: &str = "/api/v1/namespaces/default/configmaps";
const EXPORT: &str = "/apis/apis.kcp.io/v1alpha2/apiexports/widgets";

fn has(name: &str) -> impl Fn(&crate::world::Answer) -> bool {
    let name = name.to_owned();
    move |list| names(list).contains(&name)
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
