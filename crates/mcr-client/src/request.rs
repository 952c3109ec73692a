//! Classifies requests. The class of a request decides about its timeouts, and how its response ends after a rotation of
//! credentials.

use std::{sync::Arc, time::Duration};

use http::{Request, header};

use crate::path::PathTarget;

/// The class of a request.
///
/// A request that goes through a scope carries its class as an extension, because the layout of the scope may rewrite the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// A request with one response of limited length, such as a read or a list.
    Unary,
    /// A watch: lines until either side ends it. It can be resumed after any line.
    Watch,
    /// A followed log, which can't be resumed: `log?follow`.
    Follow,
    /// A connection that changes its protocol: exec, attach, port-forward.
    Upgrade,
    /// A request that the API server forwards to a pod, service or node. The response does not come from the API server.
    Proxy,
}

/// An extension of a request: the head of its response may take at least this long.
///
/// A watch whose `timeoutSeconds` is long needs it: its head may come as late as its end.
#[derive(Debug, Clone, Copy)]
pub struct HeadTimeout(pub Duration);

/// What the rest of the crate needs to know about a request after it was sent.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    pub(crate) class: RequestClass,
    /// Method and path for errors. Without the query, which may hold secrets.
    pub(crate) operation: Arc<str>,
    /// Whether the API server responds with an object rather than text.
    pub(crate) wants_object: bool,
    /// Whether the request accepts compressed responses. Requests that kube builds never do.
    pub(crate) accepts_encodings: bool,
}

impl RequestInfo {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let target = PathTarget::of(path);
        let known = request.extensions().get::<RequestClass>().copied();
        let class = known.unwrap_or_else(|| class(request, target));
        let operation = format!("{} {path}", request.method());
        Self {
            class,
            operation: operation.into(),
            accepts_encodings: request
                .headers()
                .get(header::ACCEPT_ENCODING)
                .is_some_and(|value| value != "identity"),
            wants_object: class == RequestClass::Unary && target == PathTarget::Resource,
        }
    }
}

