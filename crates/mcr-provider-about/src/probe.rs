//! Requests the ClusterProperties of one cluster.

use std::{fmt, sync::Arc, time::Duration};

use kube::{Api, Client, Error, Resource, api::ListParams};
use mcr_core::{ClusterSpec, OneOffClients, explain_error};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{
    known::{Properties, usable},
    v1alpha1, v1beta1,
};

/// The most ClusterProperties that are read. The API server sends them sorted by name.
const LIMIT: u32 = 500;

/// The size limit of an answer, in bytes.
pub(crate) const MAX_ANSWER: usize = 4 << 20;

/// The usable ClusterProperties of a cluster. Empty if the cluster does not serve the About API, or if the credentials
/// may not list them.
///
/// # Errors
/// With the reason, if there is no usable answer within `limit`.
pub(crate) async fn probe(
    clients: &OneOffClients,
    spec: ClusterSpec,
    limit: Duration,
) -> Result<Properties, Arc<str>> {
    timeout(limit, ask(clients, spec))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs_f32()).into()))
}

async fn ask(clients: &OneOffClients, spec: ClusterSpec) -> Result<Properties, Arc<str>> {
    let name = spec.name.clone();
    let client = clients.client(spec).await?;
    let beta = list::<v1beta1::ClusterProperty>(&client, |property| &property.spec.value).await;
    let listed = match beta {
        Err(error) if has_code(&error, 404) => {
            list::<v1alpha1::ClusterProperty>(&client, |property| &property.spec.value).await
        }
        beta => beta,
    };
    match listed {
        Ok(listed) => Ok(usable(listed)),
        Err(error) if has_code(&error, 404) || has_code(&error, 403) => {
            tracing::debug!(cluster = %name, error = %explain_error(&error), "no ClusterProperties");
            Ok(Properties::new())
        }
        Err(error) => Err(explain_error(&error).into()),
    }
}

async fn list<K>(client: &Client, value: impl Fn(&K) -> &String) -> Result<Vec<(String, String)>, Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
{
    let list = Api::<K>::all(client.clone())
        .list(&ListParams::default().limit(LIMIT))
        .await?;
    let pairs = list.items.iter();
    Ok(pairs
        .map(|property| {
            (
                property.meta().name.clone().unwrap_or_default(),
                value(property).clone(),
            )
        })
        .collect())
}

fn has_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}
