//! Requests kubeconfigs, and tests doubtful ones.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use http::{Method, StatusCode};
use kube::client::Body;
use mcr_core::{
    BoxError, ClusterName, ClusterSpec, DiscoverySettings, EndpointAccess, ObjectKey, ObjectPath,
    OneOffClients, explain_error,
    hub::{fetch, jitter},
};
use serde_json::json;
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use crate::{
    config::Config,
    facts::Named,
    kubeconfig::{Checks, Failure, UsableKubeconfig},
    refusals::ReportedRefusals,
    renewal::renew_after,
    seed::SECRET,
};

/// The most bytes of the answer to a trial request, which asks for the version of Kubernetes.
const TRIAL_ANSWER_LIMIT: usize = 64 << 10;
/// How long a trial request may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A request for a kubeconfig.
#[derive(Debug)]
pub(crate) struct KubeconfigRequest {
    pub(crate) key: ObjectKey,
    pub(crate) name: ClusterName,
    pub(crate) shoot: Arc<Named>,
    /// The kubeconfig in use. `None` if there is none yet.
    pub(crate) held: Option<UsableKubeconfig>,
    /// Whether the last attempt has failed.
    pub(crate) again: bool,
}

/// Requests kubeconfigs.
pub(crate) struct Issuer {
    config: Arc<Config>,
    checks: Arc<Checks>,
    clients: OneOffClients,
}

impl Issuer {
    pub(crate) fn new(config: Arc<Config>, settings: &DiscoverySettings) -> Self {
        Self {
            checks: Arc::new(Checks {
                judge: config.hub.judge(settings),
                valid_for: config.valid_for,
            }),
            clients: OneOffClients::new(settings, TRIAL_ANSWER_LIMIT),
            config,
        }
    }

    /// Requests a new kubeconfig for a Shoot. In a seed, reads the current one. If more than the credentials differ
    /// from the kubeconfig in use, tests the new one.
    ///
    /// # Errors
    /// If there is no kubeconfig, or if the new one does not work and the one in use still does.
    pub(crate) async fn issue(&self, request: &KubeconfigRequest) -> Result<UsableKubeconfig, Failure> {
        let limit = if request.again {
            self.config.hub.times.deadline
        } else {
            self.config.first_deadline
        };
        let mut new = timeout(limit, self.fetch_kubeconfig(request))
            .await
            .unwrap_or_else(|_| {
                Err(Failure::new(format!(
                    "the {} did not answer within {} s",
                    server_kind(request),
                    limit.as_secs_f32()
                )))
            })?;
        if let Some(old) = request.held.as_ref().filter(|old| new.is_doubtful_after(old))
            && let Err(why) = self.test_access(request, &new.access).await
            && self.test_access(request, &old.access).await.is_ok()
        {
            return Err(Failure::new(format!(
                "the new kubeconfig does not work, so the old one stays in use: {why}"
            )));
        }
        new.access.credentials = Arc::new(ReportedRefusals {
            source: new.access.credentials,
            refusals: self.config.refusals.clone(),
            refusal: (request.key.clone(), new.fingerprint),
        });
        Ok(new)
    }

    /// Sends the request, and reads the kubeconfig in the answer.
    async fn fetch_kubeconfig(&self, request: &KubeconfigRequest) -> Result<UsableKubeconfig, Failure> {
        let requested_at = (SystemTime::now(), Instant::now());
        let server = server_kind(request);
        let http_request = self
            .http_request(request)
            .map_err(|error| Failure::new(error.to_string()))?;
        let body = match fetch(&self.config.hub.client, http_request).await {
            Ok(body) => body,
            Err(refused) => {
                let why = match (refused.status, &request.shoot.control_plane) {
                    (None, _) => format!("the {server} can't be asked for a kubeconfig: {refused}"),
                    (Some(StatusCode::NOT_FOUND), Some(control_plane)) => {
                        return Err(Failure {
                            absent: true,
                            ..Failure::new(format!(
                                "its Secret {control_plane}/{SECRET} with the kubeconfig is not there"
                            ))
                        });
                    }
                    (Some(status), _) => self.refusal(request, status),
                };
                let retry_after = refused.retry_after;
                return Err(Failure {
                    retry_after,
                    ..Failure::new(why)
                });
            }
        };
        // In a blocking task: parsing may take long, and a parser may panic.
        let (checks, place, in_seed) = (
            self.checks.clone(),
            request.shoot.place,
            request.shoot.control_plane.is_some(),
        );
        let chance = jitter(Duration::from_secs(1)).as_secs_f64();
        let read = move || {
            if in_seed {
                return checks.read_secret(&body, place, requested_at);
            }
            checks.read(&body, place, requested_at, |life| renew_after(life, chance))
        };
        spawn_blocking(read).await.unwrap_or_else(|_| {
            Err(Failure::new(
                "mcr panicked when it read the kubeconfig; please report this",
            ))
        })
    }