fn class<B>(request: &Request<B>, target: PathTarget) -> RequestClass {
    let query = request.uri().query().unwrap_or_default();
    let is_true = |name: &str| {
        query.split('&').any(|pair| {
            pair.strip_prefix(name)
                .is_some_and(|rest| matches!(rest, "" | "=true" | "=1" | "=True" | "=TRUE" | "=t" | "=T"))
        })
    };
    match target {
        _ if request.headers().contains_key(header::UPGRADE) => RequestClass::Upgrade,
        PathTarget::Proxy => RequestClass::Proxy,
        PathTarget::DeprecatedWatch => RequestClass::Watch,
        _ if is_true("watch") => RequestClass::Watch,
        PathTarget::Log if is_true("follow") => RequestClass::Follow,
        _ => RequestClass::Unary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let class = |uri: &str| RequestInfo::of(&Request::get(uri).body(()).unwrap()).class;
        assert_eq!(class("/api/v1/pods?limit=5&watch=true"), RequestClass::Watch);
        assert_eq!(
            class("/api/v1/pods?watch=1&resourceVersion=3"),
            RequestClass::Watch
        );
        assert_eq!(class("/api/v1/pods?watch=false"), RequestClass::Unary);
        assert_eq!(class("/api/v1/pods?watchful=true"), RequestClass::Unary);
        assert_eq!(class("/api/v1/watch/pods"), RequestClass::Watch);
        assert_eq!(class("/api/v1/namespaces/watch"), RequestClass::Unary);
        assert_eq!(
            class("/api/v1/namespaces/a/pods/b/log?follow=true"),
            RequestClass::Follow
        );
        assert_eq!(class("/api/v1/namespaces/a/pods/b/log"), RequestClass::Unary);
        assert_eq!(
            class("/api/v1/namespaces/a/services/b/proxy/x?watch=true"),
            RequestClass::Proxy
        );
        let upgrade = Request::get("/x")
            .header("upgrade", "websocket")
            .body(())
            .unwrap();
        assert_eq!(RequestInfo::of(&upgrade).class, RequestClass::Upgrade);
        let info = RequestInfo::of(&Request::post("/apis/x/y?token=canary").body(()).unwrap());
        assert_eq!(&*info.operation, "POST /apis/x/y");
        assert!(info.wants_object);
    }

    /// The subresources that get special treatment, and the other fixed segments of paths. All may be names of objects.
    const NAMES: [&str; 13] = [
        "proxy",
        "log",
        "watch",
        "namespaces",
        "api",
        "apis",
        "v1",
        "pods",
        "services",
        "nodes",
        "status",
        "builds",
        "a",
    ];
    const RESOURCES: [&str; 10] = [
        "pods",
        "services",
        "nodes",
        "secrets",
        "proxy",
        "log",
        "watch",
        "api",
        "apis",
        "namespaces",
    ];
    const SUBRESOURCES: [&str; 9] = [
        "status",
        "scale",
        "proxy",
        "log",
        "exec",
        "attach",
        "portforward",
        "watch",
        "namespaces",
    ];

    fn check(path: &str, class: RequestClass, wants_object: bool) {
        for path in [path.to_owned(), format!("{path}/")] {
            let info = RequestInfo::of(&Request::get(&path).body(()).unwrap());
            assert_eq!((info.class, info.wants_object), (class, wants_object), "{path}");
        }
    }

    fn is_object(path: &str) {
        check(path, RequestClass::Unary, true);
    }

    #[test]
    fn only_the_subresources_of_some_kinds_are_not_objects() {
        for (root, core) in [
            ("/api/v1", true),
            ("/api/v2", false),
            ("/apis/apps/v1", false),
            ("/apis/api/v1", false),
            ("/apis/proxy/v1", false),
            ("/apis/log/v1", false),
        ] {
            is_object(root);
            for (resource, subresource) in pairs(&RESOURCES, &SUBRESOURCES) {
                is_object(&format!("{root}/{resource}"));
                for (namespace, name) in pairs(&NAMES, &NAMES) {
                    is_object(&format!("{root}/namespaces/{namespace}/{resource}"));
                    is_object(&format!("{root}/namespaces/{namespace}/{resource}/{name}"));
                    let path = format!("{root}/namespaces/{namespace}/{resource}/{name}/{subresource}");
                    match (core, resource, subresource) {
                        (true, "pods" | "services", "proxy") => check(&path, RequestClass::Proxy, false),
                        (true, "pods", "log") => check(&path, RequestClass::Unary, false),
                        _ => is_object(&path),
                    }
                }
                for name in NAMES {
                    if resource != "watch" {
                        is_object(&format!("{root}/{resource}/{name}"));
                    }
                    let path = format!("{root}/{resource}/{name}/{subresource}");
                    match (core, resource, subresource) {
                        (_, "watch", _) => {}
                        (true, "nodes", "proxy") => check(&path, RequestClass::Proxy, false),
                        _ => is_object(&path),
                    }
                }
            }
        }
    }

    fn pairs<'a>(one: &'a [&'a str], other: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
        one.iter()
            .flat_map(|one| other.iter().map(|other| (*one, *other)))
    }

    #[test]
    fn what_is_passed_on_may_have_any_path_of_its_own() {
        for kind in [
            "namespaces/proxy/services/https:log:443",
            "namespaces/a/pods/proxy:80",
            "nodes/api",
        ] {
            for rest in [
                "",
                "/x",
                "/api/v1/namespaces/a/secrets",
                "/pods/b/log?follow=true",
                "/a%20b?watch=true",
            ] {
                let info = RequestInfo::of(
                    &Request::get(format!("/api/v1/{kind}/proxy{rest}"))
                        .body(())
                        .unwrap(),
                );
                assert_eq!(info.class, RequestClass::Proxy, "{kind} {rest}");
            }
        }
        check(
            "/api/v1/namespaces/a/services/https%3Ab%3A443/%70roxy/x",
            RequestClass::Proxy,
            false,
        );
    }

    #[test]
    fn what_only_looks_like_a_proxy_or_a_log_is_an_object() {
        for path in [
            "/%61pi/v1/secrets",
            // Current API servers don't have these paths.
            "/api/v1/proxy/nodes/a",
            "/api/v1/proxy/namespaces/a/services/b",
            // These kinds don't have the subresource.
            "/api/v1/pods/a/proxy",
            "/api/v1/namespaces/a/nodes/b/proxy",
            "/api/v1/namespaces/a/pods/b/log/c",
            "/apis/a.example/v1/namespaces/a/builds/b/log",
        ] {
            is_object(path);
        }
    }

    #[test]
    fn what_stands_before_the_api_hides_nothing() {
        for prefix in [
            "/clusters/root:proxy",
            "/services/apiexport/a/log/clusters/proxy",
            "/k8s/clusters/c-1",
            "/proxy",
            "/log",
        ] {
            is_object(&format!("{prefix}/api/v1/namespaces/proxy/secrets"));
            is_object(&format!("{prefix}/api/v1/namespaces/log/secrets/log"));
            is_object(&format!("{prefix}/apis/apps/v1/namespaces/a/deployments/proxy"));
            check(
                &format!("{prefix}/api/v1/namespaces/a/services/b/proxy"),
                RequestClass::Proxy,
                false,
            );
            check(
                &format!("{prefix}/api/v1/namespaces/a/pods/b/log"),
                RequestClass::Unary,
                false,
            );
        }
        // Either of the two may be the beginning of the API.
        is_object("/clusters/api/api/v1/namespaces/a/services/b/proxy");
        is_object("/clusters/apis/api/v1/namespaces/a/pods/b/log");
    }

    #[test]
    fn outside_of_the_api_there_is_text_and_nothing_is_passed_on() {
        for path in [
            "/",
            "/version",
            "/healthz",
            "/metrics",
            "/logs/proxy",
            "/proxy",
            "/log",
            "/proxy/x",
            "/watch/pods",
        ] {
            check(path, RequestClass::Unary, false);
        }
    }

    #[test]
    fn logs_of_openshift_are_text() {
        for path in [
            "/apis/build.openshift.io/v1/namespaces/a/builds/b/log",
            "/apis/apps.openshift.io/v1/namespaces/a/deploymentconfigs/b/log",
        ] {
            check(path, RequestClass::Unary, false);
        }
        let follow = "/apis/build.openshift.io/v1/namespaces/a/builds/b/log?follow=true";
        assert_eq!(
            RequestInfo::of(&Request::get(follow).body(()).unwrap()).class,
            RequestClass::Follow
        );
    }

    #[test]
    fn only_logs_are_followed() {
        for path in [
            "secrets/log",
            "secrets/a",
            "services/a/log",
            "pods/log",
            "pods/a/status",
        ] {
            let path = format!("/api/v1/namespaces/log/{path}?follow=true");
            let info = RequestInfo::of(&Request::get(path).body(()).unwrap());
            assert_eq!((info.class, info.wants_object), (RequestClass::Unary, true));
        }
    }

    #[test]
    fn old_watches_are_told_from_what_is_named_watch() {
        for path in [
            "/api/v1/watch/pods",
            "/api/v1/watch/namespaces/proxy/secrets",
            "/apis/apps/v1/watch/deployments",
        ] {
            check(path, RequestClass::Watch, false);
        }
        for path in [
            "/api/v1/watch",
            "/apis/apps/v1/watch",
            "/apis/watch/v1/a",
            "/apis/a/watch/b",
            "/api/watch/b",
        ] {
            is_object(path);
        }
    }
}
