use http::StatusCode;
use proptest::prelude::*;

use super::*;

fn objects(path: &'static str) -> Objects<'static> {
    // Paths live as long as the test.
    let uri: &'static Uri = Box::leak(Box::new(path.parse().unwrap()));
    match parse(uri).unwrap() {
        Target::Objects(objects) => objects,
        other => panic!("{path}: {other:?}"),
    }
}

fn refused(path: &str) -> StatusCode {
    let uri: Uri = path.parse().unwrap();
    match parse(&uri) {
        Err(refusal) => refusal.code,
        Ok(target) => panic!("{path}: {target:?}"),
    }
}

#[test]
fn paths_of_objects_are_taken_apart() {
    let map = objects("/api/v1/namespaces/default/configmaps/settings");
    assert_eq!(
        (
            map.group,
            map.version,
            map.namespace,
            map.plural,
            map.name,
            map.subresource
        ),
        ("", "v1", Some("default"), "configmaps", Some("settings"), None)
    );
    assert_eq!(
        map.path_in("island"),
        "/api/v1/namespaces/island/configmaps/settings"
    );
    assert_eq!(map.api_version(), "v1");

    let scale = objects("/apis/apps/v1/namespaces/default/deployments/web/scale?dryRun=All");
    assert_eq!(
        (
            scale.group,
            scale.version,
            scale.namespace,
            scale.plural,
            scale.name,
            scale.subresource
        ),
        (
            "apps",
            "v1",
            Some("default"),
            "deployments",
            Some("web"),
            Some("scale")
        )
    );
    assert_eq!(
        scale.path_in("island"),
        "/apis/apps/v1/namespaces/island/deployments/web/scale"
    );
    assert_eq!(scale.api_version(), "apps/v1");

    let all = objects("/apis/apps/v1/deployments");
    assert_eq!((all.namespace, all.plural, all.name), (None, "deployments", None));
    assert_eq!(
        all.path_in("island"),
        "/apis/apps/v1/namespaces/island/deployments"
    );

    let deep = objects("/apis/subresources.kubevirt.io/v1/namespaces/default/vms/a/portforward/8080/tcp/x/y");
    assert_eq!(deep.subresource, Some("portforward"));
    assert!(!deep.is_connect());
    assert!(deep.path_in("i").ends_with("/i/vms/a/portforward/8080/tcp/x/y"));
}

#[test]
fn names_with_colons_and_dots_are_names() {
    let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/system:a.b-c";
    assert_eq!(objects(binding).name, Some("system:a.b-c"));
    assert_eq!(
        objects("/api/v1/namespaces/default/services/https:web:443/proxy").name,
        Some("https:web:443")
    );
}

#[test]
fn the_kind_namespace_is_distinguished_from_what_is_in_one() {
    let cases = [
        ("/api/v1/namespaces", None, None),
        ("/api/v1/namespaces/default", Some("default"), None),
        (
            "/api/v1/namespaces/default/status",
            Some("default"),
            Some("status"),
        ),
        ("/api/v1/namespaces/zoo/finalize", Some("zoo"), Some("finalize")),
    ];
    for (path, name, subresource) in cases {
        let uri: Uri = path.parse().unwrap();
        assert_eq!(
            parse(&uri),
            Ok(Target::Namespaces { name, subresource }),
            "{path}"
        );
    }
    for path in [
        "/apis/example.com/v1/namespaces",
        "/apis/example.com/v1/namespaces/zoo",
        "/apis/example.com/v1/namespaces/zoo/status",
        "/api/v1/namespaces/default/status/x",
        "/api/v1/namespaces/default/namespaces",
        "/api/v1/namespaces/default/namespaces/zoo",
    ] {
        assert_eq!(refused(path), StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn what_is_about_the_server_is_passed_on() {
    for path in [
        "/api",
        "/apis",
        "/api/v1",
        "/apis/apps",
        "/apis/apps/v1",
        "/version",
        "/openapi/v2",
        "/openapi/v3/apis/apps/v1?hash=A0",
        "/healthz",
        "/livez/ping",
        "/readyz?verbose",
    ] {
        let uri: Uri = path.parse().unwrap();
        assert_eq!(parse(&uri), Ok(Target::About), "{path}");
    }
    for path in [
        "/metrics",
        "/logs/a",
        "/debug/pprof",
        "/openid/v1/jwks",
        "/.well-known/x",
        "/configz",
        "/apisx/y",
    ] {
        assert_eq!(refused(path), StatusCode::FORBIDDEN, "{path}");
    }
}

#[test]
fn old_forms_do_not_exist() {
    for path in [
        "/api/v1/watch/namespaces/zoo/configmaps",
        "/api/v1/watch/configmaps",
        "/apis/apps/v1/watch/namespaces/default/deployments/x",
        "/api/v1/proxy/namespaces/zoo/services/x",
        "/api/v1/proxy/nodes/x",
    ] {
        assert_eq!(refused(path), StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    for path in [
        "/",
        "//api/v1/configmaps",
        "/api//v1/configmaps",
        "/api/v1//configmaps",
        "/api/v1/configmaps/",
        "/api/v1/",
        "/api/",
        "/apis/",
        "/apis//v1",
        "/apis/apps//deployments",
        "/version/",
        "/api/v1/namespaces/",
        "/api/v1/namespaces//configmaps",
        "/api/v1/namespaces/default//configmaps",
        "/api/v1/namespaces/default/",
        "/api/v1/namespaces/default/../zoo/configmaps",
        "/api/v1/namespaces/../namespaces/zoo/configmaps",
        "/api/v1/namespaces/./configmaps",
        "/api/v1/namespaces/default/configmaps/..",
        "/api/v1/namespaces/default/configmaps/../../zoo/configmaps/x",
        "/api/v1/namespaces/default/configmaps/%2e%2e/%2e%2e/zoo/configmaps/x",
        "/api/v1/namespaces/default/configmaps/%2E%2E",
        "/api/v1/namespaces/default/configmaps/a%2Fb",
        "/api/v1/namespaces/default/configmaps/..%2f..%2fzoo%2fconfigmaps%2fx",
        "/api/v1/namespaces/%64efault/configmaps",
        "/api/v1/namespaces/default%2f..%2fzoo/configmaps",
        "/api/v1/namespaces/default/config%6daps",
        "/api/v1/%6eamespaces/zoo/configmaps",
        "/%61pi/v1/configmaps",
        "/api/v1/namespaces/default/configmaps/a%00",
        "/api/v1/namespaces/default/configmaps/a\\b",
        "/api/v1/namespaces/default/pods/x/log/..",
        "/openapi/../api/v1/secrets",
        "/openapi/%2e%2e/api/v1/secrets",
        "/healthz/../api/v1/secrets",
        "https://127.0.0.1/api/v1/configmaps",
        "http://x/api",
    ] {
        let Ok(uri) = path.parse::<Uri>() else { continue };
        let code = parse(&uri).map(|_| ()).map_err(|refusal| refusal.code);
        assert_eq!(code, Err(StatusCode::BAD_REQUEST), "{path}");
    }
    let authority = Uri::from_static("127.0.0.1:443");
    assert_eq!(parse(&authority).unwrap_err().code, StatusCode::BAD_REQUEST);
    assert_eq!(
        parse(&Uri::from_static("*")).unwrap_err().code,
        StatusCode::BAD_REQUEST
    );
}

#[test]
fn what_a_service_is_asked_for_is_its_own_unless_it_leads_out() {
    let web = "/api/v1/namespaces/default/services/web/proxy";
    for free in ["", "/", "/a/b/", "/a%20b/c?x=%2F", "/%E2%82%AC"] {
        let path: &'static str = Box::leak(format!("{web}{free}").into_boxed_str());
        let objects = objects(path);
        assert!(objects.is_connect(), "{path}");
        let free = free.split('?').next().unwrap();
        assert_eq!(
            objects.path_in("i"),
            format!("/api/v1/namespaces/i/services/web/proxy{free}")
        );
    }
    for free in [
        "/..",
        "/../../../zoo",
        "/a/%2e%2e/b",
        "/a/.%2E/b",
        "/a%2fb",
        "//",
        "/a//b",
        "/%zz",
        "/%2",
        "/a%5cb",
        "/%00",
    ] {
        assert_eq!(
            refused(&format!("{web}{free}")),
            StatusCode::BAD_REQUEST,
            "{free}"
        );
    }
    assert_eq!(
        refused("/api/v1/namespaces/default/services/w%65b/proxy/a"),
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        refused("/api/v1/namespaces/default/configmaps/web/proxy/%20"),
        StatusCode::BAD_REQUEST
    );
}

proptest! {
    /// Whatever is written: what is understood names exactly the segments that an API server sees, and there is one
    /// namespace in it, at the place where it was read.
    #[test]
    fn what_is_understood_is_what_an_api_server_understands(
        segments in prop::collection::vec(prop_oneof![
            Just("api"), Just("apis"), Just("v1"), Just("namespaces"), Just("default"), Just("zoo"), Just("configmaps"),
            Just(".."), Just("."), Just(""), Just("%2e%2e"), Just("%2F"), Just("a%2f.."), Just("proxy"), Just("watch"),
            Just("status"), Just("services"), Just("x"), Just("%64efault"), Just("finalize"),
        ], 1..10),
    ) {
        let path = format!("/{}", segments.join("/"));
        let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
        if let Ok(Target::Objects(objects)) = parse(&uri) {
            let mapped = objects.path_in("island");
            // As an API server does: undo the escapes, then split.
            let seen = String::from_utf8(decoded(&mapped).unwrap()).unwrap();
            let seen: Vec<&str> = seen.trim_matches('/').split('/').collect();
            let start = if seen[0] == "api" { 2 } else { 3 };
            prop_assert_eq!(&seen[start..start + 2], &["namespaces", "island"]);
            prop_assert_eq!(seen[start + 2], objects.plural);
            prop_assert!(!seen.contains(&".."), "{}", mapped);
            prop_assert!(!["watch", "proxy", "namespaces"].contains(&seen[start + 2]) || seen[start + 2] != "namespaces");
            if objects.subresource != Some("proxy") {
                prop_assert!(!mapped.contains('%') && !mapped.contains("//"));
            }
        }
    }
}
