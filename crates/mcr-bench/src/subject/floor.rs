//! The minimum of work: one TLS session, one LIST and one WATCH for each context, without parsing the content. It searches only for
//! the objects of the list and the number of a beat.
//!
//! No program that lists and watches can be much faster with the same server on the same machine.

use std::{future::poll_fn, sync::Arc};

use anyhow::{Context, Result, ensure};
use mcr_h1::Connection;
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::TlsConnector;

use super::{
    SubjectArgs, Tally,
    kube_rs::{self, Endpoint, first_failure},
};

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
    first_failure(watches).await
}

async fn list_and_watch(endpoint: Endpoint, tally: Tally) -> Result<()> {
    let server = &endpoint.server;
    let host = server.host().context("a server without a host")?.to_owned();
    let name = host.trim_matches(['[', ']']);
    let tcp = TcpStream::connect((name, server.port_u16().unwrap_or(443))).await?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(name.to_owned())?;
    let tls = TlsConnector::from(Arc::new(endpoint.tls))
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

    let list = Connection::new(tls).send(head(LIST).as_bytes()).await?;
    ensure!(list.status() == 200, "the list was refused: {}", list.status());
    let (mut list, mut found, mut read) = (list.into_body(), Found::default(), Vec::new());
    while let Some(more) = poll_fn(|context| list.poll_append(context, &mut read)).await {
        more?;
        found.read(&read);
        read.clear();
    }
    let connection = list
        .take_connection()
        .context("the connection was closed after the list")?;
    let version = found.resource_version();
    drop((list, read));
    let watch = format!("/api/v1/configmaps?watch=true&resourceVersion={version}");
    let watch = connection.send(head(&watch).as_bytes()).await?;
    ensure!(watch.status() == 200, "the watch was refused: {}", watch.status());
    tally.reconciled_many(found.objects);
    let mut watch = watch.into_body();
    loop {
        // A waiting watch has no buffer.
        let mut event = Vec::new();
        let more = poll_fn(|context| watch.poll_append(context, &mut event)).await;
        more.context("a watch has ended")??;
        if let Some(seq) = seq(&event) {
            tally.beat(&endpoint.name, seq);
        }
    }
}

/// The number in a beat. Servers write an event in one record, which is read at once.
fn seq(event: &[u8]) -> Option<u64> {
    const MARK: &[u8] = b"\"seq\":\"";
    let from = memchr::memmem::find(event, MARK)? + MARK.len();
    let digits = event.get(from..)?.split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
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
