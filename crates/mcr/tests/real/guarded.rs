//! A real hub decides who may read `/clusters` and `/metrics`.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcr::{
    Manager,
    server::{ServerAccess, ServerOptions},
};
use mcr_testkit::control_plane::{ControlPlane, policy_rule};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use crate::fleet::OrFail;

/// What the ClusterRole of `examples/deploy/base/server.yaml` grants to readers.
fn reads(paths: &[&str]) -> PolicyRule {
    PolicyRule {
        non_resource_urls: Some(paths.iter().map(|path| (*path).to_owned()).collect()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

/// The status of a GET over a connection that stays open, or 0 if the server has closed it.
async fn get(stream: &mut TcpStream, path: &str, token: Option<&str>) -> u16 {
    let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await.or_fail();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return 0,
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap();
    let length: usize = length.lines().next().unwrap().parse().or_fail();
    stream.read_exact(&mut vec![0; length]).await.or_fail();
    head.split(' ').nth(1).unwrap().parse().or_fail()
}

async fn get_anew(address: SocketAddr, path: &str, token: Option<&str>) -> u16 {
    get(&mut TcpStream::connect(address).await.or_fail(), path, token).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rbac_of_the_hub_decides_and_a_revoked_token_is_refused_on_a_connection_that_lives() {
    let plane = ControlPlane::start().await.or_fail();
    let reviewer = plane
        .user("controller")
        .rules([
            policy_rule(["authentication.k8s.io"], ["tokenreviews"], ["create"]),
            policy_rule(["authorization.k8s.io"], ["subjectaccessreviews"], ["create"]),
        ])
        .create()
        .await
        .or_fail();
    let account = async |name: &str, rules: Vec<PolicyRule>| {
        let account = plane.service_account("monitoring", name).cluster_rules(rules);
        let account = account.create().await.or_fail();
        let token = account.token().await.or_fail();
        (account, token)
    };
    let (prometheus, scrapes) = account("prometheus", vec![reads(&["/metrics"])]).await;
    let (operator, reads_all) = account("operator", vec![reads(&["/metrics", "/clusters"])]).await;
    let (_nobody, may_nothing) = account("nobody", vec![]).await;

    let access = ServerAccess::hub(reviewer.client().await.or_fail()).cache_ttl(Duration::from_millis(200));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").or_fail();
    let address = listener.local_addr().or_fail();
    let manager = Manager::single(plane.client())
        .serve(ServerOptions::from(listener).access(access))
        .build()
        .or_fail();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));

    let forged = format!("{}.AAAA", reads_all.rsplit_once('.').unwrap().0);
    for (path, token, status) in [
        ("/clusters", None, 401),
        ("/metrics", None, 401),
        ("/clusters", Some(forged.as_str()), 401),
        ("/clusters", Some(may_nothing.as_str()), 403),
        ("/metrics", Some(may_nothing.as_str()), 403),
        ("/clusters", Some(scrapes.as_str()), 403),
        ("/metrics", Some(scrapes.as_str()), 200),
        ("/clusters", Some(reads_all.as_str()), 200),
        ("/healthz", None, 200),
    ] {
        assert_eq!(get_anew(address, path, token).await, status, "{path} {token:?}");
    }

    // The right is revoked, and then the account: the connection that was served lives on, and the token reads no more.
    let mut living = TcpStream::connect(address).await.or_fail();
    assert_eq!(get(&mut living, "/clusters", Some(&reads_all)).await, 200);
    let mut scraping = TcpStream::connect(address).await.or_fail();
    assert_eq!(get(&mut scraping, "/metrics", Some(&scrapes)).await, 200);
    operator.revoke().await.or_fail();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(get(&mut living, "/clusters", Some(&reads_all)).await, 403);
    prometheus.delete().await.or_fail();
    // The API server itself keeps a token for ten seconds.
    let mut last = 200;
    for _ in 0..600 {
        last = get(&mut scraping, "/metrics", Some(&scrapes)).await;
        if last != 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(last, 401);

    // Without its rights, the program serves nobody.
    let (_late, late) = account("late", vec![reads(&["/metrics"])]).await;
    reviewer.revoke().await.or_fail();
    assert_eq!(get_anew(address, "/metrics", Some(&late)).await, 503);
    assert_eq!(get_anew(address, "/healthz", None).await, 200);
    stop.cancel();
    running.await.or_fail().or_fail();
}
