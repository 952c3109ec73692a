//! Answers of an API server that are made here, without a request to the host.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use mcr_core::AnswerBody;
use serde_json::json;

/// The answer to a request that is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    reason: &'static str,
    pub(crate) message: String,
    /// The object that was not found: group, plural, name.
    about: Option<(String, String, String)>,
}

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            about: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The answer of an API server to an unknown path.
    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message)
    }

    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let qualified = if group.is_empty() {
            plural.to_owned()
        } else {
            format!("{plural}.{group}")
        };
        let mut refusal = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            format!("{qualified} \"{name}\" not found"),
        );
        refusal.about = Some((group.to_owned(), plural.to_owned(), name.to_owned()));
        refusal
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// The request is for a cluster-scoped kind.
    pub(crate) fn cluster_scoped(cluster: &str, plural: &str) -> Self {
        Self::forbidden(format!(
            "cluster {cluster:?} is a namespace of another cluster: it has no cluster-scoped kinds such as {plural}; use \
             the host cluster"
        ))
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "objects of a cluster that is a namespace come as JSON only; accept application/json";
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    pub(crate) fn unsupported(media: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "a body of type {media:?} can't be read here, where its namespace must be checked; send JSON, as \
                 application/json or as one of the JSON patches (what is sent as application/apply-patch+yaml may be JSON)"
            ),
        )
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!(
            "the body is larger than the {} MiB that are accepted",
            limit >> 20
        );
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// The answer: a `Status`.
    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some((group, plural, name)) = self.about {
            status["details"] = json!({"name": name, "kind": plural});
            if !group.is_empty() {
                status["details"]["group"] = group.into();
            }
        }
        answer(self.code, status.to_string())
    }
}

/// The answer of an API server to a deletion that matches no object: an empty list.
pub(crate) fn nothing_deleted(api_version: &str, kind: &str) -> Response<AnswerBody> {
    let list = json!({
        "kind": format!("{kind}List"), "apiVersion": api_version, "metadata": {"resourceVersion": ""}, "items": [],
    });
    answer(StatusCode::OK, list.to_string())
}

fn answer(code: StatusCode, body: String) -> Response<AnswerBody> {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(whole(body.into_bytes()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CONTENT_LENGTH, length);
    response
}

/// A body of these bytes.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnswerBody {
    AnswerBody::new(Full::new(bytes.into()))
}
