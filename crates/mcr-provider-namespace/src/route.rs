//! Decides where requests are sent if their cluster is a namespace. No I/O.
//!
//! Accepts only canonical paths. Everything that two parsers could interpret differently is refused: percent escapes,
//! dot segments, empty segments. So no spelling of a path leads to another namespace.

use http::{HeaderValue, Method, Response, StatusCode, Uri, header};
use http_body_util::Full;
use mcr_core::AnswerBody;
use serde_json::json;

/// The first segments of paths that concern the server itself.
const ABOUT: [&str; 5] = ["version", "openapi", "healthz", "livez", "readyz"];
/// The prefixes of an older form of paths for watches and proxies, in which the namespace has another position.
const OLD_FORMS: [&str; 2] = ["watch", "proxy"];
/// The segments after a namespace that an API server interprets as a subresource of the namespace, not as a kind in
/// it.
const SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// The answer to a request that is refused: a `Status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
}

/// Decides about a request in the cluster whose namespace is `own`. `None`: send it unchanged. Otherwise: send it to
/// this path and query.
pub(crate) fn route(method: &Method, uri: &Uri, own: &str) -> Result<Option<String>, Refusal> {
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(not_canonical("it has a host"));
    }
    let Some(path) = uri.path().strip_prefix('/') else {
        return Err(not_canonical("it does not begin with a slash"));
    };
    let segments: Vec<&str> = path.split('/').collect();
    let (group, root, below) = match segments.as_slice() {
        ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => ("", 0, &[][..]),
        ["api", _, below @ ..] => ("", 2, below),
        ["apis", group, _, below @ ..] => (*group, 3, below),
        [first, ..] if ABOUT.contains(first) => ("", 0, &[][..]),
        ["", ..] => return Err(not_canonical("it has an empty segment")),
        _ => {
            return Err(forbidden(
                "a cluster that is a namespace has the API, its discovery, version and health; ask the host cluster for other \
                 paths",
            ));
        }
    };
    // The rest of such a path is passed on to a pod or service.
    let proxied = match below {
        ["namespaces", _, "pods" | "services", _, "proxy", rest @ ..] if group.is_empty() => rest.len(),
        _ => 0,
    };
    let (strict, free) = segments.split_at(segments.len() - proxied);
    strict.iter().try_for_each(|segment| check(segment))?;
    check_proxied(free)?;
    let read = matches!(*method, Method::GET | Method::HEAD);
    match below {
        [] if read => Ok(None),
        [] => Err(refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "the server does not allow this method on the requested resource",
        )),
        [first, ..] if OLD_FORMS.contains(first) => Err(no_such_path()),
        // The kind Namespace, which is in the core group.
        ["namespaces", namespace] | ["namespaces", namespace, "status"]
            if group.is_empty() && read && *namespace == own =>
        {
            Ok(None)
        }
        ["namespaces"] | ["namespaces", _] if group.is_empty() => Err(not_here(own)),
        ["namespaces", _, subresource, ..] if SUBRESOURCES.contains(subresource) => Err(not_here(own)),
        // Namespaces do not contain namespaces.
        ["namespaces", _, "namespaces", ..] => Err(no_such_path()),
        ["namespaces", namespace, _, ..] if *namespace == own => Ok(None),
        ["namespaces", ..] => Err(not_here(own)),
        // The path of a kind in all namespaces. For a cluster-scoped kind, the API server has no such path in a
        // namespace.
        [plural] if read && !SUBRESOURCES.contains(plural) => {
            let root = segments[..root].join("/");
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            Ok(Some(format!("/{root}/namespaces/{own}/{plural}{query}")))
        }
        _ => Err(not_here(own)),
    }
}

fn check(segment: &str) -> Result<(), Refusal> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    match segment {
        "" => Err(not_canonical("it has an empty segment")),
        "." | ".." => Err(not_canonical("it has a dot segment")),
        _ if segment.bytes().all(plain) => Ok(()),
        _ => Err(not_canonical(
            "it has a percent escape or a character that no name of a kind, namespace or object has",
        )),
    }
}

/// Checks the segments that are passed on to a pod or service. Only what could lead out of the path is refused.
fn check_proxied(segments: &[&str]) -> Result<(), Refusal> {
    for (at, segment) in segments.iter().enumerate() {
        let last = at + 1 == segments.len();
        // The API server resolves escapes before it splits a path. One slash at the end is allowed, because it may
        // matter to a service.
        let escapes = segment.split('%').skip(1);
        let harmless = |rest: &str| {
            let byte = rest.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            byte.is_some_and(|byte| byte >= b' ' && byte != 0x7f && !b"./\\%".contains(&byte))
        };
        if matches!(*segment, "." | "..") || segment.is_empty() && !last || segment.contains('\\') {
            return Err(not_canonical(
                "it has a dot segment, an empty segment or a backslash",
            ));
        }
        if !escapes.into_iter().all(harmless) {
            return Err(not_canonical("it has an escaped dot, slash or control character"));
        }
    }
    Ok(())
}

fn refusal(code: StatusCode, message: impl Into<String>) -> Refusal {
    let message = message.into();
    Refusal { code, message }
}

fn not_canonical(why: &str) -> Refusal {
    let message = format!("the path of the request is not canonical: {why}");
    refusal(StatusCode::BAD_REQUEST, message)
}

fn forbidden(message: impl Into<String>) -> Refusal {
    refusal(StatusCode::FORBIDDEN, message)
}

fn not_here(own: &str) -> Refusal {
    forbidden(format!(
        "the cluster is namespace {own:?} of another cluster: it has no other namespaces, and no objects outside of namespaces; \
         use the host cluster"
    ))
}

fn no_such_path() -> Refusal {
    refusal(
        StatusCode::NOT_FOUND,
        "the server could not find the requested resource",
    )
}

impl Refusal {
    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let reason = match self.code {
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            _ => "BadRequest",
        };
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": reason, "code": self.code.as_u16(),
        });
        let body = AnswerBody::new(Full::new(status.to_string().into_bytes().into()));
        let mut response = Response::new(body);
        *response.status_mut() = self.code;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

#[cfg(test)]
mod tests;
