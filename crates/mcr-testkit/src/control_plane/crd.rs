use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;

use super::ControlPlaneError;
use super::api_server::get;
use crate::request::send;

const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Applies a CRD and waits until all its versions can be listed. The condition `Established` does not suffice: the API
/// server sets it slightly before it serves the new path.
pub(super) async fn install(client: &Client, crd: &Value) -> Result<(), ControlPlaneError> {
    let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ControlPlaneError::Unsupported(
            "a CRD without a metadata.name".to_owned(),
        ));
    }
    let path = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=mcr-testkit&force=true"
    );
    let installed = send(client, "PATCH", &path, crd).await;
    let installed = installed.map_err(ControlPlaneError::api(format!("installing CRD {name}")))?;
    let spec = &installed["spec"];
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();

    let started = Instant::now();
    let versions = spec["versions"].as_array().into_iter().flatten();
    for version in versions.filter(|version| version["served"] == true) {
        let version = word(&version["name"]);
        let (group, plural) = (word(&spec["group"]), word(&spec["names"]["plural"]));
        let path = format!("/apis/{group}/{version}/{plural}?limit=1");
        while let Err(error) = get(client, &path).await {
            if started.elapsed() > SERVED_WITHIN {
                return Err(ControlPlaneError::NoEffect {
                    what: format!("CRD {name} {version}"),
                    after: SERVED_WITHIN,
                    hint: format!(": {error}"),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
