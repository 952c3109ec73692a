use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, channel::mpsc};
use http::Method;
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::*;

type Asked = (Method, String, HeaderMap, String);
type Answer = dyn Fn(&str) -> Response<AnswerBody> + Send + Sync;

/// A host that answers everything in one way, and remembers what it was asked.
#[derive(Clone)]
struct Fake {
    asked: Arc<Mutex<Vec<Asked>>>,
    answer: Arc<Answer>,
    kinds: Arc<Kinds>,
}

impl Fake {
    fn new(answer: impl Fn(&str) -> Response<AnswerBody> + Send + Sync + 'static) -> Self {
        Self {
            asked: Arc::default(),
            answer: Arc::new(answer),
            kinds: Arc::default(),
        }
    }

    fn host(&self) -> Host {
        let host = self.clone();
        Arc::new(move |request: Request<Body>| {
            let host = host.clone();
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let body = String::from_utf8(body.collect_bytes().await?.to_vec())?;
                let path = parts.uri.to_string();
                host.asked
                    .lock()
                    .unwrap()
                    .push((parts.method, path.clone(), parts.headers, body));
                // Others come in between.
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok((host.answer)(&path))
            })
        })
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        let names = Names::of(&"island".into(), false).unwrap();
        send(names, &self.kinds, request, self.host()).await
    }

    async fn get(&self, uri: &str) -> (StatusCode, String) {
        let response = self
            .send(Request::get(uri).body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = response.status();
        (
            status,
            String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap(),
        )
    }

    fn paths(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(|(_, path, ..)| path.clone())
            .collect()
    }
}

fn reply(code: u16, media: &str, body: impl Into<Vec<u8>>) -> Response<AnswerBody> {
    let body = body.into();
    Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, media)
        .header(header::CONTENT_LENGTH, body.len())
        .body(refuse::whole(body))
        .unwrap()
}

fn json_reply(body: &Value) -> Response<AnswerBody> {
    reply(200, "application/json", body.to_string())
}

fn discovery() -> Value {
    json!({"kind": "APIResourceList", "resources": [
        {"name": "configmaps", "namespaced": true, "kind": "ConfigMap"},
        {"name": "nodes", "namespaced": false, "kind": "Node"},
        {"name": "nodes/status", "namespaced": false, "kind": "Node"},
    ]})
}

fn typical() -> Fake {
    Fake::new(|path| match path {
        "/api/v1" => json_reply(&discovery()),
        path if path.starts_with("/api/v1/") => {
            json_reply(&json!({"kind": "ConfigMapList", "items": [{"metadata": {"namespace": "island"}}]}))
        }
        _ => reply(404, "text/plain", "404 page not found"),
    })
}

#[tokio::test]
async fn the_length_of_an_answer_is_that_of_what_is_answered() {
    let host = typical();
    let request = Request::get("/api/v1/configmaps").body(Body::empty()).unwrap();
    let response = host.send(request).await.unwrap();
    let length: usize = response.headers()[header::CONTENT_LENGTH]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), length);
    assert_eq!(
        &body[..],
        br#"{"items":[{"metadata":{"namespace":"default"}}],"kind":"ConfigMapList"}"#
    );
}

