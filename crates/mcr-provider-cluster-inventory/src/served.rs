//! Which version of the kind ClusterProfile a hub serves.

use std::time::Duration;

use http::Request;
use kube::{Client, core::ApiResource};
use mcr_core::{BoxError, explain_error};
use serde::Deserialize;
use tokio::time::timeout;

pub(crate) const GROUP: &str = "multicluster.x-k8s.io";
const PATH: &str = "/apis/multicluster.x-k8s.io";

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
            plural: "clusterprofiles".into(),
        }
    }

    /// Asks the hub.
    pub(crate) async fn ask(client: &Client, deadline: Duration) -> Result<Self, BoxError> {
        let request = Request::get(PATH).body(Vec::new())?;
        let answer = match timeout(deadline, client.request_text(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Err(NO_INVENTORY.into()),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                return Err(format!(
                    "the hub forbids GET {PATH}, which tells its versions of the Cluster Inventory API; grant the verb get on this \
                     nonResourceURL, as the ClusterRole system:discovery does"
                )
                .into());
            }
            Ok(Err(error)) => {
                return Err(format!(
                    "the hub does not tell its versions of the Cluster Inventory API: {}",
                    explain_error(&error)
                )
                .into());
            }
            Err(_) => {
                return Err(format!(
                    "the hub did not answer GET {PATH} within {} s",
                    deadline.as_secs()
                )
                .into());
            }
        };
        let group: Group = serde_json::from_str(&answer).map_err(|_| {
            format!("the answer of the hub to GET {PATH} is no list of versions; check its address")
        })?;
        let served = |version: &Self| {
            group
                .versions
                .iter()
                .any(|served| served.version == version.version())
        };
        Self::ALL.into_iter().find(served).ok_or_else(|| {
            "the hub serves neither v1alpha2 nor v1alpha1 of ClusterProfile; upgrade its CRD there, or mcr here".into()
        })
    }
}

const NO_INVENTORY: &str = "the hub has no Cluster Inventory API: it does not know the group multicluster.x-k8s.io. Install the CRD \
     of ClusterProfile there, or give the provider the client of the hub that has the inventory";

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}
