//! The content of a list, unpacked if the server has compressed it.

use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_compression::tokio::bufread::GzipDecoder;
use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use http::{Response, header};
use http_body_util::BodyExt;
use mcr_client::{ResponseBody, TransportError};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt},
    task::coop::consume_budget,
};
use tokio_util::io::StreamReader;

use crate::error::WatchError;

/// How many times what arrived unpacked content may take. Objects that are nearly alike take 50 times as much; what is made for it, or
/// a few large objects of one letter, a thousand times, and would cost its server little and this process much.
const MOST_GROWTH: u64 = 128;

/// Content of this size may have grown as much as it wants.
const ANY_GROWTH: u64 = 1 << 20;

/// Content may have shrunk by so much. Each read unpacks about 1 MiB before that counts. More is made for it: parts that are empty cost
/// this process much, and would come without an end.
const MOST_SHRINKAGE: u64 = 4 << 20;

/// The room that is made in a buffer that has none, and about what a decoder and what it has not unpacked yet take.
const ROOM: usize = 64 << 10;
const DECODER: usize = 112 << 10;

type Packed = StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>;

/// The content of a response.
pub(super) enum Content {
    Plain(ResponseBody),
    Gzip(Box<Gzip>),
}

impl Content {
    /// The content of a response. `accepts_gzip`: whether the request did.
    pub(super) fn of(response: Response<ResponseBody>, accepts_gzip: bool) -> Self {
        let encoding = response.headers().get(header::CONTENT_ENCODING);
        // Of other names: `x-gzip` is the same, and anything else can't be unpacked, so the next list is asked for uncompressed.
        let is_packed = encoding.is_some_and(|encoding| encoding != "identity");
        let body = response.into_body();
        if !accepts_gzip || !is_packed {
            return Self::Plain(body);
        }
        Self::Gzip(Box::new(Gzip::new(body.into_data_stream())))
    }

    /// Appends the next piece to `buffer`, and returns whether the content has ended. What is unpacked takes the room that the buffer
    /// has. Before the first piece nothing is allocated.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, WatchError> {
        match self {
            Self::Plain(body) => {
                let until = buffer.len() + 1;
                body.read_part(buffer, until).await.map_err(failed)
            }
            Self::Gzip(gzip) => gzip.read(buffer).await,
        }
    }

    /// All of the content. None if it is longer than `limit` bytes, or fails.
    pub(super) async fn read_all(mut self, limit: usize) -> Option<Vec<u8>> {
        let mut all = Vec::new();
        while !self.read(&mut all).await.ok()? && all.len() <= limit {}
        Some(all).filter(|all| all.len() <= limit)
    }

    /// About the bytes that it holds beside the buffer.
    pub(super) fn held(&self) -> usize {
        match self {
            Self::Gzip(gzip) if gzip.decoder.is_some() => DECODER,
            Self::Gzip(_) | Self::Plain(_) => 0,
        }
    }
}

/// Compressed content.
pub(super) struct Gzip {
    /// Empty once there is a decoder.
    packed: Packed,
    /// None before the first piece: it is large, and thousands of bodies may wait for their first bytes.
    decoder: Option<GzipDecoder<Packed>>,
    counted: Arc<Counted>,
}

#[derive(Default)]
struct Counted {
    arrived: AtomicU64,
    unpacked: AtomicU64,
}

impl Gzip {
    fn new(pieces: impl Stream<Item = Result<Bytes, TransportError>> + Send + 'static) -> Self {
        let counted = Arc::<Counted>::default();
        let sizes = counted.clone();
        let packed = pieces.map(move |piece| {
            let piece = piece.map_err(io::Error::other)?;
            let size = piece.len() as u64;
            let arrived = sizes.arrived.fetch_add(size, Ordering::Relaxed) + size;
            if arrived > sizes.unpacked.load(Ordering::Relaxed) + MOST_SHRINKAGE {
                return Err(io::Error::other("it has next to nothing in it"));
            }
            Ok(piece)
        });
        Self {
            packed: StreamReader::new(packed.boxed()),
            decoder: None,
            counted,
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, WatchError> {
        if self.decoder.is_none() {
            self.packed.fill_buf().await.map_err(not_unpacked)?;
        }
        let decoder = self.decoder.get_or_insert_with(|| {
            let none = StreamReader::new(stream::empty().boxed());
            let mut decoder = GzipDecoder::new(mem::replace(&mut self.packed, none));
            decoder.multiple_members(true);
            decoder
        });
        if buffer.len() == buffer.capacity() {
            buffer.reserve_exact(ROOM);
        }
        // Otherwise content that grows much would hold up the other clusters of this thread.
        consume_budget().await;
        let read = decoder.read_buf(buffer).await.map_err(not_unpacked)?;
        let Counted { arrived, unpacked } = &*self.counted;
        let so_far = unpacked.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
        if so_far > ANY_GROWTH && so_far / MOST_GROWTH > arrived.load(Ordering::Relaxed) {
            return Err(unusable("grows more than 128 times when it is unpacked"));
        }
        Ok(read == 0)
    }
}

fn failed(error: TransportError) -> WatchError {
    WatchError::from_transport(&error.into())
}

fn not_unpacked(error: io::Error) -> WatchError {
    let error = error.downcast().map(failed);
    error.unwrap_or_else(|error| unusable(&format!("can't be unpacked ({error})")))
}

fn unusable(why: &str) -> WatchError {
    let off = "gzip_lists is off for this cluster, as by disable-compression in a kubeconfig";
    WatchError::Malformed(format!(
        "the compressed list {why}; the next ones come uncompressed, and all do if {off}"
    ))
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, channel::mpsc};

    use super::*;

    #[tokio::test]
    async fn nothing_is_allocated_for_compressed_content_before_its_first_piece() {
        let (server, pieces) = mpsc::unbounded();
        let mut content = Content::Gzip(Box::new(Gzip::new(pieces)));
        let mut buffer = Vec::new();
        assert!(content.read(&mut buffer).now_or_never().is_none());
        assert_eq!((content.held(), buffer.capacity()), (0, 0));
        let empty_head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        server.unbounded_send(Ok(Bytes::from_owner(empty_head))).unwrap();
        assert!(content.read(&mut buffer).now_or_never().is_none());
        assert_eq!((content.held(), buffer.capacity()), (DECODER, ROOM));
    }
}
