//! The requests of a candidate to the API server.

use std::{iter, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Error,
    api::{DynamicObject, PostParams},
    client::AuthError,
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

/// The error in one line of at most 500 characters. It is shown to whoever may read the status of the candidate.
fn text(verb: &str, error: &Error) -> String {
    let text = match error {
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
            let first = error as &(dyn std::error::Error + 'static);
            let causes = || iter::successors(Some(first), |error| error.source());
            if causes().any(|cause| cause.is::<AuthError>()) {
                // Its text quotes what a credential plugin wrote.
                return format!(
                    "{verb}: the credentials of the kubeconfig can't be loaded; try them with kubectl auth whoami"
                );
            }
            // The outermost error of kube's client explains too little.
            causes().fold(verb.to_owned(), |text, cause| {
                let cause = cause.to_string();
                if text.contains(&cause) {
                    text
                } else {
                    format!("{text}: {cause}")
                }
            })
        }
    };
    let is_plain = |letter: &char| {
        !letter.is_control()
            && !matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
    };
    text.chars().filter(is_plain).take(500).collect()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_error_shows_no_output_of_a_credential_plugin_and_is_one_line() {
        let plugin = || AuthError::AuthExec("s3cret".to_owned());
        for error in [Error::Auth(plugin()), Error::Service(plugin().into())] {
            let shown = text("get", &error);
            assert!(
                shown.contains("kubectl auth whoami") && !shown.contains("s3cret"),
                "{shown}"
            );
        }
        let of_server = |code| {
            Error::Api(
                Status::failure(&"no\n\u{202e}".repeat(900), "")
                    .with_code(code)
                    .boxed(),
            )
        };
        for code in [403, 404, 500] {
            let shown = text("get", &of_server(code));
            assert!(
                shown.chars().count() <= 500 && !shown.contains(['\n', '\u{202e}']),
                "{shown}"
            );
        }
        let refused = Error::Service("connection refused".into());
        assert_eq!(text("get", &refused), "get: ServiceError: connection refused");
    }
}
