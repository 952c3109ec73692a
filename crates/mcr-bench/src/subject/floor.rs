//! The minimum of work: one TLS session, one LIST and one WATCH for each context, without parsing the answers. It uses no
//! HTTP library, and searches only for the end of the list and the number of a beat.
//!
//! No program that lists and watches can be faster with the same server on the same machine.

use std::{
    future::poll_fn,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};

use anyhow::{Context, Result, ensure};
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    task::JoinSet,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    SubjectArgs, Tally,
    kube_rs::{self, Endpoint},
};

/// The most bytes of a TLS record.
const READ: usize = 16 << 10;
const LIST: &str = "/api/v1/configmaps?resourceVersion=0";

/// The subject.
///
/// # Errors
///
/// When the kubeconfig can't be read, and when a server does not answer as one does that has no faults.
pub async fn run(args: SubjectArgs, tally: Tally) -> Result<()> {
    let mut watches = JoinSet::new();
    for endpoint in kube_rs::contexts(&args.kubeconfig)? {
        watches.spawn(list_and_watch(endpoint, tally.clone()));
    }
    while let Some(ended) = watches.join_next().await {
        ended??;
    }
    Ok(())
}

async fn list_and_watch(endpoint: Endpoint, tally: Tally) -> Result<()> {
    let server = &endpoint.server;
    let host = server.host().context("a server without a host")?.to_owned();
    let name = host.trim_matches(['[', ']']);
    let tcp = TcpStream::connect((name, server.port_u16().unwrap_or(443))).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned())?;
    let mut stream = TlsConnector::from(Arc::new(endpoint.tls))
        .connect(name, tcp)
        .await?;
    let head = {
        let path = server.path().trim_end_matches('/');
        let token = endpoint.user.token.as_ref();
        let login = token.map_or_else(String::new, |token| {
            format!("authorization: Bearer {}\r\n", token.expose_secret())
        });
        move |what: &str| format!("GET {path}{what} HTTP/1.1\r\nhost: {host}\r\n{login}\r\n")
    };

    stream.write_all(head(LIST).as_bytes()).await?;
    let found = read_list(&mut stream).await?;
    let version = found.resource_version();
    let watch = format!("/api/v1/configmaps?watch=true&resourceVersion={version}");
    stream.write_all(head(&watch).as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    ensure!(answer == *b"HTTP/1.1 200", "the watch was refused");
    tally.reconciled_many(found.objects);
    loop {
        let show = |bytes: &[u8]| {
            if let Some(seq) = seq(bytes) {
                tally.beat(&endpoint.name, seq);
            }
        };
        ensure!(read_watch(&mut stream, show).await? > 0, "a watch has ended");
    }
}

/// Passes arrived bytes to `show` at once, and returns their number. A waiting watch has no read buffer.
async fn read_watch(stream: &mut TlsStream<TcpStream>, mut show: impl FnMut(&[u8])) -> Result<usize> {
    let read = poll_fn(|context| {
        let mut space = [const { MaybeUninit::uninit() }; READ];
        let mut space = ReadBuf::uninit(&mut space);
        let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut space));
        show(space.filled());
        Poll::Ready(read.map(|()| space.filled().len()))
    });
    Ok(read.await?)
}

