//! Credential plugins that are servers, over TLS. `mcr-provider-cluster-inventory/tests/upstream.rs` has one on a unix socket.

use std::time::Duration;

use mcr_access::{CredentialSource, Endpoint, ExecPlugin, Refresh};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{
    certificates::{Authority, acceptor},
    server::{Server, closed, respond},
    until,
};
use crate::plugin_service::{PluginAddressError, plugin_at};

const CANARY: &str = "canary-7d20";

fn issued(token: &str) -> String {
    let status = json!({"token": token, "expirationTimestamp": "2126-01-01T00:00:00Z"});
    let version = "client.authentication.k8s.io/v1";
    json!({"apiVersion": version, "kind": "ExecCredential", "status": status}).to_string()
}

/// A service that answers each request with this status and text.
async fn service(authority: &Authority, name: &str, status: &'static str, body: String) -> Server {
    let (certificate, key) = authority.issue(&[name], |_| ());
    Server::start(Some(acceptor(&certificate, &key, None)), move |_, mut stream| {
        let body = body.clone();
        async move {
            respond(&mut stream, status, "application/json", &body).await;
            Some(stream)
        }
    })
    .await
}

fn plugin(address: &str, authority: Option<&Authority>) -> ExecPlugin {
    let pem = authority.map(Authority::pem);
    let service = plugin_at(address, pem.as_ref().map(String::as_bytes)).unwrap();
    ExecPlugin::new("login").service(service)
}

async fn failure(plugin: ExecPlugin) -> String {
    let error = plugin.credential(Refresh::First).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    let text = error.to_string();
    text.strip_prefix("exec plugin \"login\" ").unwrap().to_owned()
}

#[tokio::test]
async fn a_service_gets_the_document_by_post_and_its_answer_is_cached_as_that_of_a_program() {
    let authority = Authority::new();
    let server = service(&authority, "127.0.0.1", "200 OK", issued("t")).await;
    let address = server.uri("https", "/v1/login?fleet=eu").to_string();
    let bare = plugin(&address, Some(&authority));
    let of = |server: &str, config: Value| {
        let member = Endpoint::new(server.parse().unwrap());
        bare.clone().cluster_info(&member, Some(config), false)
    };
    let tenant = json!({"tenant": "a"});
    let [one, two] = [(); 2].map(|()| of("https://member:6443", tenant.clone()));
    for (source, why, posts) in [
        (&one, Refresh::First, 1),
        (&two, Refresh::First, 1),
        (&one, Refresh::Unauthorized, 2),
        // The cache has a newer credential than the one that was refused.
        (&two, Refresh::Unauthorized, 2),
        (&of("https://other", tenant.clone()), Refresh::First, 3),
    ] {
        let credential = source.credential(why).await.unwrap();
        assert_eq!(credential.token.unwrap().expose_secret(), "t");
        assert!(credential.expires_at.is_some());
        assert_eq!(server.seen().len(), posts);
    }
    let seen = &server.seen()[0];
    assert_eq!(seen.line(), "POST /v1/login?fleet=eu HTTP/1.1");
    assert!(seen.header("authorization").is_empty());
    assert_eq!(
        serde_json::from_str::<Value>(&seen.body).unwrap(),
        json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": {
            "interactive": false, "cluster": {"server": "https://member:6443", "config": tenant},
        }})
    );
}

#[tokio::test]
async fn services_that_fail_have_the_words_of_programs_and_show_nothing_of_their_answers() {
    let (authority, elsewhere) = (Authority::new(), Server::json("200 OK", "{}").await);
    let moved = format!("302 Found\r\nlocation: http://{}/{CANARY}", elsewhere.address);
    let failed = |why: &str| format!("failed: the service answered with {why}");
    let wrong = |what: &str| format!("answered with {what}; check that it is the right service and version");
    let not_json = "something that is not an ExecCredential in JSON (line 1, column 1)";
    let large = "more than 1 MiB; it does not seem to be a credential plugin";
    for (status, body, error) in [
        ("503 Busy", CANARY.into(), failed("status 503; check its log")),
        (moved.leak(), String::new(), failed("status 302; check its log")),
        ("200 OK", CANARY.repeat(100_000), failed(large)),
        (
            "200 OK",
            " ".into(),
            wrong("nothing instead of an ExecCredential"),
        ),
        ("200 OK", format!("<{CANARY}>"), wrong(not_json)),
    ] {
        let server = service(&authority, "127.0.0.1", status, body).await;
        let plugin = plugin(&server.uri("https", "").to_string(), Some(&authority));
        assert_eq!(failure(plugin).await, error);
    }
    assert_eq!(elsewhere.accepted(), 0, "a redirect was followed");
}

#[tokio::test]
async fn a_service_that_is_not_there_or_can_not_prove_who_it_is_gets_nothing() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let right = service(&authority, "127.0.0.1", "200 OK", issued(CANARY)).await;
    let wrong = service(&authority, "other.example", "200 OK", issued(CANARY)).await;
    let [of_right, of_wrong] = [&right, &wrong].map(|server| server.uri("https", "").to_string());
    for (address, authority, text) in [
        (
            &*of_right,
            Some(&stranger),
            "the server's certificate is not signed by",
        ),
        (&of_right, None, "the server's certificate is not signed by"),
        (
            &of_wrong,
            Some(&authority),
            "the server's certificate is not for 127.0.0.1",
        ),
        ("unix:///none/login.sock", None, "No such file or directory"),
    ] {
        let shown = failure(plugin(address, authority)).await;
        let expected = format!("failed: no answer of the service: {text}");
        assert!(shown.starts_with(&expected), "{shown}");
    }
    assert!(right.seen().is_empty() && wrong.seen().is_empty());
}

#[tokio::test]
async fn a_service_that_hangs_is_given_up_at_the_deadline_and_its_connection_is_closed() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue(&["127.0.0.1"], |_| ());
    let hangs = Server::start(
        Some(acceptor(&certificate, &key, None)),
        |_, mut stream| async move {
            // A head without an end of its body.
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n ").await.ok();
            closed(&mut stream).await;
            None
        },
    )
    .await;
    let source = plugin(&hangs.uri("https", "").to_string(), Some(&authority));
    assert_eq!(
        failure(source.deadline(Duration::from_millis(300))).await,
        "did not answer within 300ms; check its service, or raise AccessPolicy::plugin_deadline"
    );
    until("its connection is closed", || hangs.open() == 0).await;
    assert_eq!(hangs.seen().len(), 1);
}

#[test]
fn an_address_is_a_socket_or_https_without_a_login() {
    let addresses = [
        "http://a/",
        "https://me:canary-7d20@a/",
        "https://",
        "a.example",
        "unix://a.sock",
        "unix:///a/",
        "",
    ];
    for address in addresses {
        let error = plugin_at(address, None).unwrap_err();
        assert_eq!(error, PluginAddressError::Address, "{address}");
    }
    let error = plugin_at("https://a", Some(b"no PEM")).unwrap_err();
    assert!(matches!(error, PluginAddressError::Tls(_)), "{error}");
}
