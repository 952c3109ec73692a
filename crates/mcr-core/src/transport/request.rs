//! What kind of request it is: that decides about its deadlines and how it ends when credentials are replaced.

use std::sync::Arc;

use http::{Request, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// One question, one answer.
    Unary,
    /// A watch: lines until either side ends it, resumable at any line.
    Watch,
    /// Lines that can't be resumed: `log?follow`.
    Follow,
    /// A connection that changes its protocol: exec, attach, port-forward.
    Upgrade,
    /// Passed on to something else by the API server; what comes back is not of Kubernetes.
    Proxy,
}

/// A request for messages: method and path, no query, for that can hold anything.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) class: Class,
    pub(crate) text: Arc<str>,
    /// Whether an API server answers with an object, or else text.
    pub(crate) wants_object: bool,
    /// Whether whoever asks said to understand compressed answers; kube's own requests never do.
    pub(crate) takes_encodings: bool,
}

impl Operation {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let asks = |name: &str| {
            query.split('&').any(|pair| {
                pair.strip_prefix(name)
                    .is_some_and(|rest| matches!(rest, "" | "=true" | "=1" | "=True" | "=TRUE" | "=t" | "=T"))
            })
        };
        let resource = path.starts_with("/api/") || path.starts_with("/apis/");
        let class = if request.headers().contains_key(header::UPGRADE) {
            Class::Upgrade
        } else if path.contains("/proxy/") || path.ends_with("/proxy") {
            Class::Proxy
        } else if asks("watch") || is_old_watch(path) {
            Class::Watch
        } else if path.ends_with("/log") && asks("follow") {
            Class::Follow
        } else {
            Class::Unary
        };
        let text = format!("{} {path}", request.method());
        Self {
            class,
            text: text.into(),
            takes_encodings: request
                .headers()
                .get(header::ACCEPT_ENCODING)
                .is_some_and(|value| value != "identity"),
            wants_object: resource && class == Class::Unary && !path.ends_with("/log"),
        }
    }
}

/// `/api/v1/watch/...` and `/apis/group/version/watch/...`, the form from before `?watch=true`.
fn is_old_watch(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    match parts.next() {
        Some("api") => parts.nth(1) == Some("watch"),
        Some("apis") => parts.nth(2) == Some("watch"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let class = |uri: &str| Operation::of(&Request::get(uri).body(()).unwrap()).class;
        assert_eq!(class("/api/v1/pods?limit=5&watch=true"), Class::Watch);
        assert_eq!(class("/api/v1/pods?watch=1&resourceVersion=3"), Class::Watch);
        assert_eq!(class("/api/v1/pods?watch=false"), Class::Unary);
        assert_eq!(class("/api/v1/pods?watchful=true"), Class::Unary);
        assert_eq!(class("/api/v1/watch/pods"), Class::Watch);
        assert_eq!(class("/api/v1/namespaces/watch"), Class::Unary);
        assert_eq!(
            class("/api/v1/namespaces/a/pods/b/log?follow=true"),
            Class::Follow
        );
        assert_eq!(class("/api/v1/namespaces/a/pods/b/log"), Class::Unary);
        assert_eq!(
            class("/api/v1/namespaces/a/services/b/proxy/x?watch=true"),
            Class::Proxy
        );
        let upgrade = Request::get("/x")
            .header("upgrade", "websocket")
            .body(())
            .unwrap();
        assert_eq!(Operation::of(&upgrade).class, Class::Upgrade);
        let operation = Operation::of(&Request::post("/apis/x/y?token=canary").body(()).unwrap());
        assert_eq!(&*operation.text, "POST /apis/x/y");
        assert!(operation.wants_object);
    }
}