#[tokio::test]
async fn bodies_are_mapped_and_headers_set_for_what_can_be_read() {
    let host = typical();
    let request = Request::post("/api/v1/namespaces/default/configmaps")
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONTENT_LENGTH, 44)
        .header(
            header::ACCEPT,
            "application/vnd.kubernetes.protobuf,application/json",
        )
        .header(header::ACCEPT_ENCODING, "gzip")
        .body(Body::from(br#"{"metadata":{"namespace":"default"}}"#.to_vec()))
        .unwrap();
    assert_eq!(host.send(request).await.unwrap().status(), StatusCode::OK);
    let asked = host.asked.lock().unwrap();
    let (method, path, headers, body) = &asked[0];
    assert_eq!(
        (method, &**path),
        (&Method::POST, "/api/v1/namespaces/island/configmaps")
    );
    assert_eq!(body, r#"{"metadata":{"namespace":"island"}}"#);
    assert_eq!(headers[header::ACCEPT], "application/json");
    assert_eq!(headers[header::ACCEPT_ENCODING], "identity");
    assert!(!headers.contains_key(header::CONTENT_LENGTH));
}

#[tokio::test]
async fn cluster_scoped_and_unknown_kinds_are_refused_without_being_asked_for() {
    let host = typical();
    let (code, body) = host.get("/api/v1/nodes").await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        status["message"],
        "cluster \"island\" is a namespace of another cluster: it has no cluster-scoped kinds such as nodes; use the host \
         cluster"
    );
    assert_eq!(
        (&status["kind"], &status["reason"], &status["code"]),
        (&json!("Status"), &json!("Forbidden"), &json!(403))
    );
    assert_eq!(host.get("/api/v1/nodes/a/status").await.0, StatusCode::FORBIDDEN);
    assert_eq!(host.get("/api/v1/unknowns").await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        host.get("/apis/no.such.group/v1/things").await.0,
        StatusCode::NOT_FOUND
    );
    assert_eq!(host.paths(), ["/api/v1", "/apis/no.such.group/v1"]);
}

#[tokio::test(start_paused = true)]
async fn the_table_of_kinds_is_asked_for_once_and_again_only_after_a_while() {
    let host = typical();
    let all = (0..20).map(|number| {
        let host = host.clone();
        async move {
            host.get(if number % 2 == 0 {
                "/api/v1/nodes"
            } else {
                "/api/v1/later"
            })
            .await
            .0
        }
    });
    futures::future::join_all(all).await;
    assert_eq!(host.paths(), ["/api/v1"]);
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(host.get("/api/v1/nodes").await.0, StatusCode::FORBIDDEN);
    assert_eq!(
        host.paths().len(),
        1,
        "what is known is not asked for again so soon"
    );
    assert_eq!(host.get("/api/v1/later").await.0, StatusCode::NOT_FOUND);
    assert_eq!(host.paths().len(), 2, "what was missing is");
    tokio::time::sleep(Duration::from_secs(61)).await;
    host.get("/api/v1/nodes").await;
    assert_eq!(host.paths().len(), 3, "a kind that is refused is, later");
    assert_eq!(host.get("/api/v1/configmaps").await.0, StatusCode::OK);
    assert_eq!(host.paths().len(), 4);
}

#[tokio::test]
async fn a_host_that_does_not_report_its_kinds_is_quoted() {
    let host = Fake::new(|_| reply(503, "application/json", r#"{"kind":"Status","code":503}"#));
    let (code, body) = host.get("/api/v1/configmaps").await;
    assert_eq!((code.as_u16(), &*body), (503, r#"{"kind":"Status","code":503}"#));
    let host = Fake::new(|_| reply(200, "text/html", "<html>secret</html>"));
    let error = host
        .send(Request::get("/api/v1/configmaps").body(Body::empty()).unwrap())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("not JSON") && !error.to_string().contains("secret"),
        "{error}"
    );
}

#[tokio::test]
async fn a_watch_comes_line_by_line_and_ends_with_its_reader() {
    let (sender, receiver) = mpsc::unbounded::<Bytes>();
    let chunks = receiver.map(|chunk| Ok::<_, BoxError>(Frame::data(chunk)));
    let watch = Response::builder()
        .header(header::CONTENT_TYPE, "application/json;stream=watch")
        .body(StreamBody::new(chunks))
        .unwrap();
    let watch = Mutex::new(Some(watch.map(AnswerBody::new)));
    let host = Fake::new(move |path| match path {
        "/api/v1" => json_reply(&discovery()),
        _ => watch.lock().unwrap().take().unwrap(),
    });
    let request = Request::get("/api/v1/configmaps?watch=true")
        .body(Body::empty())
        .unwrap();
    let response = tokio::time::timeout(Duration::from_secs(60), host.send(request)).await;
    let mut lines = response
        .expect("nothing has been sent yet")
        .unwrap()
        .into_body()
        .into_data_stream();
    for number in 0..3 {
        let line = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"namespace\":\"island\",\"name\":\"{number}\"}}}}}}\n"
        );
        let (start, end) = line.split_at(20);
        sender.unbounded_send(start.to_owned().into()).unwrap();
        sender.unbounded_send(end.to_owned().into()).unwrap();
        let seen = tokio::time::timeout(Duration::from_secs(60), lines.next()).await;
        let seen = seen.expect("a line that is complete").unwrap().unwrap();
        assert_eq!(seen, line.replace("island", "default"));
    }
    assert!(!sender.is_closed());
    drop(lines);
    assert!(sender.is_closed());
}

#[tokio::test]
async fn upgrades_logs_and_proxies_pass_as_they_are() {
    #[derive(Clone, Debug, PartialEq)]
    struct Upgraded;
    let host = Fake::new(|path| {
        let mut response = match path {
            path if path.contains("/exec") => reply(101, "", ""),
            path if path.contains("/missing") => reply(
                404,
                "application/json",
                r#"{"kind":"Status","details":{"kind":"namespaces","name":"island"}}"#,
            ),
            path if path.contains("/log") => reply(200, "text/plain", "in island\n"),
            _ => reply(200, "application/json", r#"{"metadata":{"namespace":"island"}}"#),
        };
        response.extensions_mut().insert(Upgraded);
        response
    });
    let send = |path: &str| {
        let request = Request::post(format!("/api/v1/namespaces/default/{path}"))
            .header(header::CONTENT_TYPE, "application/octet-stream")
            .header(header::UPGRADE, "websocket")
            .header(header::ACCEPT, "*/*")
            .body(Body::from(b"default".to_vec()))
            .unwrap();
        let host = host.clone();
        async move { host.send(request).await.unwrap() }
    };
    let upgraded = send("pods/a/exec?command=default").await;
    assert_eq!(upgraded.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(upgraded.extensions().get(), Some(&Upgraded));
    {
        let asked = host.asked.lock().unwrap();
        let (_, path, headers, body) = &asked[0];
        assert_eq!(path, "/api/v1/namespaces/island/pods/a/exec?command=default");
        assert_eq!(
            (
                headers[header::UPGRADE].to_str().unwrap(),
                headers[header::ACCEPT].to_str().unwrap()
            ),
            ("websocket", "*/*")
        );
        assert_eq!(body, "default");
    }
    let read =
        |response: Response<AnswerBody>| async { response.into_body().collect().await.unwrap().to_bytes() };
    assert_eq!(read(send("pods/a/log").await).await, "in island\n");
    // The answer of a pod passes unchanged in any form.
    assert_eq!(
        read(send("services/a/proxy/x").await).await,
        r#"{"metadata":{"namespace":"island"}}"#
    );
    assert_eq!(
        read(send("pods/missing/log").await).await.len(),
        r#"{"kind":"Status","details":{"kind":"namespaces","name":"default"}}"#.len()
    );
}

#[tokio::test]
async fn answers_in_other_forms_do_not_pass() {
    for (media, encoding) in [
        ("application/vnd.kubernetes.protobuf", "identity"),
        ("application/cbor", "identity"),
        ("application/yaml", "identity"),
        ("application/json", "gzip"),
    ] {
        let host = Fake::new(move |_| {
            let mut response = reply(200, media, r#"{"metadata":{"namespace":"island"}}"#);
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
            response
        });
        let request = Request::get("/api/v1/namespaces/default/configmaps/a")
            .body(Body::empty())
            .unwrap();
        assert!(host.send(request).await.is_err(), "{media} {encoding}");
    }
    let host = Fake::new(|_| reply(200, "application/json", "{\"metadata\":"));
    let request = Request::get("/api/v1/namespaces/default/configmaps/a")
        .body(Body::empty())
        .unwrap();
    assert!(host.send(request).await.is_err());
    let host = Fake::new(|_| reply(404, "text/plain", "404 page not found"));
    assert_eq!(
        host.get("/api/v1/namespaces/default/configmaps/a").await.1,
        "404 page not found"
    );
}

#[tokio::test]
async fn nothing_that_is_refused_reaches_the_host() {
    let host = typical();
    let refused = |method: &str, uri: &str, media: &str, body: &str| {
        let mut request = Request::builder().method(method).uri(uri);
        if !media.is_empty() {
            request = request.header(header::CONTENT_TYPE, media);
        }
        let request = request.body(Body::from(body.as_bytes().to_vec())).unwrap();
        let host = host.clone();
        async move { host.send(request).await.unwrap().status().as_u16() }
    };
    // The method, the path below that of the namespaces, the form, the body and the answer.
    let cases = r#"
        POST   | default/configmaps   | | {"metadata":{"namespace":"zoo"}} | 400
        PUT    | default/configmaps/a | application/json | {"metadata":{"namespace":"zoo"}} | 400
        PATCH  | default/configmaps/a | application/merge-patch+json | {"metadata":{"namespace":"zoo"}} | 400
        PATCH  | default/configmaps/a | application/apply-patch+yaml | metadata: {namespace: zoo} | 400
        PATCH  | default/configmaps/a | application/apply-patch+cbor | x | 415
        POST   | default/configmaps   | application/vnd.kubernetes.protobuf | k8s | 415
        DELETE | default/configmaps   | application/cbor | x | 415
        POST   | zoo/configmaps       | | {} | 404"#;
    for case in cases.trim().lines() {
        let parts: Vec<_> = case.split('|').map(str::trim).collect();
        let uri = format!("/api/v1/namespaces/{}", parts[1]);
        let code = refused(parts[0], &uri, parts[2], parts[3]).await;
        assert_eq!(code.to_string(), parts[4], "{case}");
    }
    assert_eq!(refused("GET", "/metrics", "", "").await, 403);
    let packed = Request::post("/api/v1/namespaces/default/configmaps")
        .header(header::CONTENT_ENCODING, "gzip")
        .body(Body::from(b"{}".to_vec()))
        .unwrap();
    assert_eq!(host.send(packed).await.unwrap().status(), 415);
    assert_eq!(host.paths(), Vec::<String>::new());
    for (plural, code) in [("configmaps", 200), ("nodes", 404)] {
        let uri = format!("/api/v1/namespaces/zoo/{plural}");
        assert_eq!(refused("DELETE", &uri, "", "").await, code);
    }
    assert_eq!(
        host.paths(),
        ["/api/v1"],
        "what a list of that kind is called has to be known"
    );
}

#[tokio::test]
async fn the_table_is_filled_from_new_and_old_servers() {
    let aggregated = |group: &str, plural: &str, scope: &str| {
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": group}, "versions": [
            {"version": "v1", "freshness": "Current",
             "resources": [{"resource": plural, "scope": scope, "responseKind": {"kind": "Thing"}}]},
            {"version": "v0", "freshness": "Stale", "resources": [{"resource": "ghosts", "scope": "Cluster"}]},
        ]}]})
    };
    let new = Fake::new(move |path| match path {
        "/api" => json_reply(
            &json!({"kind": "APIGroupDiscoveryList", "items": aggregated("", "pods", "Namespaced")["items"]}),
        ),
        _ => json_reply(&aggregated("apps", "nodes", "Cluster")),
    });
    new.kinds.load(&new.host()).await.unwrap();
    assert_eq!(new.paths(), ["/api", "/apis"]);
    assert_eq!(new.kinds.is_namespaced("", "pods"), Some(true));
    assert_eq!(new.kinds.is_namespaced("apps", "nodes"), Some(false));
    assert_eq!(new.kinds.is_namespaced("apps", "ghosts"), None);
    assert_eq!(new.kinds.is_namespaced("", "nodes"), None);
    assert_eq!(new.kinds.kind("", "v1", "pods").as_deref(), Some("Thing"));

    let failing = Arc::new(AtomicUsize::new(0));
    let failed = failing.clone();
    let old = Fake::new(move |path| match path {
        "/api" => json_reply(&json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/api/v1" => json_reply(&discovery()),
        "/apis" => json_reply(&json!({"kind": "APIGroupList", "groups": [
            {"name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}]},
            {"name": "down", "versions": [{"groupVersion": "down/v1", "version": "v1"}]}]})),
        "/apis/apps/v1" => json_reply(
            &json!({"resources": [{"name": "deployments", "namespaced": true, "kind": "Deployment"}]}),
        ),
        _ => {
            failed.fetch_add(1, Ordering::SeqCst);
            reply(
                503,
                "text/plain",
                "the server is currently unable to handle the request",
            )
        }
    });
    old.kinds.load(&old.host()).await.unwrap();
    assert_eq!(old.kinds.is_namespaced("", "nodes"), Some(false));
    assert_eq!(old.kinds.is_namespaced("apps", "deployments"), Some(true));
    assert_eq!(
        (
            old.kinds.is_namespaced("down", "x"),
            failing.load(Ordering::SeqCst)
        ),
        (None, 1)
    );

    let dead = Fake::new(|_| reply(403, "application/json", "{}"));
    assert!(dead.kinds.load(&dead.host()).await.is_err());
}
