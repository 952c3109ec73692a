//! The requests of a candidate to the API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Error,
    api::{DynamicObject, PostParams},
};
use tokio::time::timeout;

use crate::record;

/// How a request ended.
pub(crate) enum Response {
    Read(Option<Box<Lease>>),
    Written(Box<Lease>),
    /// The Lease has another version, exists already, or does not exist any more.
    Rejected,
    /// The text has the reason, and what to do.
    Failed(String),
}

/// The Lease on the API server.
pub(crate) struct Requests {
    pub(crate) api: Api<Lease>,
    /// For reading Leases, because their times may not fit into the types of Kubernetes.
    pub(crate) objects: Api<DynamicObject>,
    pub(crate) params: PostParams,
    pub(crate) limit: Duration,
}

impl Requests {
    pub(crate) async fn read(&self, name: &str) -> Response {
        match self.limited("get", &[], self.objects.get_opt(name)).await {
            Ok(object) => match object.map(record::read).transpose() {
                Ok(lease) => Response::Read(lease.map(Box::new)),
                Err(problem) => Response::Failed(format!("get: the Lease can't be read: {problem}")),
            },
            Err(response) => response,
        }
    }

    pub(crate) async fn create(&self, lease: &Lease) -> Response {
        let create = self.api.create(&self.params, lease);
        let created = self.limited("create", &[409], create).await;
        created.map_or_else(|response| response, |lease| Response::Written(Box::new(lease)))
    }

    /// Replaces the Lease, if it still has the version in the metadata of `lease`.
    pub(crate) async fn update(&self, mut lease: Lease) -> Response {
        let name = lease.metadata.name.clone().unwrap_or_default();
        // No write needs `managedFields`, and a server may refuse entries of another API version.
        lease.metadata.managed_fields = None;
        let replace = self.api.replace(&name, &self.params, &lease);
        let replaced = self.limited("update", &[404, 409], replace).await;
        replaced.map_or_else(|response| response, |lease| Response::Written(Box::new(lease)))
    }

    /// Waits for a request. `rejects` are the codes with which the server refuses a write of an outdated version.
    async fn limited<T>(
        &self,
        verb: &str,
        rejects: &[u16],
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Response> {
        match timeout(self.limit, request).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(Error::Api(status))) if rejects.contains(&status.code) => Err(Response::Rejected),
            Ok(Err(error)) => Err(Response::Failed(text(verb, &error))),
            Err(_) => Err(Response::Failed(format!(
                "the API server did not answer within {} s",
                self.limit.as_secs_f32()
            ))),
        }
    }
}

fn text(verb: &str, error: &Error) -> String {
    match error {
        Error::Api(status) if status.code == 403 => format!(
            "{}. Grant the verbs get, create and update on leases in coordination.k8s.io",
            status.message
        ),
        Error::Api(status) if status.code == 404 => {
            format!(
                "{}. Create the namespace of the Lease, or name another one",
                status.message
            )
        }
        Error::Api(status) => format!("{verb}: {} {}", status.code, status.message),
        error => {
            // The outermost error of kube's client explains too little.
            let mut text = format!("{verb}: {error}");
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !text.contains(&cause_text) {
                    text = format!("{text}: {cause_text}");
                }
                source = cause.source();
            }
            text
        }
    }
}
