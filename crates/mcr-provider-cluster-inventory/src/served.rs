//! Which version of the kind ClusterProfile a hub serves.

use std::time::Duration;

use http::Request;
use kube::{Client, core::ApiResource};
use mcr_core::{BoxError, explain_error};
use serde::Deserialize;
use tokio::time::timeout;

pub(crate) const GROUP: &str = "multicluster.x-k8s.io";
const PLURAL: &str = "clusterprofiles";

/// The versions that the provider reads, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    V1Alpha2,
    V1Alpha1,
}

impl Served {
    const ALL: [Self; 2] = [Self::V1Alpha2, Self::V1Alpha1];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V1Alpha2 => "v1alpha2",
            Self::V1Alpha1 => "v1alpha1",
        }
    }

    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.into(),
            version: self.version().into(),
            api_version: format!("{GROUP}/{}", self.version()),
            kind: "ClusterProfile".into(),
            plural: PLURAL.into(),
        }
    }

    /// Asks the hub for the best version that it serves of the kind, or whether it serves the only one that may be read. The versions of the group tell nothing: the group has other
    /// kinds too, such as those of the Multi-Cluster Services API.
    pub(crate) async fn ask(
        client: &Client,
        only: Option<Self>,
        deadline: Duration,
    ) -> Result<Self, BoxError> {
        timeout(deadline, async {
            for served in Self::ALL.into_iter().filter(|served| only.is_none_or(|only| only == *served)) {
                if served.is_served(client).await? {
                    return Ok(served);
                }
            }
            Err(match only {
                None => NO_INVENTORY.into(),
                Some(only) => format!(
                    "the hub does not serve ClusterProfile of {GROUP} as {0}; leave out the provider's option `{0}`, or give it \
                     the client of a hub that serves this version",
                    only.version()
                )
                .into(),
            })
        })
        .await
        .unwrap_or_else(|_| {
            let seconds = deadline.as_secs();
            Err(format!("the hub did not tell its versions of ClusterProfile within {seconds} s").into())
        })
    }

    async fn is_served(self, client: &Client) -> Result<bool, BoxError> {
        let path = format!("/apis/{GROUP}/{}", self.version());
        let answer = match client.request_text(Request::get(&path).body(Vec::new())?).await {
            Ok(answer) => answer,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Err(format!(
                    "the hub forbids GET {path}, which tells whether it serves this version of ClusterProfile; grant the verb get \
                     on this nonResourceURL, as the ClusterRole system:discovery does"
                )
                .into());
            }
            Err(error) => {
                return Err(format!(
                    "the hub does not tell its versions of ClusterProfile: {}",
                    explain_error(&error)
                )
                .into());
            }
        };
        let list: Resources = serde_json::from_str(&answer).map_err(|_| {
            format!("the answer of the hub to GET {path} is no list of resources; check its address")
        })?;
        Ok(list.resources.iter().any(|resource| resource.name == PLURAL))
    }
}

const NO_INVENTORY: &str = "the hub has no Cluster Inventory API: it serves ClusterProfile of multicluster.x-k8s.io neither as \
     v1alpha2 nor as v1alpha1. Install or upgrade its CRD there, or give the provider the client of the hub that has the inventory; \
     a newer version needs a newer mcr";

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}
