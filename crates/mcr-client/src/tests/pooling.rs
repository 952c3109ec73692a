//! Which connection a request uses.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_body_util::BodyExt;
use mcr_access::{Credential, Endpoint, Trust};
use mcr_testkit::waiting::hold_clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::advance,
};

use super::{
    Channel, Settings, channel, channel_with, dialer, get, rest,
    server::{Server, respond},
    settings, until,
};

async fn ask(channel: &Channel) {
    let response = channel.send(get("/version")).await.unwrap();
    assert_eq!(rest(&mut response.into_body()).await, ("{}".to_owned(), None));
}

async fn each_has_a_connection_of_its_own(server: &Server, requests: usize) {
    let channel = channel(server, "one");
    for n in 1..=requests {
        ask(&channel).await;
        assert_eq!(server.accepted(), n);
    }
}

#[tokio::test]
async fn a_connection_is_free_with_the_last_piece_of_its_answer() {
    let server = Server::start(None, |_, mut stream| async move {
        // The last chunk is written separately, as an API server does at the end of a list.
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n";
        stream.write_all(head).await.unwrap();
        stream.flush().await.unwrap();
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        Some(stream)
    })
    .await;
    let channel = channel(&server, "one");
    for _ in 0..100 {
        // The next request starts without a turn of the runtime in between.
        ask(&channel).await;
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn an_answer_without_content_need_not_be_read() {
    let server = Server::start(None, |_, mut stream| async move {
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        Some(stream)
    })
    .await;
    let channel = channel(&server, "one");
    for _ in 0..3 {
        drop(channel.send(get("/version")).await.unwrap());
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn what_the_server_closed_meanwhile_is_not_used_again() {
    let server = Server::start(None, |_, mut stream| async move {
        respond(&mut stream, "200 OK", "application/json", "{}").await;
        None
    })
    .await;
    each_has_a_connection_of_its_own(&server, 20).await;
}

#[tokio::test]
async fn an_answer_that_is_dropped_takes_its_connection_along() {
    let server = Server::start(None, |seen, mut stream| async move {
        if seen.line().starts_with("GET /version ") {
            respond(&mut stream, "200 OK", "application/json", "{}").await;
        } else {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun";
            stream.write_all(head).await.unwrap();
        }
        Some(stream)
    })
    .await;
    let channel = channel(&server, "one");
    let mut body = channel.send(get("/half")).await.unwrap().into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    until("it is closed", || server.open() == 0).await;
    ask(&channel).await;
    assert_eq!(server.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn those_of_a_burst_are_kept_for_the_next_and_two_for_longer() {
    let _clock = hold_clock();
    let server = Server::json("200 OK", "{}").await;
    let settings = Settings {
        idle_timeout: Duration::from_secs(60),
        ..settings()
    };
    let channel = channel_with(&server, "one", settings);
    let burst = async || {
        let requests = [(); 17].map(|()| channel.send(get("/version")));
        for answer in futures::future::try_join_all(requests).await.unwrap() {
            rest(&mut answer.into_body()).await;
        }
    };
    burst().await;
    assert_eq!(server.accepted(), 17);
    until("the limit is kept", || server.open() == 16).await;
    advance(Duration::from_secs(1)).await;
    burst().await;
    assert_eq!(server.accepted(), 18);
    advance(Duration::from_secs(3)).await;
    until("two are left", || server.open() == 2).await;
    ask(&channel).await;
    advance(Duration::from_secs(56)).await;
    ask(&channel).await;
    assert_eq!((server.accepted(), server.open()), (18, 2));
    advance(Duration::from_secs(61)).await;
    until("none is left", || server.open() == 0).await;
    ask(&channel).await;
    assert_eq!(server.accepted(), 19);
    drop(channel);
    until("what is idle goes with the channel", || server.open() == 0).await;
}

/// A server may close an idle connection just when the next request arrives.
#[tokio::test]
async fn a_get_that_meets_a_closing_connection_is_sent_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let server = Server::start(None, move |_, mut stream| {
        let number = requests.fetch_add(1, Ordering::Relaxed);
        async move {
            // The server reads the second request of each connection, and closes without a response.
            if number % 2 == 1 {
                return None;
            }
            respond(&mut stream, "200 OK", "application/json", "{}").await;
            Some(stream)
        }
    })
    .await;
    each_has_a_connection_of_its_own(&server, 20).await;
}

/// The server closes its direction of a connection at about the time at which a POST takes it. hyper then gives back a request
/// of which it has sent nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_post_that_meets_a_closing_connection_is_sent_again_unless_it_was_sent() {
    let arrived = Arc::new(Mutex::new(String::new()));
    let noted = arrived.clone();
    let server = Server::start(None, move |seen, mut stream| {
        let arrived = noted.clone();
        async move {
            arrived.lock().unwrap().push_str(seen.line());
            respond(&mut stream, "200 OK", "application/json", "{}").await;
            // The end of the connection arrives before, while and after the POST takes it.
            let pause = arrived.lock().unwrap().len() % 100;
            std::thread::sleep(Duration::from_micros(pause as u64));
            let _ = stream.shutdown().await;
            let mut bytes = [0; 4 << 10];
            while let Ok(read @ 1..) = stream.read(&mut bytes).await {
                arrived
                    .lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            None
        }
    })
    .await;
    let channel = channel(&server, "one");
    for n in 0..500 {
        ask(&channel).await;
        let line = format!("POST /{n} ");
        let body = kube::client::Body::from(b"{}".to_vec());
        let post = http::Request::post(format!("/{n}")).body(body).unwrap();
        if channel.send(post).await.is_err() {
            until("it was sent", || arrived.lock().unwrap().contains(&line)).await;
        }
    }
}

#[tokio::test]
async fn what_comes_behind_an_answer_spoils_its_connection() {
    for behind in ["\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"] {
        let server = Server::start(None, move |_, mut stream| async move {
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{{}}{behind}");
            stream.write_all(answer.as_bytes()).await.unwrap();
            Some(stream)
        })
        .await;
        each_has_a_connection_of_its_own(&server, 3).await;
    }
}

#[tokio::test]
async fn what_has_been_asked_by_get_can_be_asked_otherwise() {
    let server = Server::json("200 OK", "{}").await;
    let channel = channel(&server, "one");
    let post = || {
        let request = http::Request::post("/version");
        request.body(kube::client::Body::from(b"{}".to_vec())).unwrap()
    };
    let ask_by = async |request| {
        let response = channel.send(request).await.unwrap();
        assert_eq!(rest(&mut response.into_body()).await, ("{}".to_owned(), None));
    };
    ask_by(get("/version")).await;
    ask_by(post()).await;
    ask_by(get("/version")).await;
    ask_by(post()).await;
    assert_eq!(server.accepted(), 1, "all requests use one connection");
    let watch = channel.send(get("/api/v1/pods?watch=true")).await.unwrap();
    assert_eq!(server.accepted(), 2, "a watch gets a connection of mcr-h1");
    drop(watch);
}

#[tokio::test]
async fn a_channel_through_a_proxy_is_not_direct() {
    let mut endpoint = Endpoint::new("https://a.example".parse().unwrap());
    for is_direct in [true, false] {
        let channel = dialer().channel(&endpoint, &Credential::token("t"), Trust::Trusted);
        assert_eq!(channel.unwrap().is_direct(), is_direct);
        endpoint.proxy = Some("http://127.0.0.1:1".parse().unwrap());
    }
}
