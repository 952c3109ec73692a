use proptest::{prelude::*, sample::select};

use super::*;

fn asked(method: &str, path: &str) -> Result<Option<String>, u16> {
    let method = method.parse().unwrap();
    route(&method, &path.parse().unwrap(), "island").map_err(|refusal| refusal.code.as_u16())
}

#[test]
fn requests_in_the_own_namespace_are_sent_as_they_are() {
    let configmaps = "/api/v1/namespaces/island/configmaps";
    for method in ["GET", "HEAD", "POST", "DELETE"] {
        assert_eq!(asked(method, configmaps), Ok(None), "{method}");
    }
    for path in [
        "/api/v1/namespaces/island/configmaps/a?fieldManager=m",
        "/apis/apps/v1/namespaces/island/deployments/a/scale",
        "/api/v1/namespaces/island/pods/a/exec?command=x",
        "/api/v1/namespaces/island/pods/a/proxy/metrics/",
        "/api/v1/namespaces/island/services/a:80/proxy/x%20y/%C3%A4",
        "/apis/rbac.authorization.k8s.io/v1/namespaces/island/roles/system:a",
    ] {
        assert_eq!(asked("PATCH", path), Ok(None), "{path}");
    }
    for path in ["/api", "/apis/apps/v1", "/version", "/openapi/v3/apis/apps/v1", "/readyz"] {
        assert_eq!(asked("GET", path), Ok(None), "{path}");
        assert_eq!(asked("POST", path), Err(405), "{path}");
    }
    assert_eq!(asked("GET", "/api/v1/namespaces/island"), Ok(None));
}

#[test]
fn all_namespaces_are_the_own_one() {
    let to = |path: &str| asked("GET", path).unwrap().unwrap();
    assert_eq!(to("/api/v1/pods"), "/api/v1/namespaces/island/pods");
    assert_eq!(
        to("/apis/apps/v1/deployments?watch=1&labelSelector=a"),
        "/apis/apps/v1/namespaces/island/deployments?watch=1&labelSelector=a"
    );
}

#[test]
fn the_rest_is_refused() {
    for (method, path, code) in [
        ("GET", "/api/v1/namespaces/zoo/configmaps", 403),
        ("POST", "/api/v1/namespaces/zoo/configmaps", 403),
        ("GET", "/api/v1/namespaces/zoo", 403),
        ("GET", "/api/v1/namespaces", 403),
        ("PUT", "/api/v1/namespaces/island", 403),
        ("DELETE", "/api/v1/namespaces/island", 403),
        ("PUT", "/api/v1/namespaces/island/finalize", 403),
        ("GET", "/api/v1/namespaces/zoo/status", 403),
        ("GET", "/apis/example.com/v1/namespaces/island", 403),
        ("DELETE", "/api/v1/pods", 403),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", 403),
        ("GET", "/api/v1/nodes/a", 403),
        ("GET", "/api/v1/nodes/a/proxy/x", 403),
        ("GET", "/api/v1/status", 403),
        ("GET", "/metrics", 403),
        ("GET", "/", 403),
        ("GET", "/api/v1/watch/namespaces/island/configmaps", 404),
        ("GET", "/apis/apps/v1/watch/deployments", 404),
        ("GET", "http://zoo/api/v1/namespaces/island/pods", 400),
        ("GET", "/api/v1/namespaces/island/../zoo/pods", 400),
        ("GET", "/api/v1/namespaces/%69sland/pods", 400),
        ("GET", "/api/v1/namespaces/island/pods/a%2f..%2fb", 400),
        ("GET", "/api/v1/namespaces/island//pods", 400),
        ("GET", "//api/v1/namespaces/island/pods", 400),
        ("GET", "/api/v1/namespaces/island/pods/", 400),
        ("GET", "/openapi/v2/../../api/v1/secrets", 400),
        ("GET", "/api/v1/namespaces/island/pods/a/proxy/../../b", 400),
        ("GET", "/api/v1/namespaces/island/pods/a/proxy/%2e%2e/b", 400),
        ("GET", "/api/v1/namespaces/island/pods/a/proxy/x%2fb", 400),
        ("GET", "/api/v1/namespaces/island/pods/a/proxy/x//b", 400),
        ("GET", "/api/v1/namespaces/island/pods/a/proxy/%", 400),
        ("GET", "/api/v1/namespaces/island/secrets/a/proxy/%2e%2e", 400),
    ] {
        assert_eq!(asked(method, path), Err(code), "{method} {path}");
    }
}

#[test]
fn a_refusal_is_a_status_that_names_the_cluster() {
    let uri = "/api/v1/namespaces/zoo/pods".parse().unwrap();
    let refusal = route(&Method::GET, &uri, "island").unwrap_err();
    assert!(refusal.message.contains("\"island\""), "{}", refusal.message);
    let response = refusal.into_response();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(response.headers()["content-type"], "application/json");
}

proptest! {
    /// Whatever is asked: what is sent is about the server, or in the own namespace as every parser reads it.
    #[test]
    fn nothing_else_is_sent(
        method in select(vec!["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]),
        pieces in prop::collection::vec(select(vec![
            "api", "apis", "v1", "apps", "namespaces", "island", "zoo", "pods", "a", "status", "finalize", "proxy", "watch", "version",
            "..", ".", "", "%2e%2e", "%2f", "%69sland", "island%2f..", "nodes",
        ]), 1..9),
        query in select(vec!["", "?watch=1", "?namespace=zoo"]),
    ) {
        let path = format!("/{}{query}", pieces.join("/"));
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        let Ok(sent) = route(&method.parse().unwrap(), &uri, "island") else { return Ok(()) };
        let sent = sent.unwrap_or(path);
        let segments: Vec<&str> = sent.split('?').next().unwrap().split('/').skip(1).collect();
        let (root, below) = match segments.as_slice() {
            ["api", _, below @ ..] => ("", below),
            ["apis", group, _, below @ ..] => (*group, below),
            about => {
                prop_assert!(matches!(method, "GET" | "HEAD") && !about.contains(&".."), "{sent}");
                return Ok(());
            }
        };
        let own = matches!(below, [] | ["namespaces", "island", ..]);
        prop_assert!(own && !segments.iter().any(|segment| matches!(*segment, "." | "..")), "{sent}");
        let itself = matches!(below, ["namespaces", _] | ["namespaces", _, "status" | "finalize", ..]);
        prop_assert!(!itself || root.is_empty() && matches!(method, "GET" | "HEAD"), "{method} {sent}");
    }
}