/// The number in a beat. An event is in one record, as servers write it; the head of the answer says no such thing.
fn seq(event: &[u8]) -> Option<u64> {
    const MARK: &[u8] = b"\"seq\":\"";
    let from = memchr::memmem::find(event, MARK)? + MARK.len();
    let digits = event.get(from..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

async fn read_list(stream: &mut TlsStream<TcpStream>) -> Result<Found> {
    let mut found = Found::default();
    let mut answer = Answer::default();
    let mut space = vec![0; READ];
    while !answer.is_done() {
        let read = stream.read(&mut space).await?;
        ensure!(read > 0, "a list was cut off");
        answer.read(space.get(..read).unwrap_or_default(), |content| {
            found.read(content)
        })?;
    }
    Ok(found)
}

/// The part of HTTP that is needed to find the end of a list.
#[derive(Default)]
struct Answer {
    /// The line that is being read, or the head.
    text: Vec<u8>,
    now: Now,
}

#[derive(Default)]
enum Now {
    #[default]
    Head,
    Size,
    Content {
        left: usize,
        is_last: bool,
    },
    LastLine,
    Done,
}

impl Answer {
    fn is_done(&self) -> bool {
        matches!(self.now, Now::Done)
    }

    fn read(&mut self, mut bytes: &[u8], mut content: impl FnMut(&[u8])) -> Result<()> {
        while let [next, rest @ ..] = bytes {
            if let Now::Content { left, is_last } = &mut self.now {
                let (taken, rest) = bytes.split_at((*left).min(bytes.len()));
                content(taken);
                *left -= taken.len();
                if *left == 0 {
                    self.now = if *is_last { Now::Done } else { Now::Size };
                }
                bytes = rest;
                continue;
            }
            self.text.push(*next);
            bytes = rest;
            let is_empty_line = self.text == b"\r\n";
            let ends = match self.now {
                Now::Head => self.text.ends_with(b"\r\n\r\n"),
                // There is one behind each chunk.
                Now::Size if is_empty_line => {
                    self.text.clear();
                    false
                }
                _ => self.text.ends_with(b"\n"),
            };
            if ends {
                let text = String::from_utf8(std::mem::take(&mut self.text))?.to_ascii_lowercase();
                self.now = match self.now {
                    Now::Head => Self::after_head(&text)?,
                    Now::Size => match usize::from_str_radix(text.trim(), 16)? {
                        0 => Now::LastLine,
                        left => Now::Content { left, is_last: false },
                    },
                    _ => Now::Done,
                };
            }
        }
        Ok(())
    }

    fn after_head(head: &str) -> Result<Now> {
        ensure!(head.starts_with("http/1.1 200 "), "the list was refused: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        Ok(match length {
            Some(length) => Now::Content {
                left: length.trim().parse()?,
                is_last: true,
            },
            None => Now::Size,
        })
    }
}

/// The needed facts about a list, found without parsing its JSON.
#[derive(Default)]
struct Found {
    objects: usize,
    /// The beginning, where the list's own metadata is.
    head: Vec<u8>,
    /// The end of what was read, in which a mark may have begun.
    tail: Vec<u8>,
}

impl Found {
    /// Every object has one.
    const MARK: &[u8] = b"\"uid\":\"";

    fn read(&mut self, bytes: &[u8]) {
        let room = 512_usize.saturating_sub(self.head.len());
        self.head.extend(bytes.iter().take(room));
        let marks = |bytes: &[u8]| memchr::memmem::find_iter(bytes, Self::MARK).count();
        // Marks that begin before these bytes and end in them, and those within.
        let short = Self::MARK.len() - 1;
        let seam = [&self.tail, bytes.get(..short).unwrap_or(bytes)].concat();
        self.objects += marks(&seam) + marks(bytes);
        let end = if bytes.len() < short { &seam } else { bytes };
        self.tail = end
            .get(end.len().saturating_sub(short)..)
            .unwrap_or_default()
            .to_vec();
    }

    fn resource_version(&self) -> String {
        let head = String::from_utf8_lossy(&self.head);
        let version = head.split("\"resourceVersion\":\"").nth(1);
        version
            .and_then(|rest| rest.split('"').next())
            .unwrap_or("0")
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_list_is_found_wherever_the_pieces_end() {
        let chunked =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nabcd\r\n3\r\ne\r\n\r\n0\r\n\r\n";
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nabcde\r\n";
        for text in [chunked, whole] {
            for size in 1..text.len() {
                let (mut answer, mut all) = (Answer::default(), Vec::new());
                for piece in text.as_bytes().chunks(size) {
                    assert!(!answer.is_done() || text == chunked);
                    if !answer.is_done() {
                        answer
                            .read(piece, |content| all.extend_from_slice(content))
                            .unwrap();
                    }
                }
                assert!(answer.is_done());
                assert_eq!(all, b"abcde\r\n", "{size}");
            }
        }
        let refused = Answer::default().read(b"HTTP/1.1 403 Forbidden\r\n\r\n", |_| ());
        assert!(refused.is_err());
    }

    #[test]
    fn a_beat_is_distinguished_from_what_is_around_it() {
        let event = format!("1f4\r\n{}\n\r\n", crate::objects::beat(1_234));
        assert_eq!(seq(event.as_bytes()), Some(1_234));
        for other in ["HTTP/1.1 200 OK\r\n\r\n", "{\"seq\":\"", "{\"seq\":\"x\"}", ""] {
            assert_eq!(seq(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn marks_are_found_wherever_the_pieces_end() {
        let list = br#"{"metadata":{"resourceVersion":"77"},"items":[{"metadata":{"uid":"a"}},{"metadata":{"uid":"b"}}]}"#;
        for size in 1..list.len() {
            let mut found = Found::default();
            list.chunks(size).for_each(|piece| found.read(piece));
            assert_eq!((found.objects, &*found.resource_version()), (2, "77"), "{size}");
        }
    }
}
