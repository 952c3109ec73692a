//! Looks up the Projects of namespaces.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error, core::PartialObjectMeta};
use mcr_core::{explain_error, hub::Backoff};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{provider::Config, v1beta1::Project};

/// The label of a namespace with the name of its Project.
const LABEL: &str = "project.gardener.cloud/name";
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// What is known of a namespace.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) namespace: Arc<str>,
    /// None if the garden forbids to read it.
    pub(crate) project: Option<Arc<str>>,
}

/// Looks up Projects, and asks for a few at once.
pub(crate) struct Lookups {
    config: Arc<Config>,
    places: Semaphore,
}

impl Lookups {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            places: Semaphore::new(config.at_once.max(1)),
            config,
        }
    }

    /// The name of the Project that a namespace belongs to: by the label of the namespace, or by the Project that names the
    /// namespace, or else the name of the namespace. Tries again until the garden answers; the caller drops it when it is not needed
    /// any more.
    ///
    /// An API server that has just started forbids everything for a moment, and a right may be granted a moment later. So only a
    /// garden that forbids it for a while is believed.
    pub(crate) async fn project(self: Arc<Self>, namespace: Arc<str>) -> Found {
        let (client, times) = (&self.config.hub.client, &self.config.hub.times);
        let mut backoff = Backoff::new(times.pauses.0, times.pauses.1);
        let (mut forbidden_since, mut logged) = (None, false);
        loop {
            let answer = {
                let _place = self.places.acquire().await;
                timeout(DEADLINE, ask(client, &namespace)).await
            };
            let mut pause = backoff.pause();
            let problem = match answer {
                Ok(Ok(Answer::Project(project))) => {
                    let project = Some(project.into());
                    return Found { namespace, project };
                }
                Ok(Ok(Answer::NoProject)) => {
                    let project = Some(namespace.clone());
                    return Found { namespace, project };
                }
                Ok(Ok(Answer::Forbidden)) => {
                    let since = *forbidden_since.get_or_insert_with(Instant::now);
                    let left = times.blocked_for.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        tracing::warn!(
                            %namespace, "the garden forbids to read the Project of the namespace, so the name of the namespace stands \
                             for it; grant the verb get on namespaces and projects to the client of the garden, and start again"
                        );
                        let project = None;
                        return Found { namespace, project };
                    }
                    pause = pause.min(left);
                    None
                }
                Ok(Err(error)) => Some(explain_error(&error)),
                Err(_) => Some(format!("no answer within {} s", DEADLINE.as_secs())),
            };
            if let Some(error) = problem {
                forbidden_since = None;
                if !logged {
                    tracing::warn!(%namespace, %error, "the Project of the namespace can't be read; it is tried again");
                }
                logged = true;
            }
            sleep(pause).await;
        }
    }
}

enum Answer {
    Project(String),
    NoProject,
    Forbidden,
}

async fn ask(client: &Client, namespace: &str) -> Result<Answer, Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let there: Read<PartialObjectMeta<Namespace>> = read(namespaces.get_metadata(namespace).await)?;
    let mut forbidden = matches!(there, Read::Forbidden);
    if let Read::There(there) = there {
        let label = there.metadata.labels.and_then(|mut labels| labels.remove(LABEL));
        if let Some(label) = label.filter(|label| !label.is_empty()) {
            return Ok(Answer::Project(label));
        }
    }
    if let Some(name) = namespace.strip_prefix("garden-") {
        match read(Api::<Project>::all(client.clone()).get(name).await)? {
            Read::There(project) if project.spec.namespace.as_deref() == Some(namespace) => {
                return Ok(Answer::Project(name.to_owned()));
            }
            Read::There(_) | Read::NotThere => {}
            Read::Forbidden => forbidden = true,
        }
    }
    Ok(if forbidden {
        Answer::Forbidden
    } else {
        Answer::NoProject
    })
}

enum Read<T> {
    There(T),
    NotThere,
    Forbidden,
}

fn read<T>(answer: Result<T, Error>) -> Result<Read<T>, Error> {
    match answer {
        Ok(object) => Ok(Read::There(object)),
        Err(Error::Api(status)) if status.code == 404 => Ok(Read::NotThere),
        Err(Error::Api(status)) if status.code == 403 => Ok(Read::Forbidden),
        Err(error) => Err(error),
    }
}