    fn http_request(&self, request: &KubeconfigRequest) -> Result<http::Request<Body>, BoxError> {
        if let Some(control_plane) = &request.shoot.control_plane {
            let secret = ObjectPath {
                group: "",
                version: "v1",
                plural: "secrets",
                namespace: Some(control_plane),
                name: SECRET,
            };
            return Ok(http::Request::get(secret.path()?).body(Body::empty())?);
        }
        let ObjectKey { namespace, name } = &request.key;
        let rights = self.config.rights;
        let shoot = ObjectPath {
            group: "core.gardener.cloud",
            version: "v1beta1",
            plural: "shoots",
            namespace: Some(namespace.as_deref().unwrap_or_default()),
            name,
        };
        let path = format!("{}/{}", shoot.path()?, rights.subresource());
        let body = json!({
            "apiVersion": "authentication.gardener.cloud/v1alpha1",
            "kind": rights.kind(),
            "spec": {"expirationSeconds": self.config.valid_for.as_secs()},
        });
        let request = http::Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(http::header::CONTENT_TYPE, "application/json");
        Ok(request.body(Body::from(body.to_string().into_bytes()))?)
    }

    /// Why there is no kubeconfig, and what to do about it.
    fn refusal(&self, request: &KubeconfigRequest, status: StatusCode) -> String {
        let namespace = request.key.namespace.as_deref().unwrap_or_default();
        let subresource = self.config.rights.subresource();
        let (what, right) = match &request.shoot.control_plane {
            Some(control_plane) => (
                format!("Secret {control_plane}/{SECRET}"),
                format!("get on the secrets named {SECRET}"),
            ),
            None => (
                subresource.to_owned(),
                format!("create on shoots/{subresource} in namespace {namespace}"),
            ),
        };
        let server = server_kind(request);
        let hint = match status {
            StatusCode::FORBIDDEN => format!("; grant the verb {right} to the client of the {server}"),
            StatusCode::NOT_FOUND => "; the Shoot is gone, or this is no garden".to_owned(),
            _ => String::new(),
        };
        format!("the {server} refused {what} with {}{hint}", status.as_u16())
    }

    /// Tests whether the cluster answers with this access.
    async fn test_access(
        &self,
        request: &KubeconfigRequest,
        access: &EndpointAccess,
    ) -> Result<(), Arc<str>> {
        let spec = ClusterSpec::new(request.name.clone(), access.clone().into());
        let asked = async {
            let client = self.clients.client(spec).await?;
            let get = http::Request::get("/version").body(Body::empty());
            let get = get.map_err(|error| Arc::from(error.to_string()))?;
            let answer = client
                .send(get)
                .await
                .map_err(|error| Arc::from(explain_error(&error)))?;
            match answer.status() {
                // An API server that forbids the request has recognised the user.
                StatusCode::FORBIDDEN => Ok(()),
                status if status.is_success() => Ok(()),
                status => Err(format!("the cluster answers with {}", status.as_u16()).into()),
            }
        };
        timeout(TRIAL_TIMEOUT, asked)
            .await
            .unwrap_or_else(|_| Err("no answer within 10 s".into()))
    }
}

/// The server that issues the kubeconfigs, for error texts.
fn server_kind(request: &KubeconfigRequest) -> &'static str {
    match request.shoot.control_plane {
        Some(_) => "seed",
        None => "garden",
    }
}
