//! What kind of request it is: that decides about its deadlines and how it ends when credentials are replaced.

use std::sync::Arc;

use http::{Request, header};

use crate::path::Leads;

/// A request that goes through a scope carries it as an extension, since the layout may rewrite the path it was told from.
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
        let leads = Leads::of(path);
        let known = request.extensions().get::<Class>().copied();
        let class = known.unwrap_or_else(|| class(request, leads));
        let text = format!("{} {path}", request.method());
        Self {
            class,
            text: text.into(),
            takes_encodings: request
                .headers()
                .get(header::ACCEPT_ENCODING)
                .is_some_and(|value| value != "identity"),
            wants_object: class == Class::Unary && leads == Leads::ToObjects,
        }
    }
}

fn class<B>(request: &Request<B>, leads: Leads) -> Class {
    let query = request.uri().query().unwrap_or_default();
    let asks = |name: &str| {
        query.split('&').any(|pair| {
            pair.strip_prefix(name)
                .is_some_and(|rest| matches!(rest, "" | "=true" | "=1" | "=True" | "=TRUE" | "=t" | "=T"))
        })
    };
    match leads {
        _ if request.headers().contains_key(header::UPGRADE) => Class::Upgrade,
        Leads::ToProxied => Class::Proxy,
        Leads::ToOldWatch => Class::Watch,
        _ if asks("watch") => Class::Watch,
        Leads::ToLog if asks("follow") => Class::Follow,
        _ => Class::Unary,
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

    /// What an API server passes on, answers as text or takes for a watch, and the words around them in paths.
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

    fn check(path: &str, class: Class, wants_object: bool) {
        for path in [path.to_owned(), format!("{path}/")] {
            let operation = Operation::of(&Request::get(&path).body(()).unwrap());
            assert_eq!(
                (operation.class, operation.wants_object),
                (class, wants_object),
                "{path}"
            );
        }
    }

    fn is_object(path: &str) {
        check(path, Class::Unary, true);
    }

    #[test]
    fn no_name_makes_a_request_another_one() {
        let roots = [
            "/api/v1",
            "/api/v2",
            "/apis/apps/v1",
            "/apis/proxy/v1",
            "/apis/log/v1",
            "/apis/api/v1",
        ];
        for root in roots {
            is_object(root);
            for resource in RESOURCES {
                is_object(&format!("{root}/{resource}"));
                for name in NAMES {
                    if resource != "watch" {
                        is_object(&format!("{root}/{resource}/{name}"));
                    }
                    is_object(&format!("{root}/namespaces/{name}/{resource}"));
                    for other in NAMES {
                        is_object(&format!("{root}/namespaces/{name}/{resource}/{other}"));
                    }
                }
            }
        }
    }

    #[test]
    fn only_the_subresources_of_some_kinds_are_not_objects() {
        for (root, core) in [
            ("/api/v1", true),
            ("/api/v2", false),
            ("/apis/apps/v1", false),
            ("/apis/api/v1", false),
        ] {
            for (resource, subresource) in pairs(&RESOURCES, &SUBRESOURCES) {
                for (namespace, name) in pairs(&NAMES, &NAMES) {
                    let path = format!("{root}/namespaces/{namespace}/{resource}/{name}/{subresource}");
                    match (core, resource, subresource) {
                        (true, "pods" | "services", "proxy") => check(&path, Class::Proxy, false),
                        (true, "pods", "log") => check(&path, Class::Unary, false),
                        _ => is_object(&path),
                    }
                }
                for name in NAMES {
                    let path = format!("{root}/{resource}/{name}/{subresource}");
                    match (core, resource, subresource) {
                        (_, "watch", _) => {}
                        (true, "nodes", "proxy") => check(&path, Class::Proxy, false),
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
                let operation = Operation::of(
                    &Request::get(format!("/api/v1/{kind}/proxy{rest}"))
                        .body(())
                        .unwrap(),
                );
                assert_eq!(operation.class, Class::Proxy, "{kind} {rest}");
            }
        }
        check(
            "/api/v1/namespaces/a/services/https%3Ab%3A443/%70roxy/x",
            Class::Proxy,
            false,
        );
    }

    #[test]
    fn a_path_that_can_be_read_in_two_ways_is_one_of_objects() {
        for path in [
            "/api/v1/namespaces/a/services/b/proxy/../../../secrets",
            "/api/v1/namespaces/a/services/b/proxy/%2e%2E/%2e./secrets",
            "/api/v1/namespaces/a/services/b/proxy/..%2f..%2Fsecrets",
            "/api/v1/namespaces/a/services/../proxy/c",
            "/api/v1/namespaces/a/services//proxy",
            "/api/v1/namespaces/a%2Fservices/b/proxy",
            "/api/v1/namespaces/a/pods/b%2Flog",
            "/api/v1/namespaces/a/pods/./log",
            "/api/v1//namespaces/a/pods/b/log",
            "//api/v1/namespaces/a/pods/b/log",
            "/api/v1/watch/../secrets",
            "/api//v1/watch/secrets",
            "/%61pi/v1/secrets",
            "/apis%2Fapps%2Fv1%2Fdeployments",
            // No longer there, and nobody knows what would be.
            "/api/v1/proxy/nodes/a",
            "/api/v1/proxy/namespaces/a/services/b",
            // Of no kind that has it.
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
                Class::Proxy,
                false,
            );
            check(
                &format!("{prefix}/api/v1/namespaces/a/pods/b/log"),
                Class::Unary,
                false,
            );
        }
        // Which of the two begins the API can't be told.
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
            check(path, Class::Unary, false);
        }
    }

    #[test]
    fn logs_of_openshift_are_text() {
        for path in [
            "/apis/build.openshift.io/v1/namespaces/a/builds/b/log",
            "/apis/apps.openshift.io/v1/namespaces/a/deploymentconfigs/b/log",
        ] {
            check(path, Class::Unary, false);
        }
        let follow = "/apis/build.openshift.io/v1/namespaces/a/builds/b/log?follow=true";
        assert_eq!(
            Operation::of(&Request::get(follow).body(()).unwrap()).class,
            Class::Follow
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
            let operation = Operation::of(&Request::get(path).body(()).unwrap());
            assert_eq!((operation.class, operation.wants_object), (Class::Unary, true));
        }
    }

    #[test]
    fn old_watches_are_told_from_what_is_named_watch() {
        for path in [
            "/api/v1/watch/pods",
            "/api/v1/watch/namespaces/proxy/secrets",
            "/apis/apps/v1/watch/deployments",
        ] {
            check(path, Class::Watch, false);
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
