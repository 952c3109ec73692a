//! Finds the Projects of namespaces.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error};
use mcr_core::{explain_error, hub::Backoff};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, timeout},
};

use crate::{config::Config, v1beta1::Project};

/// The label of a namespace that contains the name of its Project.
const LABEL: &str = "project.gardener.cloud/name";
/// How long a request may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The result of a lookup.
#[derive(Debug)]
pub(crate) struct FoundProject {
    pub(crate) namespace: Arc<str>,
    /// The name of the Project. `None` if the garden forbids to read it.
    pub(crate) project: Option<Arc<str>>,
}

/// Looks up Projects, a few at once.
pub(crate) struct Lookups {
    config: Arc<Config>,
    /// Limits how many lookups run at once.
    permits: Semaphore,
}

impl Lookups {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self {
            permits: Semaphore::new(config.at_once.max(1)),
            config,
        }
    }

    /// The name of the Project that a namespace belongs to. It is in the label of the namespace, otherwise the Project
    /// that refers to the namespace is searched, otherwise it is the name of the namespace. Repeats the lookup until
    /// the garden answers. The caller drops the future when the result is no longer needed.
    ///
    /// An API server that has just started forbids everything for a moment, and a right may be granted a moment later.
    /// So a refusal counts only if the garden repeats it for a while.
    pub(crate) async fn project(self: Arc<Self>, namespace: Arc<str>) -> FoundProject {
        let (client, times) = (&self.config.hub.client, &self.config.hub.times);
        let mut backoff = Backoff::new(times.pauses.0, times.pauses.1);
        let (mut forbidden_since, mut logged) = (None, false);
        loop {
            let answer = {
                let _permit = self.permits.acquire().await;
                timeout(DEADLINE, look_up(client, &namespace)).await
            };
            let mut pause = backoff.pause();
            let problem = match answer {
                Ok(Ok(Answer::Project(project))) => {
                    let project = Some(project.into());
                    return FoundProject { namespace, project };
                }
                Ok(Ok(Answer::NoProject)) => {
                    let project = Some(namespace.clone());
                    return FoundProject { namespace, project };
                }
                Ok(Ok(Answer::Forbidden)) => {
                    let since = *forbidden_since.get_or_insert_with(Instant::now);
                    let left = times.blocked_for.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        tracing::warn!(
                            %namespace, "the garden forbids to read the Project of the namespace, so the name of the namespace is \
                             used instead; grant the verb get on namespaces and projects to the client of the garden, and start again"
                        );
                        let project = None;
                        return FoundProject { namespace, project };
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

/// Looks up the Project once.
async fn look_up(client: &Client, namespace: &str) -> Result<Answer, Error> {
    let mut forbidden = false;
    let namespaces = Api::<Namespace>::all(client.clone());
    let metadata = allowed(namespaces.get_metadata_opt(namespace).await, &mut forbidden)?;
    let label = metadata.and_then(|namespace| namespace.metadata.labels?.remove(LABEL));
    if let Some(label) = label.filter(|label| !label.is_empty()) {
        return Ok(Answer::Project(label));
    }
    if let Some(name) = namespace.strip_prefix("garden-") {
        let projects = Api::<Project>::all(client.clone());
        let project = allowed(projects.get_opt(name).await, &mut forbidden)?;
        if project.is_some_and(|project| project.spec.namespace.as_deref() == Some(namespace)) {
            return Ok(Answer::Project(name.to_owned()));
        }
    }
    Ok(if forbidden {
        Answer::Forbidden
    } else {
        Answer::NoProject
    })
}

/// `None` if there is no such object, or if reading it is forbidden.
fn allowed<T>(answer: Result<Option<T>, Error>, forbidden: &mut bool) -> Result<Option<T>, Error> {
    match answer {
        Err(Error::Api(status)) if status.code == 403 => {
            *forbidden = true;
            Ok(None)
        }
        other => other,
    }
}
