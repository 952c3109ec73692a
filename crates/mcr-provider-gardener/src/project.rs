//! Looks up the Project of a namespace.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error, core::PartialObjectMeta};
use mcr_core::{explain_error, internal::Backoff};
use tokio::time::{sleep, timeout};

use crate::v1beta1::Project;

/// The label of a namespace with the name of its Project.
const LABEL: &str = "project.gardener.cloud/name";
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The name of the Project that a namespace belongs to: by the label of the namespace, or by the Project that names the namespace, or
/// else the name of the namespace. Tries again until the garden answers; the caller drops it when it is not needed any more.
pub(crate) async fn project(
    client: Client,
    namespace: Arc<str>,
    pauses: (Duration, Duration),
) -> (Arc<str>, Arc<str>) {
    let mut backoff = Backoff::new(pauses.0, pauses.1);
    loop {
        match timeout(DEADLINE, ask(&client, &namespace)).await {
            Ok(Ok(project)) => {
                let project = project.map_or_else(|| namespace.clone(), Arc::from);
                return (namespace, project);
            }
            Ok(Err(error)) => tracing::warn!(
                %namespace, error = %explain_error(&error), "the Project of the namespace can't be read; it is tried again"
            ),
            Err(_) => tracing::warn!(
                %namespace, "the garden does not tell the Project of the namespace; it is tried again"
            ),
        }
        sleep(backoff.pause()).await;
    }
}

async fn ask(client: &Client, namespace: &str) -> Result<Option<String>, Error> {
    let there: Option<PartialObjectMeta<Namespace>> = known(
        Api::<Namespace>::all(client.clone())
            .get_metadata(namespace)
            .await,
    )?;
    let label = there
        .and_then(|there| there.metadata.labels)
        .and_then(|mut labels| labels.remove(LABEL))
        .filter(|label| !label.is_empty());
    let Some(name) = namespace.strip_prefix("garden-").filter(|_| label.is_none()) else {
        return Ok(label);
    };
    let project = known(Api::<Project>::all(client.clone()).get(name).await)?;
    let is_its = |project: &Project| project.spec.namespace.as_deref() == Some(namespace);
    Ok(project.filter(is_its).map(|_| name.to_owned()))
}

/// None if the object is not there, or if it may not be read.
fn known<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(None),
        Err(error) => Err(error),
    }
}
