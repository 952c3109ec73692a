use std::fmt;

use serde_json::{Value, json};

use super::cause::Cause;
use super::kinds::Kind;

/// A refusal as from an API server: the content of a `Status`.
#[derive(Clone, Debug, PartialEq)]
pub struct SimError {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
    token: Option<String>,
}

impl SimError {
    /// The HTTP status.
    pub fn code(&self) -> u16 {
        self.code
    }

    /// The machine-readable reason, such as `NotFound`. Empty if a real API server gives none.
    pub fn reason(&self) -> &str {
        self.reason
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The `Status` object that a client gets.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let Some(token) = &self.token {
            status["metadata"]["continue"] = token.as_str().into();
        }
        status
    }
}

/// Constructors for the other modules.
#[doc(hidden)]
impl SimError {
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
            token: None,
        }
    }

    pub fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn body_ended() -> Self {
        Self::bad_request("the body of the request ended early")
    }

    /// The answer of a Go server to an error that is not a Status.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with(json!({}))
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    /// Custom resources do not support the verb.
    pub fn not_supported(kind: &Kind, verb: &str) -> Self {
        let resource = &kind.resource;
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        let details = json!({"group": kind.group, "kind": kind.plural});
        Self::new(405, "MethodNotAllowed", message).with(details)
    }

    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} not found", kind.quoted(name))).with(kind.details(name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str, leaving: bool) -> Self {
        let leaving = if leaving { "object is being deleted: " } else { "" };
        let message = format!("{leaving}{} already exists", kind.quoted(name));
        Self::new(409, "AlreadyExists", message).with(kind.details(name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {}: {why}", kind.quoted(name));
        Self::new(409, "Conflict", message).with(kind.details(name))
    }

    pub(crate) fn stale(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A real API server reads protobuf of all built-in kinds. This error explains how to make kubectl send another
    /// format.
    pub(crate) fn no_protobuf(kind: &Kind) -> Self {
        let instead = if kind.create_only {
            "`kubectl create -f FILE -o yaml`"
        } else {
            "`--dry-run=client -o yaml | kubectl apply -f -`"
        };
        let kind = &kind.kind;
        let message = format!("this simulated API server takes no protobuf for {kind}: use {instead}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A token without rights would be useless, because the simulator does not evaluate RBAC.
    pub(crate) fn no_tokens() -> Self {
        let message = "this simulated API server issues no tokens for service accounts: \
                       use a real one (`cargo xtask clusters N --backend real` starts some)";
        Self::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(406, "NotAcceptable", message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message).with(json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        }))
    }

    /// 422 about an object. The message names the kind as API servers do: `Widget.example.com "w"`.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let qualified = match group {
            "" => kind.to_owned(),
            group => format!("{kind}.{group}"),
        };
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({ "reason": cause.reason, "message": cause.message, "field": cause.field }))
            .collect();
        let mut details = json!({ "kind": kind, "causes": causes });
        if !group.is_empty() {
            details["group"] = group.into();
        }
        if !name.is_empty() {
            details["name"] = name.into();
        }
        let message = format!("{qualified} \"{name}\" is invalid: {text}");
        Self::new(422, "Invalid", message).with(details)
    }

    pub(crate) fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        Self::invalid("meta.k8s.io", kind, "", causes)
    }
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for SimError {}

impl SimError {
    /// Sets the continue token with which the client can go on, as in the 410 for a page.
    pub(crate) fn set_continue(&mut self, token: String) {
        self.token = Some(token);
    }
}
