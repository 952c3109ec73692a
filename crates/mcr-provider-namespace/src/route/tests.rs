use http::{StatusCode, Uri};

use super::*;
use crate::mapping::path::parse;

fn names(keep: bool) -> Names {
    Names::of(&"island".into(), keep).unwrap()
}

/// Where a request goes to, or how it is refused. `!`: connected, `~`: watched.
fn to(method: &str, uri: &str, keep: bool) -> Result<String, StatusCode> {
    let uri: Uri = uri.parse().unwrap();
    let mut headers = HeaderMap::new();
    if method == "APPLY" {
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/apply-patch+yaml"),
        );
    }
    let method: Method = method.replace("APPLY", "PATCH").parse().unwrap();
    let routed = parse(&uri)
        .and_then(|target| route(&method, &target, uri.query(), &headers, &names(keep)))
        .map_err(|refusal| refusal.code)?;
    Ok(match routed {
        Route::Pass => "as it is".to_owned(),
        Route::Connect { to, .. } => format!("!{to}"),
        Route::Map { to, watch: true, .. } => format!("~{to}"),
        Route::Map { to, .. } => to,
        Route::NothingDeleted => "nothing".to_owned(),
    })
}

#[track_caller]
fn refused(method: &str, uri: &str, keep: bool, code: StatusCode) {
    assert_eq!(to(method, uri, keep), Err(code), "{method} {uri}");
}

#[test]
fn the_own_namespace_is_the_real_one_in_every_verb() {
    let cases = "
        GET /api/v1/namespaces/default/configmaps/a /api/v1/namespaces/island/configmaps/a
        GET /api/v1/namespaces/default/configmaps /api/v1/namespaces/island/configmaps
        HEAD /api/v1/namespaces/default/configmaps /api/v1/namespaces/island/configmaps
        GET /api/v1/configmaps?limit=5 /api/v1/namespaces/island/configmaps?limit=5
        GET /api/v1/configmaps?watch=1 ~/api/v1/namespaces/island/configmaps?watch=1
        POST /api/v1/namespaces/default/configmaps /api/v1/namespaces/island/configmaps
        PUT /api/v1/namespaces/default/configmaps/a /api/v1/namespaces/island/configmaps/a
        PATCH /apis/apps/v1/namespaces/default/deployments/a/scale /apis/apps/v1/namespaces/island/deployments/a/scale
        APPLY /api/v1/namespaces/default/pods/a/status /api/v1/namespaces/island/pods/a/status
        DELETE /api/v1/namespaces/default/configmaps/a /api/v1/namespaces/island/configmaps/a
        DELETE /api/v1/namespaces/default/configmaps?labelSelector=a /api/v1/namespaces/island/configmaps?labelSelector=a
        POST /api/v1/namespaces/default/pods/a/eviction /api/v1/namespaces/island/pods/a/eviction
        POST /api/v1/namespaces/default/bindings /api/v1/namespaces/island/bindings
        GET /api/v1/namespaces/default/pods/a/log?follow=true !/api/v1/namespaces/island/pods/a/log?follow=true
        GET /api/v1/namespaces/default/pods/a/exec?command=ls !/api/v1/namespaces/island/pods/a/exec?command=ls
        OPTIONS /api/v1/namespaces/default/services/a/proxy/x/ !/api/v1/namespaces/island/services/a/proxy/x/";
    for case in cases.trim().lines() {
        let [method, uri, sent] = case.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{case}")
        };
        assert_eq!(to(method, uri, false).as_deref(), Ok(sent), "{case}");
    }
    for (method, uri) in [
        ("OPTIONS", "configmaps"),
        ("TRACE", "configmaps"),
        ("CONNECT", "pods/a/exec"),
        ("BREW", "pods"),
    ] {
        let uri = format!("/api/v1/namespaces/default/{uri}");
        refused(method, &uri, false, StatusCode::METHOD_NOT_ALLOWED);
    }
}

#[test]
fn one_object_is_not_watched() {
    for path in [
        "/api/v1/namespaces/default/pods/a?watch=1",
        "/api/v1/namespaces/default?watch=1",
    ] {
        assert!(to("GET", path, false).unwrap().starts_with('/'), "{path}");
    }
}

#[test]
fn without_a_namespace_there_are_lists_and_watches() {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        refused(
            method,
            "/api/v1/configmaps",
            false,
            StatusCode::METHOD_NOT_ALLOWED,
        );
        refused(method, "/api/v1/configmaps/a", false, StatusCode::NOT_FOUND);
    }
    refused("GET", "/api/v1/configmaps/a", false, StatusCode::NOT_FOUND);
}

