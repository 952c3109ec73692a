//! Faults of answers and of the bodies of lists.

use std::time::{Duration, Instant};

use mcr_testkit::faults::{Fault, Match};

use crate::{LIST, soon, stand};

const STREAMED: &str = "/api/v1/configmaps?watch=true&sendInitialEvents=true";

#[tokio::test]
async fn statuses_are_those_of_an_api_server() {
    let (server, proxy, raw) = stand().await;
    for (fault, path, code, reason) in [
        (Fault::Unauthorized, LIST, 401, "Unauthorized"),
        (Fault::Forbidden, LIST, 403, "Forbidden"),
        (Fault::NoStreamingLists, STREAMED, 422, "Invalid"),
        (Fault::InternalError, LIST, 500, "InternalError"),
        (Fault::Status(503), LIST, 503, ""),
    ] {
        proxy.set(fault.clone()).await;
        let answer = soon(raw.get(&proxy, path)).await.unwrap();
        let status = answer.json();
        assert_eq!(answer.status, code, "{fault}");
        assert_eq!(status["kind"], "Status", "{fault}");
        assert_eq!(status["code"], code, "{fault}");
        assert_eq!(status["reason"], reason, "{fault}");
    }
    proxy.set(Fault::NotFound).await;
    let answer = soon(raw.get(&proxy, LIST)).await.unwrap();
    assert_eq!(
        (answer.status.as_u16(), &*answer.body),
        (404, &b"404 page not found\n"[..])
    );
    assert_eq!(server.seen(), [""; 0], "nothing of this got through");
    assert_eq!(proxy.stats().hits, 6);
    proxy.set(Fault::NoStreamingLists).await;
    assert_eq!(soon(raw.get(&proxy, LIST)).await.unwrap().status, 200);
}

#[tokio::test]
async fn faults_hit_what_they_are_for() {
    let (_server, proxy, raw) = stand().await;
    proxy
        .set(Fault::InternalError.on(Match::any().resource("configmaps").skip(1).times(2)))
        .await;
    let mut seen = Vec::new();
    for path in [LIST, "/api/v1/pods", LIST, LIST, LIST] {
        seen.push(soon(raw.get(&proxy, path)).await.unwrap().status.as_u16());
    }
    assert_eq!(seen, [200, 200, 500, 500, 200]);
}

#[tokio::test]
async fn lists_are_damaged() {
    let (_server, proxy, raw) = stand().await;
    let whole = soon(raw.get(&proxy, LIST)).await.unwrap();

    proxy.set(Fault::Truncated).await;
    let cut = soon(raw.get(&proxy, LIST)).await.unwrap();
    assert_eq!(cut.body, whole.body.slice(..whole.body.len() / 2));

    proxy.set(Fault::CutOff).await;
    assert!(soon(raw.get(&proxy, LIST)).await.is_err());

    proxy.set(Fault::Garbage).await;
    let garbage = soon(raw.get(&proxy, LIST)).await.unwrap();
    assert_eq!(garbage.status, 200);
    assert!(serde_json::from_slice::<serde_json::Value>(&garbage.body).is_err());

    proxy.set(Fault::NoResourceVersion).await;
    let list = soon(raw.get(&proxy, LIST)).await.unwrap().json();
    assert_eq!(list["metadata"]["resourceVersion"], serde_json::Value::Null);
    assert_eq!(list["items"], whole.json()["items"]);

    proxy.set(Fault::Undecodable { name: None }).await;
    let list = soon(raw.get(&proxy, LIST)).await.unwrap().json();
    assert_eq!(list["items"][0]["metadata"]["labels"], 7);
    assert_eq!(list["items"][1], whole.json()["items"][1]);

    proxy
        .set(Fault::Undecodable {
            name: Some("b".to_owned()),
        })
        .await;
    let list = soon(raw.get(&proxy, LIST)).await.unwrap().json();
    assert_eq!(list["items"][0], whole.json()["items"][0]);
    assert_eq!(list["items"][1]["metadata"]["labels"], 7);

    proxy.clear().await;
    assert_eq!(soon(raw.get(&proxy, LIST)).await.unwrap().body, whole.body);
}

#[tokio::test]
async fn slow_answers_are_late_and_slow() {
    let (_server, proxy, raw) = stand().await;
    let length = soon(raw.get(&proxy, LIST)).await.unwrap().body.len();
    let rate = u32::try_from(length).unwrap() * 2;
    proxy
        .set(Fault::Slow {
            first_byte: Duration::from_millis(300),
            bytes_per_second: Some(rate),
        })
        .await;
    let started = Instant::now();
    let answer = soon(raw.get(&proxy, LIST)).await.unwrap();
    assert_eq!(answer.body.len(), length);
    assert!(
        started.elapsed() >= Duration::from_millis(750),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn stale_reads_are_of_the_past() {
    let (server, proxy, raw) = stand().await;
    let before = soon(raw.get(&proxy, LIST)).await.unwrap().json();
    let mut watch = raw.watch(&proxy).await;
    proxy.set(Fault::StaleReads).await;
    server.add("c");
    server.send("ADDED", "c");
    crate::silent(watch.line()).await;
    // Other options of the same question don't get around it.
    for path in [LIST, "/api/v1/configmaps?resourceVersion=0"] {
        assert_eq!(soon(raw.get(&proxy, path)).await.unwrap().json(), before);
    }
    // A list that was not requested before the fault stays as it is at its first request.
    let pods = "/api/v1/namespaces/x/configmaps";
    let first = soon(raw.get(&proxy, pods)).await.unwrap().json();
    server.add("d");
    assert_eq!(soon(raw.get(&proxy, pods)).await.unwrap().json(), first);
    proxy.clear().await;
    assert_eq!(watch.brief().await, "ADDED c");
    let now = soon(raw.get(&proxy, LIST)).await.unwrap().json();
    assert_eq!(now["items"].as_array().unwrap().len(), 4);
}
