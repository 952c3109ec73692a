//! Objects that leave a watch: deleted for certain, or perhaps still there.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
};

use crate::support::{
    ApiAccess, Seen, World,
    maps::{line, maps},
    sleep, until_true,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request as HttpRequest, Response};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRole};
use kube::{
    Client,
    client::Body,
    core::{ApiResource, DynamicObject},
};
use mcr::{
    Access, BoxError, Cluster, ConfirmError, Controller, ObjectKey, Request, RequestObject,
    core::{AnswerBody, ObjectMetadata, Placement, Scope, ScopeLayout, Upstream},
};
use mcr_testkit::{log::Log, sim::SimCluster};
use serde_json::{Value, json};
use tracing::Level;

fn map(label: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "default", "labels": {"team": label}}, "data": {"value": value},
    })
}

/// Records each request, and whether an object that left the watch was deleted, by the answer of the server.
async fn confirm(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Result<(), BoxError> {
    let line = line(&request)
        .trim_start_matches("cluster://a/default/x ")
        .to_owned();
    if !request.object.has_left_watch() {
        seen.push(line);
        return Ok(());
    }
    assert!(!request.object.is_deleted());
    match request.confirm_deleted().await {
        Ok(deleted) => seen.push(format!("{line}, deleted: {deleted}")),
        Err(error) => {
            seen.push(format!("{line}, {error}"));
            return Err(error.into());
        }
    }
    Ok(())
}

fn labelled() -> Controller<ConfigMap> {
    maps().watch_request(|watch| watch.labels("team=a"))
}

#[tokio::test(start_paused = true)]
async fn an_object_without_its_label_left_the_watch_and_the_server_reports_whether_it_is_deleted() {
    let server = SimCluster::new();
    server.create(map("a", "1")).unwrap();
    let mut world = World::new();
    world.add("a", &server.client().into(), &[]);
    let (_, seen) = world.run_with(labelled(), confirm);
    assert_eq!(seen.wait_for(1).await, ["live 1"]);
    server.update(map("b", "2")).unwrap();
    assert_eq!(seen.wait_for(2).await[1], "left 1, deleted: false");
    server.update(map("a", "3")).unwrap();
    assert_eq!(seen.wait_for(3).await[2], "live 3");
    server.delete("configmaps", "default/x").unwrap();
    assert_eq!(seen.wait_for(4).await[3], "left 3, deleted: true");
    // Another object of the same name, which the watch does not select.
    server.create(map("a", "4")).unwrap();
    assert_eq!(seen.wait_for(5).await[4], "live 4");
    server.delete("configmaps", "default/x").unwrap();
    server.create(map("b", "5")).unwrap();
    assert_eq!(seen.wait_for(6).await[5], "left 4, deleted: true");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_selector_makes_a_deletion_uncertain_and_a_namespace_does_not() {
    for (fields, last) in [(true, "left 1, deleted: true"), (false, "deleted 1")] {
        let server = SimCluster::new();
        server.create(map("a", "1")).unwrap();
        let mut world = World::new();
        world.add("a", &server.client().into(), &[]);
        let controller = maps().watch_request(|watch| {
            if fields {
                watch.fields("metadata.name=x")
            } else {
                watch.namespace("default")
            }
        });
        let (_, seen) = world.run_with(controller, confirm);
        seen.wait_for(1).await;
        server.delete("configmaps", "default/x").unwrap();
        assert_eq!(seen.wait_for(2).await[1], last);
        world.end().await;
    }
}

/// The kind of 60 objects is refused while their deletions wait to be confirmed: the log has a few lines, the failures name the
/// reason that the fleet knows, and all of them are asked for again when the kind is back.
#[tokio::test(start_paused = true)]
async fn requests_of_a_blocked_kind_are_quiet_and_run_at_once_when_it_is_back() {
    let log = Log::of_this_thread(Level::WARN);
    let mut world = World::new();
    let api = world.join("a");
    let names: Vec<_> = (0..60).map(|name| format!("default/m{name}")).collect();
    let labels = json!({"metadata": {"labels": {"team": "a"}}});
    names
        .iter()
        .for_each(|name| api.put("configmaps", name, labels.clone()));
    let (handle, seen) = world.run_with(labelled(), confirm);
    seen.wait_for(60).await;
    names.iter().for_each(|name| api.delete("configmaps", name));
    // This server answers no GET of an object.
    until_true(|| handle.status().counts.errors >= 120).await;
    assert_eq!(log.lines_with("reconcile failed").len(), 3, "{}", log.text());
    api.forbid("configmaps");
    api.down(true);
    api.down(false);
    let cluster = world.cluster("a").await;
    let is_blocked = || cluster.kinds()[0].blocked;
    until_true(is_blocked).await;
    let reason = "configmaps are blocked in this cluster: forbidden: configmaps is forbidden";
    until_true(|| seen.all().last().is_some_and(|line| line.contains(reason))).await;
    sleep(3_600_000).await;
    assert!(
        log.lines_with("reconcile failed").len() < 130,
        "one a minute for each of two causes"
    );
    api.allow("configmaps");
    until_true(|| !is_blocked()).await;
    let (back, errors) = (tokio::time::Instant::now(), handle.status().counts.errors);
    until_true(|| handle.status().counts.errors >= errors + 60).await;
    assert!(back.elapsed().as_secs() < 5, "{:?}", back.elapsed());
    world.end().await;
}

/// The answer to a GET of the object.
#[derive(Clone)]
enum Answer {
    OfServer,
    None,
    Other(u16, &'static str),
}

/// A client of the server, whose GET of the object gets `answer`.
fn client(server: &SimCluster, answer: Arc<Mutex<Answer>>) -> Client {
    let server = server.service().with_token(&server.admin_token());
    let service = tower::service_fn(move |request: HttpRequest<Body>| {
        let (server, answer) = (server.clone(), answer.lock().unwrap().clone());
        let asked = request.uri().path().ends_with("/configmaps/x");
        async move {
            let response = match answer {
                Answer::None if asked => pending().await,
                Answer::Other(code, body) if asked => Response::builder()
                    .status(code)
                    .body(Full::new(Bytes::from_static(body.as_bytes())).boxed_unsync())
                    .unwrap(),
                _ => server.answer(request).await.map(BodyExt::boxed_unsync),
            };
            Ok::<_, Infallible>(response)
        }
    });
    Client::new(service, "default")
}

async fn ready(world: &World, name: &str) -> Cluster {
    let cluster = world.cluster(name).await;
    cluster.wait_for(mcr::ClusterState::is_ready).await;
    cluster
}

fn left<K>(last_known: Option<K>) -> RequestObject<K> {
    RequestObject::LeftWatch {
        last_known: last_known.map(Arc::new),
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_answer_about_the_object_reports_that_it_is_deleted() {
    let server = SimCluster::new();
    let created = server.create(map("b", "1")).unwrap();
    let answer = Arc::new(Mutex::new(Answer::OfServer));
    let world = World::new();
    world.add("a", &client(&server, answer.clone()).into(), &[]);
    let cluster = ready(&world, "a").await;
    let key = ObjectKey::namespaced("default", "x");
    let request =
        |object| Request::<ConfigMap>::new(cluster.clone(), world.fleet.clone(), key.clone(), object);
    let known: ConfigMap = serde_json::from_value(created).unwrap();
    let mut other = known.clone();
    other.metadata.uid = Some("other".to_owned());

    for (object, deleted) in [
        (left(Some(known.clone())), false),
        (RequestObject::Live(Arc::new(known.clone())), false),
        (left(Some(other)), true),
        (left(None), false),
        (RequestObject::Absent, false),
    ] {
        let request = request(object);
        assert_eq!(request.confirm_deleted().await.unwrap(), deleted, "{request:?}");
    }

    let ask = |next: Answer| {
        *answer.lock().unwrap() = next;
        let request = request(left(Some(known.clone())));
        async move { request.confirm_deleted().await }
    };
    // Without a name: a path that is not served, or something in front of the server.
    let status = r#"{"kind": "Status", "code": 404, "reason": "NotFound", "message": "not here"}"#;
    for body in ["404 page not found", status] {
        let error = ask(Answer::Other(404, body)).await.unwrap_err();
        assert!(matches!(error, ConfirmError::NotServed { .. }), "{error}");
    }
    let status = r#"{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}"#;
    let error = ask(Answer::Other(403, status)).await.unwrap_err();
    assert!(matches!(error, ConfirmError::Forbidden { .. }), "{error}");
    let advice = "Allow the verb get for configmaps; the request is retried";
    assert!(error.to_string().ends_with(advice), "{error}");
    for body in ["<html>", "{}"] {
        let error = ask(Answer::Other(500, body)).await.unwrap_err();
        assert!(matches!(error, ConfirmError::NoAnswer { .. }), "{error}");
    }
    let error = ask(Answer::Other(200, "<html>")).await.unwrap_err();
    assert!(matches!(error, ConfirmError::NoAnswer { .. }), "{error}");
    let error = ask(Answer::None).await.unwrap_err();
    assert!(matches!(error, ConfirmError::NoAnswer { .. }), "{error}");
    assert!(
        error.to_string().starts_with(
            "can't tell whether cluster://a/default/x was deleted; the request is retried: no answer within 60 s; "
        ),
        "{error}"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_known_at_run_time_are_asked_for_too() {
    let server = SimCluster::new();
    server.create(map("b", "1")).unwrap();
    let world = World::new();
    world.add("a", &server.client().into(), &[]);
    let cluster = ready(&world, "a").await;
    let kind = ApiResource::erase::<ConfigMap>(&());
    for (name, deleted) in [("x", false), ("y", true)] {
        let key = ObjectKey::namespaced("default", name);
        let request = Request::<DynamicObject>::new(cluster.clone(), world.fleet.clone(), key, left(None));
        assert_eq!(request.confirm_deleted_with(&kind).await.unwrap(), deleted);
    }
    // A key without its namespace names no ConfigMap.
    let key = ObjectKey::cluster_scoped("x");
    let request = Request::<ConfigMap>::new(cluster, world.fleet.clone(), key, left(None));
    let error = request.confirm_deleted().await.unwrap_err();
    assert!(matches!(error, ConfirmError::NotServed { .. }), "{error}");
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_name_begins_like_that_of_another_is_never_taken_for_it() {
    let server = SimCluster::new();
    let names = ["ed", "ed?", "ed?x=y", "ed#2", "a b", "a:x:y", "\u{fc}"];
    let world = World::new();
    world.add("a", &server.client().into(), &[]);
    let cluster = ready(&world, "a").await;
    let ask = |name: &str, known: Option<ClusterRole>| {
        let key = ObjectKey::cluster_scoped(name);
        let request = Request::<ClusterRole>::new(cluster.clone(), world.fleet.clone(), key, left(known));
        async move { request.confirm_deleted().await }
    };
    for name in names {
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        });
        assert!(ask(name, None).await.unwrap(), "{name}");
        let known = serde_json::from_value(server.create(role).unwrap()).unwrap();
        assert!(!ask(name, Some(known)).await.unwrap(), "{name}");
    }
    // No server has such an object, but another one may answer at the path.
    for name in ["", ".", "..", "../a/y", "ed/y", "y/../ed", "ed/"] {
        let error = ask(name, None).await.unwrap_err();
        assert!(error.to_string().contains("no object can have"), "{error}");
    }
    let elsewhere = |uri: &str| uri.contains("/y") || uri.contains("..");
    assert!(!server.audit().events().any(|event| elsewhere(&event.uri)));
    world.end().await;
}

/// Each namespace is a cluster. Has whether deletions are certain.
struct Namespaces(fn() -> bool);

impl ScopeLayout for Namespaces {
    fn name(&self) -> &str {
        "namespaces"
    }

    fn deletions_are_certain(&self) -> bool {
        (self.0)()
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        object.namespace().map(Placement::new)
    }

    fn send(
        &self,
        _: Arc<str>,
        request: HttpRequest<Body>,
        upstream: Upstream,
    ) -> BoxFuture<'static, Result<Response<AnswerBody>, BoxError>> {
        Box::pin(async move { upstream.send(request).await })
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_scope_a_deletion_is_certain_if_the_layout_reports_so() {
    let panics = || panic!("the layout of the test");
    let cases: [(fn() -> bool, _, _); 4] = [
        (|| false, false, "left 1, deleted: true"),
        (panics, false, "left 1, deleted: true"),
        (|| true, true, "left 1, deleted: true"),
        (|| true, false, "deleted 1"),
    ];
    for (certain, selector, last) in cases {
        let server = SimCluster::new();
        server.create(map("a", "1")).unwrap();
        let scope = Scope::new(Namespaces(certain));
        scope.set_endpoint("main", Access::from(server.client()));
        let mut world = World::new();
        let access = ApiAccess {
            access: scope.place("main", "default"),
            ..ApiAccess::default()
        };
        world.identify("a", &access, "a");
        let controller = if selector { labelled() } else { maps() };
        let (_, seen) = world.run_with(controller, confirm);
        assert_eq!(seen.wait_for(1).await, ["live 1"]);
        server.delete("configmaps", "default/x").unwrap();
        assert_eq!(seen.wait_for(2).await[1], last);
        world.end().await;
    }
}
