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

    /// The subresources that get special treatment, and the other fixed segments of paths. All may be names of objects.
    const NAMES: &str = "proxy log watch namespaces api apis v1 pods services nodes status builds a";
    const RESOURCES: &str = "pods services nodes secrets proxy log watch api apis namespaces";
    const SUBRESOURCES: &str = "status scale proxy log exec attach portforward watch namespaces";

    fn check(path: &str, class: RequestClass, wants_object: bool) {
        let mut paths = vec![path.to_owned()];
        if !path.contains('?') {
            paths.push(format!("{path}/"));
        }
        for path in paths {
            let info = RequestInfo::of(&Request::get(&path).body(()).unwrap());
            assert_eq!((info.class, info.wants_object), (class, wants_object), "{path}");
        }
    }

    fn is_object(path: &str) {
        check(path, RequestClass::Unary, true);
    }

    #[test]
    fn requests_are_distinguished() {
        use RequestClass::{Follow, Proxy, Unary, Watch};
        for (class, wants_object, paths) in [
            (
                Watch,
                false,
                "/api/v1/pods?limit=5&watch=true /api/v1/pods?watch=1&resourceVersion=3
                 /api/v1/watch/pods /api/v1/watch/namespaces/proxy/secrets /apis/apps/v1/watch/deployments",
            ),
            (
                Follow,
                false,
                "/api/v1/namespaces/a/pods/b/log?follow=true
                 /apis/build.openshift.io/v1/namespaces/a/builds/b/log?follow=true",
            ),
            (Proxy, false, "/api/v1/namespaces/a/services/b/proxy/x?watch=true"),
            // Outside of the API there is text, and nothing is passed on. Logs are text.
            (
                Unary,
                false,
                "/ /version /healthz /metrics /logs/proxy /proxy /log /proxy/x /watch/pods
                 /api/v1/namespaces/a/pods/b/log
                 /apis/build.openshift.io/v1/namespaces/a/builds/b/log
                 /apis/apps.openshift.io/v1/namespaces/a/deploymentconfigs/b/log",
            ),
            // What only looks like a watch, a proxy or a log. Current API servers don't have paths that begin with a proxy.
            (
                Unary,
                true,
                "/api/v1/pods?watch=false /api/v1/pods?watchful=true /api/v1/namespaces/watch /api/v1/watch
                 /apis/apps/v1/watch /apis/watch/v1/a /apis/a/watch/b /api/watch/b
                 /%61pi/v1/secrets /api/v1/proxy/nodes/a /api/v1/proxy/namespaces/a/services/b
                 /api/v1/pods/a/proxy /api/v1/namespaces/a/nodes/b/proxy /api/v1/namespaces/a/pods/b/log/c
                 /apis/a.example/v1/namespaces/a/builds/b/log
                 /api/v1/namespaces/log/secrets/log?follow=true /api/v1/namespaces/log/secrets/a?follow=true
                 /api/v1/namespaces/log/services/a/log?follow=true /api/v1/namespaces/log/pods/log?follow=true
                 /api/v1/namespaces/log/pods/a/status?follow=true",
            ),
        ] {
            paths
                .split_whitespace()
                .for_each(|path| check(path, class, wants_object));
        }
        let upgrade = Request::get("/x").header("upgrade", "websocket");
        let upgrade = RequestInfo::of(&upgrade.body(()).unwrap());
        assert_eq!(upgrade.class, RequestClass::Upgrade);
        let info = RequestInfo::of(&Request::post("/apis/x/y?token=canary").body(()).unwrap());
        assert_eq!(&*info.operation, "POST /apis/x/y");
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
            for (resource, subresource) in pairs(RESOURCES, SUBRESOURCES) {
                is_object(&format!("{root}/{resource}"));
                for (namespace, name) in pairs(NAMES, NAMES) {
                    is_object(&format!("{root}/namespaces/{namespace}/{resource}"));
                    is_object(&format!("{root}/namespaces/{namespace}/{resource}/{name}"));
                    let path = format!("{root}/namespaces/{namespace}/{resource}/{name}/{subresource}");
                    match (core, resource, subresource) {
                        (true, "pods" | "services", "proxy") => check(&path, RequestClass::Proxy, false),
                        (true, "pods", "log") => check(&path, RequestClass::Unary, false),
                        _ => is_object(&path),
                    }
                }
                for name in NAMES.split(' ') {
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

    fn pairs<'a>(one: &'a str, other: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        one.split(' ')
            .flat_map(|one| other.split(' ').map(move |other| (one, other)))
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
                check(&format!("/api/v1/{kind}/proxy{rest}"), RequestClass::Proxy, false);
            }
        }
        check(
            "/api/v1/namespaces/a/services/https%3Ab%3A443/%70roxy/x",
            RequestClass::Proxy,
            false,
        );
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
}
