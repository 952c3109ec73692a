//! Asks for kubeconfigs, and tries those that are doubtful.

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
    kubeconfig::{Checks, Failure, Held},
    refusals::ReportedRefusals,
    renewal::renew_after,
    seed::SECRET,
};

/// The answer to a trial is a version of Kubernetes.
const LARGEST_TRIAL: usize = 64 << 10;
/// How long a trial may take.
const TRIAL: Duration = Duration::from_secs(10);

/// A request for a kubeconfig.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) key: ObjectKey,
    pub(crate) name: ClusterName,
    pub(crate) shoot: Arc<Named>,
    /// The kubeconfig in use.
    pub(crate) held: Option<Held>,
    /// The last attempt failed.
    pub(crate) again: bool,
}

/// Asks for kubeconfigs.
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
            clients: OneOffClients::new(settings, LARGEST_TRIAL),
            config,
        }
    }

    /// A new kubeconfig for a Shoot, or in a seed the one that there is now. Tries it if it differs from the one in use in more than the credentials.
    ///
    /// # Errors
    /// If there is none, or if it does not work and the one in use still does.
    pub(crate) async fn issue(&self, request: &Asked) -> Result<Held, Failure> {
        let limit = if request.again {
            self.config.hub.times.deadline
        } else {
            self.config.first_deadline
        };
        let mut new = timeout(limit, self.ask(request)).await.unwrap_or_else(|_| {
            Err(Failure::new(format!(
                "the {} did not answer within {} s",
                whom(request),
                limit.as_secs_f32()
            )))
        })?;
        if let Some(old) = request.held.as_ref().filter(|old| new.is_doubtful_after(old))
            && let Err(why) = self.try_out(request, &new.access).await
            && self.try_out(request, &old.access).await.is_ok()
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

    async fn ask(&self, request: &Asked) -> Result<Held, Failure> {
        let asked = (SystemTime::now(), Instant::now());
        let whom = whom(request);
        let question = self
            .question(request)
            .map_err(|error| Failure::new(error.to_string()))?;
        let body = match fetch(&self.config.hub.client, question).await {
            Ok(body) => body,
            Err(refused) => {
                let why = match (refused.status, &request.shoot.control_plane) {
                    (None, _) => format!("the {whom} can't be asked for a kubeconfig: {refused}"),
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
        // Parsing may take long, and a parser may panic.
        let (checks, place, in_seed) = (
            self.checks.clone(),
            request.shoot.place,
            request.shoot.control_plane.is_some(),
        );
        let chance = jitter(Duration::from_secs(1)).as_secs_f64();
        let read = move || {
            if in_seed {
                return checks.read_secret(&body, place, asked);
            }
            checks.read(&body, place, asked, |life| renew_after(life, chance))
        };
        spawn_blocking(read).await.unwrap_or_else(|_| {
            Err(Failure::new(
                "mcr panicked when it read the kubeconfig; please report this",
            ))
        })
    }

    fn question(&self, request: &Asked) -> Result<http::Request<Body>, BoxError> {
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
    fn refusal(&self, request: &Asked, status: StatusCode) -> String {
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
        let whom = whom(request);
        let hint = match status {
            StatusCode::FORBIDDEN => format!("; grant the verb {right} to the client of the {whom}"),
            StatusCode::NOT_FOUND => "; the Shoot is gone, or this is no garden".to_owned(),
            _ => String::new(),
        };
        format!("the {whom} refused {what} with {}{hint}", status.as_u16())
    }

    /// Whether a cluster answers to a kubeconfig.
    async fn try_out(&self, request: &Asked, access: &EndpointAccess) -> Result<(), Arc<str>> {
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
                // An API server that forbids this knows the user.
                StatusCode::FORBIDDEN => Ok(()),
                status if status.is_success() => Ok(()),
                status => Err(format!("the cluster answers with {}", status.as_u16()).into()),
            }
        };
        timeout(TRIAL, asked)
            .await
            .unwrap_or_else(|_| Err("no answer within 10 s".into()))
    }
}

fn whom(request: &Asked) -> &'static str {
    match request.shoot.control_plane {
        Some(_) => "seed",
        None => "garden",
    }
}
