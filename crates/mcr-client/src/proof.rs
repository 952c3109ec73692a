//! What an answer proves: that an API server answers, and that it knows the user of the credentials. Nothing here sends a
//! request.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::Value;

/// The user of a request whose credentials prove nothing.
pub const ANONYMOUS: &str = "system:anonymous";

/// What a probe asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The namespace `kube-system`.
    KubeSystem,
    /// The groups of the API. By default only users may read them.
    Groups,
    /// The version. By default everybody may read it.
    Version,
    /// Who the user is.
    Review,
}

/// What an answer proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Proof {
    /// An API server knows the user: it gives the object, with this UID if it has one, or names the user that it refuses.
    User(Option<Arc<str>>),
    /// An API server answers, but shows nothing of the user.
    Server,
    /// An API server answers, and takes the user for [`ANONYMOUS`].
    Anonymous,
    /// The credentials are refused.
    Unauthorized,
    /// Too many requests: the answer says nothing else.
    Busy,
    /// What was asked for is not there. Another request may prove more.
    NotThere(String),
    /// No API server answers, or none that works.
    Nothing(String),
}

/// What an answer to a probe proves. A success alone proves nothing.
pub(crate) fn proof(asked: Asked, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Proof {
    match status {
        StatusCode::UNAUTHORIZED => return Proof::Unauthorized,
        StatusCode::TOO_MANY_REQUESTS => return Proof::Busy,
        _ => {}
    }
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |at: &str| json.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let is = |version: &str, kind: &str| text("/apiVersion") == version && text("/kind") == kind;
    if is("v1", "Status") {
        return match (status, refused_user(text("/message"))) {
            (StatusCode::FORBIDDEN, Some(ANONYMOUS)) => Proof::Anonymous,
            (StatusCode::FORBIDDEN, Some(_)) => Proof::User(None),
            _ if status.is_client_error() => Proof::NotThere(format!(
                "the API server answers {status}, which does not show that it knows the user of the credentials"
            )),
            _ if status.is_server_error() => Proof::Nothing(format!(
                "the API server answers {status}; it may be starting or overloaded"
            )),
            _ => Proof::Nothing(format!(
                "a Status answered in place of an object ({status}): something before the API server changes its answers"
            )),
        };
    }
    if status.is_success() {
        let user = text("/status/userInfo/username");
        let proves = match asked {
            Asked::KubeSystem => {
                let is_it = is("v1", "Namespace") || is("meta.k8s.io/v1", "PartialObjectMetadata");
                is_it && text("/metadata/name") == "kube-system"
            }
            Asked::Groups => is("v1", "APIGroupList") && json["groups"].is_array(),
            Asked::Review if is("authentication.k8s.io/v1", "SelfSubjectReview") => match user {
                ANONYMOUS => return Proof::Anonymous,
                user => !user.is_empty(),
            },
            Asked::Review | Asked::Version => false,
        };
        if proves {
            let uid = Some(text("/metadata/uid")).filter(|uid| !uid.is_empty());
            return Proof::User(uid.map(Arc::from));
        }
        if ["/major", "/minor", "/gitVersion"].iter().all(|at| !text(at).is_empty()) {
            return Proof::Server;
        }
    }
    let foreign = describe_foreign(status, headers, body);
    match status {
        StatusCode::NOT_FOUND => Proof::NotThere(foreign),
        _ => Proof::Nothing(foreign),
    }
}

/// The user that the message of a 403 names, as in `User "alice" cannot get …`.
pub fn refused_user(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("User \"").or_else(|| message.split_once("user \""))?;
    let (user, _) = rest.split_once('"')?;
    Some(user).filter(|user| !user.is_empty())
}

/// Describes an answer that is not one of an API server. Quotes nothing of it but the host to which it leads.
pub fn describe_foreign(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let body = body.trim_ascii_start();
    let text_of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_html = text_of(header::CONTENT_TYPE).is_some_and(|media| media.starts_with("text/html"));
    let what = match body.first() {
        _ if is_html => "an HTML page",
        Some(b'<') => "an HTML page",
        Some(b'{' | b'[') => "JSON that is not from an API server",
        Some(_) => "text that is not from an API server",
        None => "nothing but a status",
    };
    let leads_to = text_of(header::LOCATION).and_then(|location| {
        let uri: Uri = location.parse().ok()?;
        let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!(" to {}://{}{port}", uri.scheme_str()?, uri.host()?))
    });
    let why = match status.as_u16() {
        407 => "a proxy before the API server wants a login; put it into proxy-url",
        421 => "the server does not serve this name; check the address and tls-server-name",
        426 => "the server wants another protocol; check the port",
        502..=504 => "a load balancer stands before the API server, and does not reach it",
        _ if what == "an HTML page" || status.is_redirection() => {
            "a login proxy or load balancer stands before the API server"
        }
        _ => "another server answers at this address, or something before the API server answers in its place",
    };
    format!("{what} answered ({status}{}): {why}", leads_to.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"#;
    const NAMESPACE: &str = r#"{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u"}}"#;
    const VERSION: &str = r#"{"major":"1","minor":"34","gitVersion":"v1.34.1"}"#;
    const REVIEW: &str = r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"#;

    #[test]
    fn only_what_an_api_server_says_to_a_user_it_knows_is_a_proof_of_the_user() {
        use Asked::{Groups, KubeSystem, Review, Version};
        let status = |message: &str| format!("{STATUS}{}}}", Value::from(message));
        let review = |user: &str| format!("{REVIEW}{user:?}}}}}}}");
        let forbidden = |user: &str| status(&format!("namespaces \"kube-system\" is forbidden: User {user:?} cannot get"));
        let of = |asked, code, body: &str| {
            match proof(asked, StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), body.as_bytes()) {
                Proof::NotThere(_) => Proof::NotThere(String::new()),
                Proof::Nothing(_) => Proof::Nothing(String::new()),
                proof => proof,
            }
        };
        let (nothing, not_there) = (Proof::Nothing(String::new()), Proof::NotThere(String::new()));
        for (asked, code, body, proves) in [
            (KubeSystem, 200, NAMESPACE, Proof::User(Some("u".into()))),
            (KubeSystem, 200, &NAMESPACE.replace("kube-system", "other"), nothing.clone()),
            (KubeSystem, 200, r#"{"metadata":{"name":"kube-system","uid":"u"}}"#, nothing.clone()),
            (KubeSystem, 403, &forbidden("alice"), Proof::User(None)),
            (KubeSystem, 403, &forbidden(ANONYMOUS), Proof::Anonymous),
            (KubeSystem, 403, &forbidden(""), not_there.clone()),
            (KubeSystem, 403, r#"{"message":"User \"alice\" cannot"}"#, nothing.clone()),
            (KubeSystem, 200, &forbidden("alice"), nothing.clone()),
            (KubeSystem, 500, &forbidden("alice"), nothing.clone()),
            (KubeSystem, 404, &status("not found"), not_there.clone()),
            (KubeSystem, 404, "default backend - 404", not_there),
            (KubeSystem, 401, NAMESPACE, Proof::Unauthorized),
            (KubeSystem, 429, "", Proof::Busy),
            (KubeSystem, 302, NAMESPACE, nothing.clone()),
            (KubeSystem, 204, "", nothing.clone()),
            (KubeSystem, 200, r#"{"message":"hello"}"#, nothing.clone()),
            (KubeSystem, 200, VERSION, Proof::Server),
            (Version, 200, VERSION, Proof::Server),
            (Version, 200, r#"{"major":"1","minor":34}"#, nothing.clone()),
            (Groups, 200, r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#, Proof::User(None)),
            (Groups, 200, NAMESPACE, nothing.clone()),
            (Review, 201, &review("alice"), Proof::User(None)),
            (Review, 201, &review(ANONYMOUS), Proof::Anonymous),
            (Review, 201, &review(""), nothing.clone()),
            (Review, 200, NAMESPACE, nothing),
        ] {
            assert_eq!(of(asked, code, body), proves, "{asked:?} {code} {body}");
        }
    }

    #[test]
    fn the_words_name_what_answered_and_quote_nothing() {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, "https://u:SECRET@login.example.test/x?token=SECRET".parse().unwrap());
        let words = |code, headers: &HeaderMap, body: &str| {
            describe_foreign(StatusCode::from_u16(code).unwrap(), headers, body.as_bytes())
        };
        assert_eq!(
            words(302, &headers, "<html>SECRET"),
            "an HTML page answered (302 Found to https://login.example.test): a login proxy or load balancer stands \
             before the API server"
        );
        for (code, body, begins) in [
            (204, "", "nothing but a status answered (204 No Content)"),
            (403, "<html>SECRET", "an HTML page answered (403 Forbidden): a login proxy"),
            (407, "", "nothing but a status answered (407 Proxy Authentication Required): a proxy"),
            (404, "SECRET", "text that is not from an API server answered (404 Not Found): another server"),
            (200, r#"{"a":"SECRET"}"#, "JSON that is not from an API server answered (200 OK): another server"),
        ] {
            let words = words(code, &HeaderMap::new(), body);
            assert!(words.starts_with(begins) && !words.contains("SECRET"), "{words}");
        }
    }
}
