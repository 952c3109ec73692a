//! Errors and panics of reconcilers and other functions that were given to the controller.

use std::error::Error;

use kube::core::Status;
use mcr_core::{
    ClusterName, ClusterNotFound, ObjectKey, TransportError,
    internal::{causes, status_of, text_of_causes},
    reason,
};

use crate::terminal::TerminalError;

/// An error, as the engine needs it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The error and its causes in one line, without control and format characters, of at most 300 characters.
    pub(crate) text: String,
    /// Equal failures have an equal class, whatever objects their texts name. Of a response of an API server: the status code, the
    /// reason and the resource. Of other errors: zero, and what they have in common.
    pub(crate) class: (u16, String),
    /// Whether [`TerminalError`] is among the causes.
    pub(crate) terminal: bool,
    /// The name of the cluster, if `ClusterNotFound` is among the causes.
    pub(crate) cluster_not_found: Option<String>,
    pub(crate) is_panic: bool,
}

impl Failure {
    /// A failure without an error.
    pub(crate) fn new(text: &str) -> Self {
        let text = reason(text);
        Self {
            class: (0, text.clone()),
            text,
            terminal: false,
            cluster_not_found: None,
            is_panic: false,
        }
    }

    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let causes = || causes(error);
        let status = causes().find_map(status_of);
        let text = text_of_causes(error);
        let not_found = causes().find_map(|error| error.downcast_ref::<ClusterNotFound>());
        let transport = causes().find_map(|error| error.downcast_ref::<TransportError>());
        Self {
            class: match (status, transport, not_found) {
                (Some(status), ..) => (status.code, class_of(status)),
                (_, Some(error), _) => {
                    let method = error.operation().split(' ').next().unwrap_or_default();
                    (0, format!("{method}: {}", error.kind()))
                }
                (.., Some(_)) => (0, "cluster not found".to_owned()),
                _ => (0, text.clone()),
            },
            terminal: causes().any(|error| error.is::<TerminalError>()),
            cluster_not_found: not_found.map(|error| error.name.clone()),
            text,
            is_panic: false,
        }
    }

    /// The class of this failure of a request, without the name of its object.
    pub(crate) fn class_without(&self, key: &ObjectKey) -> (u16, String) {
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_');
        let words = self.class.1.split_inclusive(|letter| !is_of_name(letter));
        let class = words.map(|word| {
            let name = word.trim_end_matches(|letter| !is_of_name(letter));
            let is_key = *name == *key.name || key.namespace.as_deref() == Some(name);
            if is_key && !name.is_empty() { "…" } else { word }
        });
        (self.class.0, class.collect())
    }

    /// Whether no error policy is asked: the error is terminal, or the cluster of the request was not found.
    pub(crate) fn is_decided(&self, own: &ClusterName) -> bool {
        self.terminal || self.cluster_not_found.as_deref() == Some(own.as_str())
    }
}

