//! Single requests to a hub, whose responses no log shows.

use std::{error::Error, fmt, time::Duration};

use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Client, client::Body, core::ApiResource};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::timeout;

use mcr_access::BoxError;
use mcr_client::{ObjectPath, explain_error};
use mcr_store::{ObjectKey, describe};

/// A Secret has 1 MiB of data at most, which is base64 in JSON, and its metadata.
const LARGEST_BODY: usize = 3 << 20;
const TOO_LARGE: &str = "the answer is larger than 3 MiB";

/// Why a hub gives no answer.
#[derive(Debug, Clone)]
pub struct Refused {
    /// The status of the response. None if there was none, or a broken one.
    pub status: Option<StatusCode>,
    /// In words, with nothing of the response.
    pub why: String,
    /// How long the hub wants to be left alone (`Retry-After`).
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// A request that got no response.
    pub fn new(why: impl Into<String>) -> Self {
        Self {
            status: None,
            why: why.into(),
            retry_after: None,
        }
    }
}

impl Error for Refused {}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Sends a request and returns the body of a successful response of at most 3 MiB. kube would decode the body, and log one that it
/// can't decode. Cancel safe; has no deadline of its own.
///
/// # Errors
/// [`Refused`] after any other response, or none.
pub async fn fetch(client: &Client, request: Request<Body>) -> Result<Vec<u8>, Refused> {
    let response = client
        .send(request)
        .await
        .map_err(|error| Refused::new(explain_error(&error)))?;
    let status = response.status();
    if !status.is_success() {
        let seconds = response.headers().get(RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
        return Err(Refused {
            status: Some(status),
            why: format!("the hub answered {}", status.as_u16()),
            retry_after: seconds.map(Duration::from_secs),
        });
    }
    match Limited::new(response.into_body(), LARGEST_BODY).collect().await {
        Ok(body) => Ok(body.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::new(TOO_LARGE)),
        Err(_) => Err(Refused::new("the answer broke off")),
    }
}

/// Reads a Secret, as [`fetch`]. None: there is no such Secret.
///
/// # Errors
/// [`Refused`], also if the key can't be that of a Secret.
pub async fn fetch_secret(client: &Client, key: &ObjectKey) -> Result<Option<Vec<u8>>, Refused> {
    let path = ObjectPath {
        group: "",
        version: "v1",
        plural: "secrets",
        namespace: Some(key.namespace.as_deref().unwrap_or_default()),
        name: &key.name,
    };
    let path = path
        .path()
        .map_err(|_| Refused::new("this can't be the name of a Secret"))?;
    let request = Request::get(path).body(Body::empty());
    match fetch(client, request.map_err(|error| Refused::new(error.to_string()))?).await {
        Ok(body) => Ok(Some(body)),
        Err(refused) if refused.status == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(refused) if refused.why == TOO_LARGE => Err(Refused::new("it is larger than a Secret can be")),
        Err(refused) => Err(refused),
    }
}

/// A kind of a hub in the versions that a provider can read.
#[derive(Debug, Clone, Copy)]
pub struct Versions {
    /// The API group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The name of the resource, in lower case and plural.
    pub plural: &'static str,
    /// The versions, the best one first.
    pub versions: &'static [&'static str],
    /// The error of a hub that serves none of them: what is missing, and what to do about it.
    pub missing: &'static str,
}

/// Whether a server, which is not trusted, serves a kind in any version.
pub(crate) async fn serves(client: &Client, group: &str, plural: &str) -> Result<bool, BoxError> {
    let all: Groups = read(client, "/apis").await?;
    let of_name = all.groups.into_iter().filter(|known| known.name == group);
    for Version { version } in of_name.flat_map(|known| known.versions) {
        // The server chooses it.
        let is_version = version.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let path = format!("/apis/{group}/{version}");
        if is_version && read::<Resources>(client, &path).await?.has(plural) {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn read<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, BoxError> {
    let answer = fetch(client, Request::get(path).body(Body::empty())?).await;
    let answer = answer.map_err(|refused| match refused.status {
        Some(status) => format!("GET {path}: {status}"),
        None => format!("GET {path}: {}", refused.why),
    })?;
    serde_json::from_slice(&answer).map_err(|error| format!("GET {path}: {}", describe(&error)).into())
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

impl Resources {
    fn has(&self, plural: &str) -> bool {
        self.resources.iter().any(|resource| resource.name == plural)
    }
}

impl Versions {
    /// The kind in this version.
    pub fn resource(&self, version: &str) -> ApiResource {
        ApiResource {
            group: self.group.into(),
            version: version.into(),
            api_version: format!("{}/{version}", self.group),
            kind: self.kind.into(),
            plural: self.plural.into(),
        }
    }

    /// Asks a hub for the best version that it serves of the kind, or for the only one that may be read. The versions of the group
    /// are no answer, because a group can have other kinds in them.
    ///
    /// # Errors
    /// If the hub serves no such version, or does not answer within the deadline, with what to do about it.
    pub async fn served(
        &self,
        client: &Client,
        only: Option<&'static str>,
        deadline: Duration,
    ) -> Result<&'static str, BoxError> {
        let Self { group, kind, .. } = *self;
        let ask = async {
            for version in self.versions {
                if only.is_none_or(|only| only == *version) && self.is_served(client, version).await? {
                    return Ok(*version);
                }
            }
            Err(only.map_or_else(
                || self.missing.into(),
                |only| {
                    format!(
                        "the hub does not serve {kind} of {group} as {only}; leave out the provider's option `{only}`, or give it the \
                         client of a hub that serves this version"
                    )
                    .into()
                },
            ))
        };
        let late = || {
            format!(
                "the hub did not list its versions of {kind} within {} s",
                deadline.as_secs()
            )
        };
        timeout(deadline, ask)
            .await
            .unwrap_or_else(|_| Err(late().into()))
    }

    /// Returns an error if a hub that served the kind in one version serves it in another one now, because its CRD was upgraded or
    /// restored. For a watch that [fails](mcr_watch::HubEvent::Failing) with [`NotServed`](mcr_watch::WatchError::NotServed): with
    /// the error the discovery ends, and the next one lists all objects in the other version.
    pub async fn moved(
        self,
        client: Client,
        only: Option<&'static str>,
        deadline: Duration,
        from: &'static str,
    ) -> Option<BoxError> {
        let now = self.served(&client, only, deadline).await.ok()?;
        (now != from).then(|| {
            format!(
                "the hub serves {}s as {now} now, and as {from} no more; they are listed again",
                self.kind
            )
            .into()
        })
    }

    async fn is_served(&self, client: &Client, version: &str) -> Result<bool, BoxError> {
        let path = format!("/apis/{}/{version}", self.group);
        let kind = self.kind;
        let answer = match client.request_text(Request::get(&path).body(Vec::new())?).await {
            Ok(answer) => answer,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(false),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return Err(format!(
                    "the hub forbids GET {path}, which shows whether it serves this version of {kind}; grant the verb get on this \
                     nonResourceURL, as the ClusterRole system:discovery does"
                )
                .into());
            }
            Err(error) => {
                let why = explain_error(&error);
                return Err(format!("the hub does not list its versions of {kind}: {why}").into());
            }
        };
        let list: Resources = serde_json::from_str(&answer).map_err(|_| {
            format!("the answer of the hub to GET {path} is no list of resources; check its address")
        })?;
        Ok(list.has(self.plural))
    }
}
