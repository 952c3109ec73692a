//! The same bytes, read by this crate and by hyper: both find the same head, the same content, and agree on whether the
//! connection can be used again.
#![allow(clippy::unwrap_used)]

use std::{fmt, future::Future, time::Duration};

use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use mcr_h1::Connection;
use proptest::{prelude::*, sample::select};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// An answer of a server: the bytes of each write, and whether it closes the connection after them.
#[derive(Clone)]
struct Answer {
    writes: Vec<Vec<u8>>,
    closes: bool,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = self.writes.iter().map(|bytes| bytes.escape_ascii().to_string());
        f.debug_list().entries(writes).finish()?;
        write!(f, ", closes: {}", self.closes)
    }
}

/// The part of a response that a client has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// No head: the client failed, or waits for the rest. They notice at different times that it can't be a head.
    Nothing,
    Response {
        head: String,
        content: Vec<u8>,
        end: End,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client failed, or waits for the rest. They notice at different times that the content is malformed.
    Missing,
    /// The connection can take another request.
    Reusable,
    /// The content is complete, and the connection is not used again.
    Closed,
}

/// The clock is paused, so this time passes at once when nobody can go on.
async fn unless_it_waits<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_secs(1), future).await.ok()
}

/// Until the rest of the answer has arrived, or the end of the connection.
async fn time_passes() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

