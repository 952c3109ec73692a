//! Which version of the kind Cluster a hub serves.

use std::time::Duration;

use http::Request;
use kube::{Client, core::ApiResource};
use mcr_core::{BoxError, explain_error};
use serde::Deserialize;
use tokio::time::timeout;

pub(crate) const GROUP: &str = "cluster.x-k8s.io";
const PATH: &str = "/apis/cluster.x-k8s.io";

/// The versions that the provider reads, the best one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    V1Beta2,
    V1Beta1,
}

impl Served {
    const ALL: [Self; 2] = [Self::V1Beta2, Self::V1Beta1];

    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V1Beta2 => "v1beta2",
            Self::V1Beta1 => "v1beta1",
        }
    }

    pub(crate) fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.into(),
            version: self.version().into(),
            api_version: format!("{GROUP}/{}", self.version()),
            kind: "Cluster".into(),
            plural: "clusters".into(),
        }
    }

    /// Asks the hub.
    pub(crate) async fn ask(client: &Client, deadline: Duration) -> Result<Self, BoxError> {
        let request = Request::get(PATH).body(Vec::new())?;
        let answer = match timeout(deadline, client.request_text(request)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Err(NO_CLUSTER_API.into()),
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                return Err(format!(
                    "the hub forbids GET {PATH}, which tells its versions of Cluster API; grant the verb get on this \
                     nonResourceURL, as the ClusterRole system:discovery does"
                )
                .into());
            }
            Ok(Err(error)) => {
                return Err(format!(
                    "the hub does not tell its versions of Cluster API: {}",
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
            "the hub serves neither v1beta2 nor v1beta1 of Cluster API; upgrade Cluster API there, or mcr here".into()
        })
    }
}

const NO_CLUSTER_API: &str = "the hub has no Cluster API: it does not know the group cluster.x-k8s.io. Install Cluster API \
     there (clusterctl init), or give the provider the client of the management cluster";

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}