#[test]
fn another_namespace_is_one_that_does_not_exist() {
    // The real name is no namespace inside either, nor are those of others.
    for other in ["island", "zoo", "kube-system", "Default", "x,y"] {
        let path = format!("/api/v1/namespaces/{other}/configmaps");
        let listed = to("GET", &path, false).unwrap();
        assert!(
            listed.starts_with("/api/v1/namespaces/island/configmaps?fieldSelector=metadata.namespace%3D"),
            "{listed}"
        );
        assert!(!listed.ends_with("%3Disland"), "{listed}");
        assert!(
            to("GET", &format!("{path}?watch=1"), false)
                .unwrap()
                .starts_with('~')
        );
        assert_eq!(to("DELETE", &path, false).as_deref(), Ok("nothing"));
        refused("POST", &path, false, StatusCode::NOT_FOUND);
        for method in ["GET", "PUT", "PATCH", "APPLY", "DELETE", "POST"] {
            for part in ["", "/status", "/scale", "/exec", "/proxy", "/log"] {
                refused(method, &format!("{path}/a{part}"), false, StatusCode::NOT_FOUND);
            }
        }
    }
    let own = to(
        "GET",
        "/api/v1/namespaces/zoo/configmaps?fieldSelector=metadata.namespace%3Ddefault",
        false,
    );
    assert!(
        own.unwrap()
            .ends_with("?fieldSelector=metadata.namespace%3Dzoo%2Cmetadata.namespace%3Disland")
    );
}

#[test]
fn with_kept_names_the_real_name_is_the_only_one() {
    let path = "/api/v1/namespaces/island/configmaps";
    assert_eq!(to("GET", path, true).as_deref(), Ok(path));
    refused(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        true,
        StatusCode::NOT_FOUND,
    );
    assert!(
        to("GET", "/api/v1/namespaces/default/pods", true)
            .unwrap()
            .ends_with("metadata.namespace%3Ddefault")
    );
    assert_eq!(
        to("GET", "/api/v1/namespaces/island", true).as_deref(),
        Ok("/api/v1/namespaces/island")
    );
}

#[test]
fn there_is_one_namespace_and_it_can_be_read() {
    let only = "/api/v1/namespaces?fieldSelector=metadata.name%3Disland";
    assert_eq!(to("GET", "/api/v1/namespaces", false).as_deref(), Ok(only));
    assert_eq!(
        to("GET", "/api/v1/namespaces?watch=1", false),
        Ok(format!("~{only}&watch=1"))
    );
    let other = to(
        "GET",
        "/api/v1/namespaces?fieldSelector=metadata.name%3Dzoo",
        false,
    )
    .unwrap();
    assert_eq!(other, format!("{only}%2Cmetadata.name%3Dzoo"));
    let own = to(
        "GET",
        "/api/v1/namespaces?fieldSelector=metadata.name%3Ddefault",
        false,
    )
    .unwrap();
    assert_eq!(own, format!("{only}%2Cmetadata.name%3Disland"));
    assert_eq!(
        to("GET", "/api/v1/namespaces/default", false).as_deref(),
        Ok("/api/v1/namespaces/island")
    );
    assert_eq!(
        to("GET", "/api/v1/namespaces/default/status", false).as_deref(),
        Ok("/api/v1/namespaces/island/status")
    );
    for other in ["island", "zoo", "kube-system"] {
        refused(
            "GET",
            &format!("/api/v1/namespaces/{other}"),
            false,
            StatusCode::NOT_FOUND,
        );
    }
    for method in ["POST", "PUT", "PATCH", "APPLY", "DELETE"] {
        for path in [
            "",
            "/default",
            "/zoo",
            "/default/status",
            "/default/finalize",
            "/zoo/finalize",
        ] {
            let path = format!("/api/v1/namespaces{path}");
            refused(method, &path, false, StatusCode::FORBIDDEN);
        }
    }
}

#[test]
fn what_is_about_the_server_can_only_be_read() {
    assert_eq!(to("GET", "/version", false).as_deref(), Ok("as it is"));
    refused("POST", "/apis/apps/v1", false, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn json_is_all_that_is_accepted() {
    let accept = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_static(value));
        }
        accept(&headers)
            .map(|value| value.to_str().unwrap().to_owned())
            .map_err(|refusal| refusal.code)
    };
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    assert_eq!(accept(&[]).as_deref(), Ok("application/json"));
    assert_eq!(accept(&[""]).as_deref(), Ok("application/json"));
    assert_eq!(accept(&["*/*"]).as_deref(), Ok("application/json"));
    assert_eq!(
        accept(&["application/vnd.kubernetes.protobuf, application/json"]).as_deref(),
        Ok("application/json")
    );
    assert_eq!(accept(&[table, "application/cbor"]).as_deref(), Ok(table));
    for other in [
        "application/vnd.kubernetes.protobuf",
        "application/yaml",
        "text/html",
        "application/cbor;q=1",
    ] {
        assert_eq!(accept(&[other]), Err(StatusCode::NOT_ACCEPTABLE), "{other}");
    }
}