impl Answer {
    /// The client's end of a connection whose server sends this answer to the first request.
    fn stream(&self) -> DuplexStream {
        let (client, mut server) = duplex(1 << 20);
        let answer = self.clone();
        tokio::spawn(async move {
            let mut request = [0; 1 << 10];
            let _ = server.read(&mut request).await;
            for bytes in &answer.writes {
                let _ = server.write_all(bytes).await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if !answer.closes {
                std::future::pending::<()>().await;
            }
        });
        client
    }

    async fn through_mcr(&self) -> Found {
        let sent = Connection::new(self.stream()).send(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = match unless_it_waits(sent).await {
            None | Some(Err(_)) => return Found::Nothing,
            Some(Ok(response)) => response,
        };
        let head = head(&response);
        let mut body = response.into_body();
        let (content, end) = read(&mut body).await;
        let connection = body.take_connection();
        time_passes().await;
        let end = end.unwrap_or_else(|| {
            let usable = connection.is_some_and(|mut connection| connection.is_usable());
            if usable { End::Reusable } else { End::Closed }
        });
        Found::Response { head, content, end }
    }

    async fn through_hyper(&self) -> Found {
        let io = TokioIo::new(self.stream());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("/")
            .header("host", "a")
            .body(Empty::<hyper::body::Bytes>::new());
        let response = match unless_it_waits(sender.send_request(request.unwrap())).await {
            None | Some(Err(_)) => return Found::Nothing,
            Some(Ok(response)) => response,
        };
        // This crate never asks for another protocol.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Found::Nothing;
        }
        let head = head(&response);
        let has_both = ["content-length", "transfer-encoding"]
            .iter()
            .all(|name| response.headers().contains_key(*name));
        let mut body = response.into_body();
        let (content, end) = read(&mut body).await;
        let end = match end {
            Some(end) => end,
            None => {
                time_passes().await;
                // hyper uses a connection again that may be under attack (RFC 9112, section 6.3).
                match unless_it_waits(sender.ready()).await {
                    Some(Ok(())) if !has_both => End::Reusable,
                    _ => End::Closed,
                }
            }
        };
        Found::Response { head, content, end }
    }
}

fn head<B>(response: &Response<B>) -> String {
    let (status, version) = (response.status(), response.version());
    format!("{status} {version:?} {:?}", response.headers())
}

/// The content, and its end unless it is complete.
async fn read<B: Body<Data = hyper::body::Bytes> + Unpin>(body: &mut B) -> (Vec<u8>, Option<End>) {
    let mut content = Vec::new();
    loop {
        match unless_it_waits(body.frame()).await {
            Some(None) => return (content, None),
            None | Some(Some(Err(_))) => return (content, Some(End::Missing)),
            Some(Some(Ok(frame))) => content.extend(frame.into_data().unwrap_or_default()),
        }
    }
}

fn chunk() -> impl Strategy<Value = String> {
    let size = select(vec!["", "", "", "", ";a", ";a=\"b\"", " ", "g", "\n"]);
    let end = select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", ""]);
    ("[a-z\r\n]{1,20}", size, end, any::<bool>()).prop_map(|(content, extension, end, upper)| {
        let len = content.len();
        let size = if upper {
            format!("0{len:X}")
        } else {
            format!("{len:x}")
        };
        format!("{size}{extension}\r\n{content}{end}")
    })
}

fn content() -> impl Strategy<Value = String> {
    let last = select(vec![
        "0\r\n\r\n",
        "0\r\n\r\n",
        "0\r\na: b\r\n\r\n",
        "0;x\r\n\r\n",
        "",
    ]);
    let chunked =
        (prop::collection::vec(chunk(), 0..4), last).prop_map(|(chunks, last)| chunks.concat() + last);
    prop_oneof![chunked, "[a-z]{0,12}"]
}

fn text() -> impl Strategy<Value = String> {
    let interim = select(vec![
        "",
        "",
        "",
        "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
        "\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ]);
    let status = select(vec![
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.0 200 OK",
        "HTTP/1.1 204 No Content",
        "HTTP/1.1 304 Not Modified",
        "HTTP/1.1 410 Gone",
        "HTTP/1.1 500",
        "HTTP/2 200 OK",
        "HTTP/1.1 20 OK",
    ]);
    let header = select(vec![
        "content-length: 5",
        "content-length: 5",
        "Content-Length: 7",
        "content-length: 5, 5",
        "content-length: 5, 6",
        "content-length: +5",
        "content-length: 99999999999999999999",
        "transfer-encoding: chunked",
        "Transfer-Encoding: Chunked",
        "transfer-encoding: gzip, chunked",
        "transfer-encoding: gzip",
        "transfer-encoding: chunked, gzip",
        "connection: close",
        "connection: keep-alive",
        "connection: x, Close",
        "content-type: application/json",
        "x",
        ": y",
        "a:",
    ]);
    let end = select(vec!["\r\n", "\r\n", "\r\n", "\r\n", "\n"]);
    let behind = select(vec!["", "", "", "", "x", "HTTP/1.1 200 OK\r\n"]);
    (
        interim,
        status,
        prop::collection::vec(header, 0..4),
        end,
        content(),
        behind,
    )
        .prop_map(|(interim, status, headers, end, content, behind)| {
            let headers: String = headers.iter().map(|header| format!("{header}{end}")).collect();
            format!("{interim}{status}{end}{headers}{end}{content}{behind}")
        })
}

fn answer() -> impl Strategy<Value = Answer> {
    let index = any::<prop::sample::Index>;
    let mutation = prop::option::weighted(0.3, (index(), any::<u8>()));
    let cuts = prop::collection::vec(index(), 0..5);
    (
        text(),
        mutation,
        cuts,
        prop::option::weighted(0.2, index()),
        any::<bool>(),
    )
        .prop_map(|(text, mutation, cuts, ends_at, closes)| {
            // hyper reads trailers, this crate leaves them out.
            let has_trailer = text.contains("a: b");
            let mut bytes = text.into_bytes();
            if let Some((at, byte)) = mutation.filter(|_| !has_trailer) {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(at) = ends_at {
                bytes.truncate(at.index(bytes.len()));
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut from = 0;
            let mut writes = Vec::new();
            for cut in cuts.into_iter().chain([bytes.len()]) {
                writes.push(bytes[from..cut].to_vec());
                from = cut;
            }
            Answer { writes, closes }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_find_the_same(answer in answer()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (ours, hypers) = runtime.block_on(async { (answer.through_mcr().await, answer.through_hyper().await) });
        prop_assert_eq!(ours, hypers);
    }
}

/// A million cases take six minutes, and passed.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").map_or(2_000, |cases| cases.parse().unwrap())
}
