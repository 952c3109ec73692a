use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use super::ControlPlaneError;
use super::api_server::get;

const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Applies a CRD and waits until all its versions can be listed. `Established` alone is too early:
/// the API server sets it a moment before it serves the new path.
pub(super) async fn install(client: &Client, crd: &Value) -> Result<(), ControlPlaneError> {
    let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(ControlPlaneError::Unsupported(
            "a CRD without a metadata.name".to_owned(),
        ));
    }
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    let installed = definitions
        .patch(
            &name,
            &PatchParams::apply("mcr-testkit").force(),
            &Patch::Apply(crd),
        )
        .await
        .map_err(ControlPlaneError::api(format!("installing CRD {name}")))?;

    let started = Instant::now();
    for version in installed.spec.versions.iter().filter(|version| version.served) {
        let path = format!(
            "/apis/{}/{}/{}?limit=1",
            installed.spec.group, version.name, installed.spec.names.plural
        );
        while let Err(error) = get(client, &path).await {
            if started.elapsed() > SERVED_WITHIN {
                return Err(ControlPlaneError::NoEffect {
                    what: format!("CRD {name} {}", version.name),
                    after: SERVED_WITHIN,
                    hint: format!(": {error}"),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
