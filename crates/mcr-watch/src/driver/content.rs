//! The content of a list, unpacked if the server has compressed it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_compression::tokio::bufread::GzipDecoder;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use http::{Response, header};
use http_body_util::BodyExt;
use mcr_client::{ResponseBody, TransportError};
use tokio::{io::AsyncReadExt, task::coop::consume_budget};
use tokio_util::io::StreamReader;

use crate::error::WatchError;

/// How many times what arrived unpacked content may take. Objects that are nearly alike take 50 times as much; what is made for it, a
/// thousand times, and would cost its server little and this process much.
const MOST_GROWTH: u64 = 128;

/// Content of this size may have grown as much as it wants.
const ANY_GROWTH: u64 = 1 << 20;

/// The room that is made in a buffer that has none, and about what a decoder and what it has not unpacked yet take.
const ROOM: usize = 64 << 10;
const DECODER: usize = 112 << 10;

type Decoder = GzipDecoder<StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>>;

/// The content of a response.
pub(super) enum Content {
    Plain(ResponseBody),
    Gzip {
        decoder: Box<Decoder>,
        arrived: Arc<AtomicU64>,
        unpacked: u64,
    },
}

impl Content {
    /// The content of a response. `accepts_gzip`: whether the request did.
    pub(super) fn of(response: Response<ResponseBody>, accepts_gzip: bool) -> Self {
        let encoding = response.headers().get(header::CONTENT_ENCODING);
        let is_gzip = encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
        let body = response.into_body();
        if !accepts_gzip || !is_gzip {
            return Self::Plain(body);
        }
        let arrived = Arc::<AtomicU64>::default();
        let counted = arrived.clone();
        let packed = body
            .into_data_stream()
            .inspect_ok(move |piece| _ = counted.fetch_add(piece.len() as u64, Ordering::Relaxed))
            .map_err(io::Error::other);
        let mut decoder = GzipDecoder::new(StreamReader::new(packed.boxed()));
        decoder.multiple_members(true);
        Self::Gzip {
            decoder: Box::new(decoder),
            arrived,
            unpacked: 0,
        }
    }

    /// Appends the next piece to `buffer`, and returns whether the content has ended. What is unpacked takes the room that the buffer
    /// has.
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<bool, WatchError> {
        let failed = |error: TransportError| WatchError::from_transport(&error.into());
        let (decoder, arrived, unpacked) = match self {
            Self::Plain(body) => {
                let until = buffer.len() + 1;
                return body.read_part(buffer, until).await.map_err(failed);
            }
            Self::Gzip {
                decoder,
                arrived,
                unpacked,
            } => (decoder, arrived, unpacked),
        };
        if buffer.len() == buffer.capacity() {
            buffer.reserve_exact(ROOM);
        }
        // Otherwise content that grows much would hold up the other clusters of this thread.
        consume_budget().await;
        let read = decoder.read_buf(buffer).await;
        let read = read.map_err(|error| {
            let error = error.downcast().map(failed);
            error.unwrap_or_else(|error| unusable(&format!("can't be unpacked ({error})")))
        })?;
        *unpacked += read as u64;
        if *unpacked > ANY_GROWTH && *unpacked / MOST_GROWTH > arrived.load(Ordering::Relaxed) {
            return Err(unusable("grows more than 128 times when it is unpacked"));
        }
        Ok(read == 0)
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
            Self::Gzip { .. } => DECODER,
            Self::Plain(_) => 0,
        }
    }
}

fn unusable(why: &str) -> WatchError {
    let help = "turn gzip_lists off for this cluster, as disable-compression in a kubeconfig does";
    WatchError::Malformed(format!("the compressed list {why}; if this stays, {help}"))
}
