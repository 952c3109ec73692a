//! Splits the body of a watch into lines.

use bytes::{Bytes, BytesMut};

/// The longest line that [`LineDecoder`] accepts: 16 MiB.
///
/// API servers limit objects to 1.5 MiB by default, and some are configured for more. A longer line is not a watch
/// event.
pub const MAX_LINE: usize = 16 << 20;

/// Splits the body of a watch into lines, whatever chunks the body arrives in. A line within one chunk is not copied.
///
/// Push a chunk, take all lines, push the next chunk.
///
/// ```
/// use bytes::Bytes;
/// use mcr_store::LineDecoder;
///
/// let mut lines = LineDecoder::default();
/// lines.push(Bytes::from_static(b"{\"type\":\"ADDED\"}\n{\"type\":"));
/// assert_eq!(lines.next(), Some(Ok(Bytes::from_static(b"{\"type\":\"ADDED\"}"))));
/// assert_eq!(lines.next(), None);
///
/// lines.push(Bytes::from_static(b"\"DELETED\"}\n"));
/// assert_eq!(lines.next(), Some(Ok(Bytes::from_static(b"{\"type\":\"DELETED\"}"))));
/// assert_eq!(lines.rest(), None);
/// ```
#[derive(Debug, Default)]
pub struct LineDecoder {
    /// The beginning of a line, from earlier chunks.
    buffer: BytesMut,
    /// The rest of the current chunk.
    chunk: Bytes,
}

/// A line is longer than [`MAX_LINE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of the watch is longer than 16 MiB")]
pub struct LineTooLong;

impl LineDecoder {
    /// Adds a chunk. First take all lines of the previous chunk with [`next`](Self::next): a line that was not taken
    /// is joined with the following line.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else {
            let rest = std::mem::take(&mut self.chunk);
            self.buffer.extend_from_slice(&rest);
            self.chunk = chunk;
        }
    }

    /// The next whole line, without its line feed. Skips lines of white space. `None` if no whole line is left. After
    /// another [`push`](Self::push) there may be one.
    ///
    /// # Errors
    /// [`LineTooLong`] if a line grows beyond [`MAX_LINE`]. Stop reading the body then.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator ends at the first `None`, and lines go on"
    )]
    #[inline]
    pub fn next(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.chunk) else {
                self.buffer.extend_from_slice(&self.chunk);
                self.chunk = Bytes::new();
                return (self.buffer.len() > MAX_LINE).then_some(Err(LineTooLong));
            };
            let head = self.chunk.split_to(end + 1).slice(..end);
            let line = if self.buffer.is_empty() {
                head
            } else {
                self.buffer.extend_from_slice(&head);
                self.buffer.split().freeze()
            };
            if line.len() > MAX_LINE {
                return Some(Err(LineTooLong));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Ok(line));
            }
        }
    }

    /// The last line, if the body has ended without a line feed. `None` if there is only white space.
    pub fn rest(&mut self) -> Option<Bytes> {
        self.buffer.extend_from_slice(&std::mem::take(&mut self.chunk));
        (!self.buffer.iter().all(u8::is_ascii_whitespace)).then(|| self.buffer.split().freeze())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = LineDecoder::default();
        let mut out = Vec::new();
        for chunk in chunks {
            lines.push(Bytes::copy_from_slice(chunk));
            while let Some(line) = lines.next() {
                out.push(line.unwrap().to_vec());
            }
        }
        out.extend(lines.rest().map(|line| line.to_vec()));
        out
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut lines = LineDecoder::default();
        let mut refused = false;
        for _ in 0..=17 {
            lines.push(Bytes::from(vec![b'x'; 1 << 20]));
            refused |= lines.next() == Some(Err(LineTooLong));
        }
        assert!(refused);
    }

    proptest! {
        #[test]
        fn splitting_does_not_depend_on_the_chunks(text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'x'), any::<u8>()], 0..200), cuts in proptest::collection::vec(0usize..200, 0..8)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                chunks.push(&text[from..cut]);
                from = cut;
            }
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
            prop_assert_eq!(all(&chunks), lines.collect::<Vec<_>>());
        }
    }
}
