//! One response of a list, read in parts.

use std::{sync::Arc, time::Duration};

use mcr_store::{ListDecoder, ListEnd, RawObjects};
use tokio::time::Instant;

use super::{
    api::{PageError, PageRequest, send_list, silent},
    content::Content,
    env::DriverEnv,
    staged::Staged,
};
use crate::{budget::Reservation, counters::KindCounters, error::WatchError};

/// How long a list holds the bytes that it does not use while it waits for the response. Hundreds of silent clusters may stand
/// in line before a healthy one, so this is short. When the response comes, the list begins again.
const HOLD_WHILE_WAITING: Duration = Duration::from_millis(250);

/// How long a list holds the bytes that it does not use while it reads the body: a slow cluster must not keep the others from
/// listing.
const HOLD_WHILE_READING: Duration = Duration::from_secs(10);

/// How much of a body is read before its objects are decoded.
const PART: usize = 1 << 20;

/// The most that a connection appends to a buffer at once.
const PIECE: usize = 64 << 10;

/// One response of a list.
pub(super) struct Page {
    counts: Arc<KindCounters>,
    content: Content,
    decoder: ListDecoder,
    received: usize,
    ended: bool,
    hold_until: Instant,
}

impl Page {
    /// Sends the request for one page and waits for the head of the response.
    pub(super) async fn request(
        env: &DriverEnv,
        request: PageRequest<'_>,
        reservation: &mut Reservation,
    ) -> Result<Self, PageError> {
        let sent = async {
            tokio::select! {
                response = send_list(env, request) => response,
                // Boxed: few clusters are not supervised.
                error = Box::pin(silent(env, request.kind)), if !env.health.is_supervised => {
                    Err(PageError::Refused(error))
                }
            }
        };
        let content = reservation.hold_at_most(HOLD_WHILE_WAITING, sent).await?;
        reservation.begin_again().await;
        Ok(Self {
            counts: env.counts.clone(),
            content,
            decoder: ListDecoder::default(),
            received: 0,
            ended: false,
            hold_until: Instant::now() + HOLD_WHILE_READING,
        })
    }

    /// Whether the server has compressed the page.
    pub(super) fn is_compressed(&self) -> bool {
        matches!(self.content, Content::Gzip(_))
    }

    /// The next objects of the page; none at its end. `staged` has those that came before.
    ///
    /// # Errors
    /// If the body breaks off, is not a list, or takes more memory than is left.
    pub(super) async fn read(
        &mut self,
        reservation: &mut Reservation,
        staged: &mut Staged,
    ) -> Result<Option<RawObjects<'_>>, WatchError> {
        if self.ended {
            return Ok(None);
        }
        let buffer = self.decoder.buffer();
        let part = buffer.len() + PART;
        while !self.ended && buffer.len() < part {
            let before = buffer.len();
            let hold = self.hold_until.saturating_duration_since(Instant::now());
            // One piece after the other, because thousands of slow lists that read on would take memory that nobody counts.
            let read = self.content.read(buffer);
            self.ended = reservation.hold_at_most(hold, read).await?;
            if self.received == 0 {
                // Allocated only now, because thousands of bodies may wait for their first bytes.
                let expected = self.counts.expected_page().min(PART);
                buffer.reserve_exact(expected.saturating_sub(buffer.len()));
            }
            self.received += buffer.len() - before;
            if !self.ended && buffer.capacity() - buffer.len() < PIECE {
                // A buffer that doubles has room that nobody uses, and takes three times its size while it grows.
                buffer.reserve_exact(PIECE.max(buffer.len() / 8));
            }
            let buffered = buffer.capacity() + self.content.held();
            let limit = reservation.limit();
            let over = (staged.bytes + buffered).saturating_sub(limit);
            // Nothing helps if the buffer alone takes too much.
            if over > 0 && buffered <= limit {
                staged.make_room(over);
            }
            reservation.use_bytes(staged.bytes + buffered).await?;
        }
        Ok(Some(self.decoder.read()?))
    }

    /// Ends the page after its last objects.
    ///
    /// # Errors
    /// If the list was cut off or has no resource version.
    pub(super) fn finish(self) -> Result<ListEnd, WatchError> {
        self.counts.read_page(self.received);
        Ok(self.decoder.finish()?)
    }
}
