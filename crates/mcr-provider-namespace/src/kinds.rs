//! A table of the kinds of the host, and whether they are namespaced. The paths `/api/v1/nodes` and
//! `/api/v1/configmaps` alone do not show that.
//!
//! The table decides which requests are refused, but not where a request goes: a request for objects always goes to the
//! path of the cluster's own namespace. So an outdated table can't expose another namespace.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{error::AnswerError, read::read};

/// Sends a request with the credentials of the host.
pub(crate) type Host =
    Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> + Send + Sync>;

/// A kind that the server did not have is looked up again only after this time.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// A cluster-scoped kind is looked up again after this time, because its CRD may have been replaced.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// The most groups and versions that are remembered. No server has nearly as many, but clients can invent names of
/// groups.
const MOST_GROUPS: usize = 4096;
/// The most concurrent requests for group lists, for servers without aggregated discovery.
const AT_ONCE: usize = 4;
/// Aggregated discovery: all groups in one answer, if the server supports it.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The result of a lookup of a kind.
pub(crate) enum Found {
    Namespaced,
    ClusterScoped,
    /// The server has no such kind.
    Unknown,
    /// The discovery request failed with this answer.
    Answered(Response<AnswerBody>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Kind {
    name: String,
    namespaced: bool,
}

/// Group and version.
type Key = (String, String);

#[derive(Debug, Default)]
pub(crate) struct Kinds {
    groups: Mutex<HashMap<Key, Arc<Group>>>,
}

#[derive(Debug, Default)]
struct Group {
    /// Locked during a discovery request, so that other lookups wait for its answer.
    asking: tokio::sync::Mutex<()>,
    listed: Mutex<Option<Listed>>,
}

#[derive(Debug)]
struct Listed {
    at: Instant,
    /// By plural. Empty if the server does not know the group.
    kinds: HashMap<String, Kind>,
}

impl Group {
    /// The remembered result, if it is recent enough.
    fn fresh(&self, plural: &str) -> Option<Found> {
        let listed = self.listed.lock();
        let listed = listed.as_ref()?;
        let age = listed.at.elapsed();
        match listed.kinds.get(plural) {
            Some(kind) if kind.namespaced => Some(Found::Namespaced),
            Some(_) => (age < REFUSED_FOR).then_some(Found::ClusterScoped),
            None => (age < LOOK_AGAIN).then_some(Found::Unknown),
        }
    }

    fn set(&self, kinds: HashMap<String, Kind>) {
        *self.listed.lock() = Some(Listed {
            at: Instant::now(),
            kinds,
        });
    }
}

impl Kinds {
    fn group(&self, group: &str, version: &str) -> Arc<Group> {
        let mut groups = self.groups.lock();
        if groups.len() >= MOST_GROUPS {
            groups.retain(|_, group| {
                group
                    .listed
                    .lock()
                    .as_ref()
                    .is_some_and(|listed| !listed.kinds.is_empty())
            });
        }
        groups
            .entry((group.to_owned(), version.to_owned()))
            .or_default()
            .clone()
    }

    /// Finds out whether a kind is namespaced. Sends a discovery request if the table does not have the kind.
    ///
    /// Dropping the future cancels the request. The next lookup sends another one.
    pub(crate) async fn find(
        &self,
        (group, version, plural): (&str, &str, &str),
        host: &Host,
    ) -> Result<Found, BoxError> {
        let known = self.group(group, version);
        if let Some(found) = known.fresh(plural) {
            return Ok(found);
        }
        let _turn = known.asking.lock().await;
        if let Some(found) = known.fresh(plural) {
            return Ok(found);
        }
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let response = host(ask(path, "application/json")?).await?;
        match response.status() {
            StatusCode::OK => {
                let list: ResourceList = json(response).await?;
                known.set(list.kinds());
            }
            StatusCode::NOT_FOUND => known.set(HashMap::new()),
            _ => return Ok(Found::Answered(response)),
        }
        Ok(known.fresh(plural).unwrap_or(Found::Unknown))
    }

    /// Whether a kind is namespaced, by the table alone, in any version of the group.
    pub(crate) fn is_namespaced(&self, group: &str, plural: &str) -> Option<bool> {
        let groups = self.groups.lock();
        let mut versions = groups.iter().filter(|((known, _), _)| known == group);
        versions.find_map(|(_, group)| {
            group
                .listed
                .lock()
                .as_ref()?
                .kinds
                .get(plural)
                .map(|kind| kind.namespaced)
        })
    }

    /// The kind of a plural, by the table alone.
    pub(crate) fn kind(&self, group: &str, version: &str, plural: &str) -> Option<String> {
        let known = self
            .groups
            .lock()
            .get(&(group.to_owned(), version.to_owned()))
            .cloned()?;
        let listed = known.listed.lock();
        listed.as_ref()?.kinds.get(plural).map(|kind| kind.name.clone())
    }

    /// Fills the table. Leaves out a group whose own server does not answer.
    ///
    /// # Errors
    /// If the server does not list its groups.
    pub(crate) async fn load(&self, host: &Host) -> Result<(), BoxError> {
        for root in ["/api", "/apis"] {
            let response = host(ask(root.to_owned(), AGGREGATED)?).await?;
            if response.status() != StatusCode::OK {
                return Err(format!("the host cluster answered {root} with {}", response.status()).into());
            }
            match json(response).await? {
                Roots::Aggregated { items } => self.add(items),
                Roots::Groups { groups } => {
                    let versions = groups.into_iter().flat_map(|group| group.versions);
                    let paths = versions.map(|version| ("apis", version.group_version)).collect();
                    self.list(paths, host).await;
                }
                Roots::Versions { versions } => {
                    let paths = versions.into_iter().map(|version| ("api", version)).collect();
                    self.list(paths, host).await;
                }
            }
        }
        Ok(())
    }

    fn add(&self, groups: Vec<GroupDiscovery>) {
        for group in groups {
            for version in group.versions {
                // The list of a stale version may be outdated.
                if version.freshness.as_deref() == Some("Stale") {
                    continue;
                }
                let kinds = version.resources.into_iter().map(|resource| {
                    let kind = Kind {
                        name: resource.response_kind.unwrap_or_default().kind,
                        namespaced: resource.scope == "Namespaced",
                    };
                    (resource.resource, kind)
                });
                self.group(&group.metadata.name, &version.version)
                    .set(kinds.collect());
            }
        }
    }

    async fn list(&self, versions: Vec<(&'static str, String)>, host: &Host) {
        let asked = versions.into_iter().map(|(root, version)| async move {
            let response = host(ask(format!("/{root}/{version}"), "application/json").ok()?)
                .await
                .ok()?;
            if response.status() != StatusCode::OK {
                return None;
            }
            Some((version, json::<ResourceList>(response).await.ok()?))
        });
        let mut asked = stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        while let Some(listed) = asked.next().await {
            let Some((version, list)) = listed else { continue };
            let (group, version) = version.split_once('/').unwrap_or(("", &version));
            self.group(group, version).set(list.kinds());
        }
    }
}

fn ask(path: String, accept: &'static str) -> Result<Request<Body>, http::Error> {
    Request::get(path)
        .header(header::ACCEPT, HeaderValue::from_static(accept))
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        .body(Body::empty())
}

async fn json<T: for<'de> Deserialize<'de>>(response: Response<AnswerBody>) -> Result<T, BoxError> {
    let body = read(response.into_body()).await?;
    // The text of serde_json may quote the body.
    serde_json::from_slice(&body).map_err(|_| AnswerError::NotJson.into())
}

#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    namespaced: bool,
    #[serde(default)]
    kind: String,
}

impl ResourceList {
    fn kinds(self) -> HashMap<String, Kind> {
        let kinds = self
            .resources
            .into_iter()
            .filter(|resource| !resource.name.contains('/'));
        kinds
            .map(|resource| {
                let kind = Kind {
                    name: resource.kind,
                    namespaced: resource.namespaced,
                };
                (resource.name, kind)
            })
            .collect()
    }
}

/// The three forms of a list of groups.
#[derive(Deserialize)]
#[serde(untagged)]
enum Roots {
    Aggregated { items: Vec<GroupDiscovery> },
    Groups { groups: Vec<GroupVersions> },
    Versions { versions: Vec<String> },
}

#[derive(Deserialize)]
struct GroupVersions {
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<VersionDiscovery>,
}

#[derive(Deserialize, Default)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default)]
    resources: Vec<ResourceDiscovery>,
    freshness: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: String,
    #[serde(default)]
    scope: String,
    response_kind: Option<KindName>,
}

#[derive(Deserialize, Default)]
struct KindName {
    #[serde(default)]
    kind: String,
}
