//! The requests of a candidate to the API server.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Error,
    api::{DynamicObject, ObjectMeta, PostParams},
};
use tokio::time::timeout;

use crate::record;

/// How a request ended.
pub(crate) enum Response {
    Read(Option<Box<Lease>>),
    Written(Box<Lease>),
    /// The Lease has another version, exists already, or does not exist any more.
    Rejected,
    /// The text says why, and what to do.
    Failed(String),
}

/// The Lease on the API server.
pub(crate) struct Requests {
    pub(crate) api: Api<Lease>,
    /// For reading them: their times may not fit into the type.
    pub(crate) objects: Api<DynamicObject>,
    pub(crate) limit: Duration,
}

impl Requests {
    pub(crate) async fn read(&self, name: &str) -> Response {
        match timeout(self.limit, self.objects.get_opt(name)).await {
            Ok(Ok(object)) => match object.map(record::read).transpose() {
                Ok(lease) => Response::Read(lease.map(Box::new)),
                Err(problem) => Response::Failed(format!("get: the Lease can't be read: {problem}")),
            },
            Ok(Err(error)) => Response::Failed(text("get", &error)),
            Err(_) => self.too_late(),
        }
    }

    pub(crate) async fn create(&self, lease: &Lease) -> Response {
        match timeout(self.limit, self.api.create(&PostParams::default(), lease)).await {
            Ok(Ok(lease)) => Response::Written(Box::new(lease)),
            Ok(Err(Error::Api(status))) if status.code == 409 => Response::Rejected,
            Ok(Err(error)) => Response::Failed(text("create", &error)),
            Err(_) => self.too_late(),
        }
    }

    /// Replaces the version that `lease` has in its metadata.
    pub(crate) async fn update(&self, mut lease: Lease) -> Response {
        let name = lease.metadata.name.clone().unwrap_or_default();
        // Nothing needs them, and a server may refuse those of another version.
        let managed_fields = None;
        lease.metadata = ObjectMeta {
            managed_fields,
            ..lease.metadata
        };
        match timeout(
            self.limit,
            self.api.replace(&name, &PostParams::default(), &lease),
        )
        .await
        {
            Ok(Ok(lease)) => Response::Written(Box::new(lease)),
            Ok(Err(Error::Api(status))) if matches!(status.code, 404 | 409) => Response::Rejected,
            Ok(Err(error)) => Response::Failed(text("update", &error)),
            Err(_) => self.too_late(),
        }
    }

    fn too_late(&self) -> Response {
        Response::Failed(format!(
            "the API server did not answer within {} s",
            self.limit.as_secs_f32()
        ))
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
            // The first error of kube's client alone says little.
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
