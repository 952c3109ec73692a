use serde_json::json;

use crate::world::{SLICE, condition, delete, get, until, worlds};

const EXPORTS: &str = "/apis/apis.kcp.io/v1alpha2/apiexports";

#[tokio::test]
async fn an_export_has_an_identity() {
    for world in worlds(1).await {
        let provider = world.provider("identity", json!([])).await;
        let path = format!("{EXPORTS}/widgets");
        let export = until(&provider.client, &path, |answer| {
            condition(&answer.json, "IdentityValid") == "True"
        })
        .await;
        assert_eq!(export.json["status"]["identityHash"].as_str().unwrap().len(), 64);
        let secret = &export.json["spec"]["identity"]["secretRef"];
        assert_eq!(*secret, json!({ "name": "widgets", "namespace": "kcp-system" }));
        assert_eq!(
            export.json["metadata"]["annotations"]["kcp.io/path"],
            provider.path
        );
    }
}

#[tokio::test]
async fn a_deleted_export_takes_its_slice_along() {
    // A real kcp leaves that to its garbage collector, which takes its time.
    for world in worlds(1).await.into_iter().take(1) {
        let provider = world.provider("deleted", json!([])).await;
        let (one, _) = world.consumer("deleted-one", &provider, json!([])).await;
        delete(&provider.client, &format!("{EXPORTS}/widgets")).await;
        until(&provider.client, SLICE, |answer| answer.code == 404).await;
        let binding = get(&one.client, crate::world::BINDING).await;
        assert_eq!(condition(&binding.json, "APIExportValid"), "False");
    }
}
