//! What an answer proves: that an API server answers, and that it knows the user of the credentials. No I/O.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, Uri, header};
use mcr_access::reason;
use serde_json::Value;

/// The user of a request without credentials.
pub const ANONYMOUS: &str = "system:anonymous";

const HTML: &str = "an HTML page";

/// What a probe asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked {
    /// The namespace `kube-system`.
    KubeSystem,
    /// The groups of the API, which anonymous users may not read by default.
    Groups,
    /// The version, which everybody may read by default.
    Version,
    /// Who the user is.
    Review,
}

/// What an answer proves.
#[derive(Debug)]
pub(crate) enum Proof {
    /// An API server knows the user: it gives the object, with this UID, or names the user to whom it refuses it.
    User(Option<Arc<str>>),
    /// An API server answers, but shows nothing of the user.
    Server,
    /// An API server takes the user for [`ANONYMOUS`].
    Anonymous,
    /// The credentials are refused.
    Unauthorized,
    /// Too many requests, which says nothing else.
    Busy,
    /// It is not served. Another request may prove more.
    NotServed(String),
    /// No API server answers, or none that works.
    Nothing(String),
}

/// What an answer to a probe proves. A success alone proves nothing.
pub(crate) fn proof(asked: Asked, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Proof {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |at: &str| json.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let is = |version: &str, kind: &str| text("/apiVersion") == version && text("/kind") == kind;
    match (status, is("v1", "Status"), refused_user(text("/message"))) {
        (StatusCode::UNAUTHORIZED, ..) => return Proof::Unauthorized,
        (StatusCode::TOO_MANY_REQUESTS, ..) if !is_html(headers, body) => return Proof::Busy,
        (_, false, _) => {}
        (StatusCode::FORBIDDEN, _, Some(ANONYMOUS)) => return Proof::Anonymous,
        (StatusCode::FORBIDDEN, _, Some(_)) => return Proof::User(None),
        _ if status.is_client_error() => {
            return Proof::NotServed(format!("the API server answers {status} and names no user"));
        }
        _ if status.is_server_error() => {
            let why = format!("the API server answers {status}; it may be starting or overloaded");
            return Proof::Nothing(why);
        }
        _ => return Proof::Nothing(format!("a Status answered in place of an object ({status})")),
    }
    let of_user = match (asked, text("/status/userInfo/username")) {
        _ if !status.is_success() => false,
        (Asked::KubeSystem, _) if text("/metadata/name") == "kube-system" => {
            is("v1", "Namespace") || is("meta.k8s.io/v1", "PartialObjectMetadata")
        }
        (Asked::Groups, _) => is("v1", "APIGroupList"),
        (Asked::Review, ANONYMOUS) => return Proof::Anonymous,
        (Asked::Review, user) => is("authentication.k8s.io/v1", "SelfSubjectReview") && !user.is_empty(),
        _ => false,
    };
    let of_server = || {
        ["/major", "/minor", "/gitVersion"]
            .iter()
            .all(|at| !text(at).is_empty())
    };
    if of_user {
        let uid = Some(text("/metadata/uid")).filter(|uid| !uid.is_empty());
        Proof::User(uid.map(Arc::from))
    } else if status.is_success() && of_server() {
        Proof::Server
    } else if status == StatusCode::NOT_FOUND {
        Proof::NotServed(describe_foreign(status, headers, body))
    } else {
        Proof::Nothing(describe_foreign(status, headers, body))
    }
}

/// Whether a body is a Status of an API server.
pub fn is_status(body: &[u8]) -> bool {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    json["kind"] == "Status" && json["apiVersion"] == "v1"
}

/// The user that the message of a 403 names, as in `User "alice" cannot get …`.
pub fn refused_user(message: &str) -> Option<&str> {
    let named = message.split_once("User \"");
    let (_, rest) = named.or_else(|| message.split_once("user \""))?;
    let (user, _) = rest.split_once('"')?;
    Some(user).filter(|user| !user.is_empty())
}

fn is_html(headers: &HeaderMap, body: &[u8]) -> bool {
    let media = headers.get(header::CONTENT_TYPE);
    media.is_some_and(|media| media.as_bytes().starts_with(b"text/html"))
        || body.trim_ascii_start().starts_with(b"<")
}

/// Describes an answer that is not from an API server. Quotes nothing of it but the host to which it leads.
pub fn describe_foreign(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let text_of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let what = match body.trim_ascii_start().first() {
        _ if is_html(headers, body) => HTML,
        Some(b'{' | b'[') => "JSON that is not from an API server",
        Some(_) => "text that is not from an API server",
        None => "nothing but a status",
    };
    let leads_to = text_of(header::LOCATION).and_then(|location| {
        let uri: Uri = location.parse().ok()?;
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!(
            " to {}",
            reason(&format!("{}://{}{port}", uri.scheme_str()?, uri.host()?))
        ))
    });
    let leads_to = leads_to.unwrap_or_default();
    let why = match status.as_u16() {
        407 => "a proxy before the API server wants a login; put it into proxy-url",
        421 => "the server does not serve this name; check the address and tls-server-name",
        426 => "the server wants another protocol; check the port",
        502..=504 => "a load balancer stands before the API server, and does not reach it",
        300..400 => "a login proxy or load balancer stands before the API server",
        _ if what == HTML => "a login proxy or load balancer stands before the API server",
        _ => "another server answers at this address, or in place of the API server",
    };
    format!("{what} answered ({status}{leads_to}): {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is asked for, the status, the body, and what they prove.
    #[rustfmt::skip]
    const ANSWERS: &[(Asked, u16, &str, &str)] = &[
        (Asked::KubeSystem, 200, r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}"#, "User(Some"),
        (Asked::KubeSystem, 200, r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"another","uid":"u"}}"#, "Nothing"),
        (Asked::KubeSystem, 200, r#"{"metadata":{"name":"kube-system","uid":"u"}}"#, "Nothing"),
        (Asked::KubeSystem, 403, r#"{"kind":"Status","apiVersion":"v1","message":"User \"alice\" cannot"}"#, "User(None"),
        (Asked::KubeSystem, 403, r#"{"kind":"Status","apiVersion":"v1","message":"User \"system:anonymous\" cannot"}"#, "Anonymous"),
        (Asked::KubeSystem, 302, r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}"#, "Nothing"),
        (Asked::KubeSystem, 404, r#"{"kind":"Status","apiVersion":"v1"}"#, "NotServed"),
        (Asked::KubeSystem, 200, r#"{"major":"1","minor":"34","gitVersion":"v1.34.1"}"#, "Server"),
        (Asked::Version, 200, r#"{"major":"1","minor":34}"#, "Nothing"),
        (Asked::Groups, 200, r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#, "User(None"),
        (Asked::Groups, 200, r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system"}}"#, "Nothing"),
        (Asked::Review, 201, r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"me"}}}"#, "User(None"),
        (Asked::Review, 201, r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"system:anonymous"}}}"#, "Anonymous"),
        (Asked::Review, 201, r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{}}"#, "Nothing"),
    ];

    #[test]
    fn only_what_an_api_server_gives_to_a_known_user_proves_the_user() {
        for (asked, status, body, proves) in ANSWERS {
            let status = StatusCode::from_u16(*status).unwrap();
            let proof = proof(*asked, status, &HeaderMap::new(), body.as_bytes());
            assert!(
                format!("{proof:?}").starts_with(proves),
                "{proof:?} by {status} {body}"
            );
        }
        let location = format!("https://u:p@{}.example/?q", "a".repeat(9_000));
        let headers = HeaderMap::from_iter([(header::LOCATION, location.parse().unwrap())]);
        let leads_away = describe_foreign(StatusCode::FOUND, &headers, b"");
        assert!(
            leads_away.len() < 600 && !leads_away.contains("u:p"),
            "{leads_away}"
        );
    }
}
