//! What can't be saved: one TLS session, one LIST and one WATCH for each context, and nothing done with what they say.
//!
//! Nobody who lists and watches can be faster against the same server on the same machine.

use std::path::PathBuf;

use anyhow::Result;
use http::Request;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use tokio::task::JoinSet;

use super::{Tally, kube_rs};

/// As large as one that waits for events need be.
const READ_BUFFER: usize = 8 << 10;
const LIST: &str = "/api/v1/configmaps?resourceVersion=0";

pub(super) async fn run(path: PathBuf, tally: Tally) -> Result<()> {
    let mut watches = JoinSet::new();
    for (_, client) in kube_rs::clients(&path, Some(READ_BUFFER))? {
        watches.spawn(list_and_watch(client, tally.clone()));
    }
    while let Some(ended) = watches.join_next().await {
        ended??;
    }
    Ok(())
}

async fn list_and_watch(client: Client, tally: Tally) -> Result<()> {
    let listing = client.send(Request::get(LIST).body(Body::empty())?).await?;
    let mut found = Found::default();
    let mut body = listing.into_body();
    while let Some(frame) = body.frame().await {
        if let Some(bytes) = frame?.data_ref() {
            found.read(bytes);
        }
    }
    drop(body);
    let watch = format!(
        "/api/v1/configmaps?watch=true&resourceVersion={}",
        found.resource_version()
    );
    let watching = client.send(Request::get(watch).body(Body::empty())?).await?;
    tally.reconciled_many(found.objects);
    std::future::pending::<()>().await;
    drop(watching);
    Ok(())
}

/// What has to be known of a list, found without reading it as JSON.
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
    fn marks_are_found_wherever_the_pieces_end() {
        let list = br#"{"metadata":{"resourceVersion":"77"},"items":[{"metadata":{"uid":"a"}},{"metadata":{"uid":"b"}}]}"#;
        for size in 1..list.len() {
            let mut found = Found::default();
            list.chunks(size).for_each(|piece| found.read(piece));
            assert_eq!((found.objects, &*found.resource_version()), (2, "77"), "{size}");
        }
    }
}