/// The reason of a response, and the resource that it is about.
fn class_of(status: &Status) -> String {
    let resource = status.details.as_ref().map(|details| details.kind.as_str());
    match resource {
        Some(resource) if !resource.is_empty() => format!("{} {resource}", status.reason),
        _ => status.reason.clone(),
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{self, json};
    use kube::client::AuthError;
    use mcr_core::BoxError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("can't copy")]
    struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

    #[derive(Debug, thiserror::Error)]
    #[error("can't patch: {0}")]
    struct Shown(#[source] kube::Error);

    fn forbidden(message: &str) -> kube::Error {
        let status = Status::failure(message, "Forbidden").with_code(403);
        kube::Error::Api(status.boxed())
    }

    #[test]
    fn a_response_of_an_api_server_is_short_wherever_it_is_among_the_causes() {
        let anyhow = anyhow::Error::from(forbidden("no")).context("can't patch");
        let boxed = || Box::new(forbidden("no"));
        let cases: [(BoxError, &str); 6] = [
            (boxed(), "403 Forbidden: no"),
            (Box::new(Shown(forbidden("no"))), "can't patch: 403 Forbidden: no"),
            (anyhow.into(), "can't patch: 403 Forbidden: no"),
            (
                Box::new(Wrapped(Box::new(boxed()))),
                "can't copy: 403 Forbidden: no",
            ),
            (Box::new(Status::failure("no", "")), "no"),
            (Box::new(Status::failure("", "").with_code(500)), "500"),
        ];
        for (error, text) in cases {
            assert_eq!(Failure::of(error.as_ref()).text, text);
        }
    }

    #[test]
    fn a_response_of_another_shape_is_described_without_its_values() {
        let json = || serde_json::from_str::<Vec<u8>>(r#"[1, "hunter2"]"#).unwrap_err();
        assert!(json().to_string().contains("hunter2"));
        let described = "valid JSON of another shape than expected (line 1, column 13)";
        let of_kube = || kube::Error::SerdeError(json());
        let anyhow = anyhow::Error::from(of_kube()).context("can't read");
        let cases: [(BoxError, &str); 5] = [
            (Box::new(json()), ""),
            (Box::new(std::io::Error::other(json())), ""),
            (Box::new(of_kube()), "Error deserializing response: "),
            (
                Box::new(Shown(of_kube())),
                "can't patch: Error deserializing response: ",
            ),
            (anyhow.into(), "can't read: Error deserializing response: "),
        ];
        for (error, text) in cases {
            assert_eq!(Failure::of(error.as_ref()).text, format!("{text}{described}"));
        }
    }

    #[test]
    fn a_failed_login_shows_no_output_of_a_plugin() {
        let plugin = || AuthError::AuthExec("hunter2".to_owned());
        let wrapped: [BoxError; 4] = [
            plugin().into(),
            kube::Error::Auth(plugin()).into(),
            Box::new(Shown(kube::Error::Service(plugin().into()))),
            Box::new(Wrapped(Box::new(kube::Error::Auth(plugin())))),
        ];
        for error in wrapped {
            let text = Failure::of(error.as_ref()).text;
            assert!(text.contains("whoami") && !text.contains("hunter2"), "{text}");
        }
    }

    /// The class does not depend on the object: of no error of ours, and of no text that names the object of the request.
    #[test]
    fn equal_failures_of_different_objects_have_one_class() {
        use crate::confirm::ConfirmError::{Blocked, Forbidden, NoAnswer};
        let status = |name: &str, resource: &str| {
            let status = json!({"code": 403, "reason": "Forbidden", "message": name, "details": {"name": name, "kind": resource}});
            Box::new(serde_json::from_value::<Status>(status).unwrap())
        };
        let classes = ["x", "a-very.long-name"].map(|name| {
            let object = ObjectKey::namespaced(format!("ns-{name}"), name);
            let key = crate::request::RequestKey::new(ClusterName::new("berlin").unwrap(), object.clone());
            let (source, resource) = (status(name, "maps"), "maps".to_owned());
            let api = || kube::Error::Api(source.clone());
            let no_answer = NoAnswer {
                key: key.clone(),
                source: api(),
            };
            let forbidden = Forbidden {
                key: key.clone(),
                resource: resource.clone(),
                source: source.clone(),
            };
            let blocked = Blocked {
                key: key.clone(),
                resource,
                reason: "no claim".into(),
            };
            let errors: [BoxError; 6] = [
                api().into(),
                anyhow::Error::from(no_answer).context("can't copy").into(),
                forbidden.into(),
                blocked.into(),
                format!("no room for {key}, {name}").into(),
                "no room".into(),
            ];
            errors.map(|error| Failure::of(error.as_ref()).class_without(&object))
        });
        assert_eq!(classes[0], classes[1]);
        assert!(
            classes[0][..3]
                .iter()
                .all(|class| *class == (403, "Forbidden maps".to_owned())),
            "{classes:?}"
        );
        assert_ne!(
            Failure::of(&status("x", "secrets")).class,
            classes[0][0],
            "another right is another cause"
        );
    }

    #[test]
    fn causes_in_a_circle_come_to_an_end() {
        #[derive(Debug)]
        struct Itself;
        impl std::fmt::Display for Itself {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("round and round")
            }
        }
        impl Error for Itself {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(Failure::of(&Itself).text, "round and round");
    }
}
