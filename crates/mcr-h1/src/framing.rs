//! Where the content of a response ends (RFC 9112, sections 6 and 7), without I/O.

use crate::error::Malformed;

/// The longest chunk extension in bytes, and the limit for all trailers together.
const MAX_EXTENSION_OR_TRAILERS: u16 = 16 << 10;

/// How the end of the content is found ([RFC 9112, section 6.3]), and how much content is still to come.
///
/// [`Head::parse`](crate::Head::parse) makes it from the headers. [`read`](Self::read) extracts the content from the bytes that
/// arrive.
///
/// [RFC 9112, section 6.3]: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// This many bytes are still to come.
    Length(u64),
    /// The content arrives in chunks, each with its length.
    Chunked(Chunk),
    /// The server closes the connection at the end.
    UntilClosed,
}

/// The position in chunked content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk(State);

/// What comes next in chunked content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The size of a chunk, or the rest of the size.
    Size { so_far: u64, digits: u8 },
    /// The extension after a size, of which `len` bytes have arrived.
    Extension { size: u64, len: u16 },
    /// The line feed after the size.
    SizeEnd(u64),
    /// This many bytes of content.
    Content(u64),
    /// The carriage return after a chunk.
    ContentCr,
    /// The line feed after a chunk.
    ContentLf,
    /// Trailers, of which `len` bytes have arrived.
    Trailer { len: u16, line_is_empty: bool },
    /// The line feed after a trailer.
    TrailerLf { len: u16 },
    /// The very last line feed.
    LastLf,
    /// Nothing: the content is complete.
    Done,
}

const NEXT_CHUNK: State = State::Size { so_far: 0, digits: 0 };

impl Framing {
    /// The beginning of chunked content.
    pub fn chunked() -> Self {
        Self::Chunked(Chunk(NEXT_CHUNK))
    }

    /// Whether all content has been read. Never true for [`UntilClosed`](Self::UntilClosed).
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk(State::Done)))
    }

    /// How many bytes of content are still to come, if known.
    pub fn remaining(&self) -> Option<u64> {
        match self {
            Self::Length(remaining) => Some(*remaining),
            Self::Chunked(_) | Self::UntilClosed => None,
        }
    }

    /// Appends the content in `input` to `content`. Returns how many bytes of `input` belong to the response: all, unless the
    /// response ends in `input`.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for chunks that break the grammar of RFC 9112, section 7.1, for a chunk extension of more than 16 KiB, and
    /// for more than 16 KiB of trailers. The content before the error has been appended.
    pub fn read(&mut self, input: &[u8], content: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self {
            Self::UntilClosed => {
                content.extend_from_slice(input);
                Ok(input.len())
            }
            Self::Length(remaining) => Ok(take(remaining, input, content)),
            Self::Chunked(Chunk(state)) => {
                let mut rest = input;
                while let [next, behind @ ..] = rest
                    && *state != State::Done
                {
                    if let State::Content(remaining) = state {
                        let taken = take(remaining, rest, content);
                        rest = rest.get(taken..).unwrap_or_default();
                        if *remaining == 0 {
                            *state = State::ContentCr;
                        }
                    } else {
                        *state = state.after(*next)?;
                        rest = behind;
                    }
                }
                Ok(input.len() - rest.len())
            }
        }
    }
}

/// Takes at most `remaining` bytes.
fn take(remaining: &mut u64, input: &[u8], content: &mut Vec<u8>) -> usize {
    let len = usize::try_from(*remaining).map_or(input.len(), |remaining| remaining.min(input.len()));
    content.extend_from_slice(input.get(..len).unwrap_or_default());
    *remaining -= len as u64;
    len
}

impl State {
    /// The state after a byte that is not content.
    fn after(self, byte: u8) -> Result<Self, Malformed> {
        let longer = |len: u16| {
            (len < MAX_EXTENSION_OR_TRAILERS)
                .then_some(len + 1)
                .ok_or(Malformed)
        };
        Ok(match (self, byte) {
            (Self::Size { so_far, digits }, byte) if byte.is_ascii_hexdigit() && digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(Malformed)?;
                Self::Size {
                    so_far: so_far << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (
                Self::Size {
                    so_far: size,
                    digits: 1..,
                },
                b';' | b' ' | b'\t',
            ) => Self::Extension { size, len: 0 },
            (
                Self::Size {
                    so_far: size,
                    digits: 1..,
                }
                | Self::Extension { size, .. },
                b'\r',
            ) => Self::SizeEnd(size),
            // A bare line feed is refused: some parsers end the line there, and would find another end of the content.
            (Self::Extension { size, len }, byte) if byte != b'\n' => Self::Extension {
                size,
                len: longer(len)?,
            },
            (Self::SizeEnd(0), b'\n') => Self::Trailer {
                len: 0,
                line_is_empty: true,
            },
            (Self::SizeEnd(size), b'\n') => Self::Content(size),
            (Self::ContentCr, b'\r') => Self::ContentLf,
            (Self::ContentLf, b'\n') => NEXT_CHUNK,
            (
                Self::Trailer {
                    line_is_empty: true, ..
                },
                b'\r',
            ) => Self::LastLf,
            (Self::Trailer { len, .. }, b'\r') => Self::TrailerLf { len: longer(len)? },
            (Self::TrailerLf { len }, b'\n') => Self::Trailer {
                len: longer(len)?,
                line_is_empty: true,
            },
            (Self::Trailer { len, .. }, byte) if byte != b'\n' => Self::Trailer {
                len: longer(len)?,
                line_is_empty: false,
            },
            (Self::LastLf, b'\n') => Self::Done,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The content, the number of bytes after the response, and whether the content is complete.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let mut content = Vec::new();
        let mut behind = 0;
        for piece in pieces {
            behind += piece.len() - framing.read(piece, &mut content)?;
        }
        Ok((content, behind, framing.is_done()))
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for bad in [
            "\r\n",
            "g\r\n",
            "+1\r\nx\r\n",
            "0x1\r\nx\r\n",
            "1\nx\r\n",
            "1;a\nx\r\n",
            "1\r\nxy\r\n",
            "1\r\nx\n",
            "11111111111111111\r\n",
            "0\r\n\n\rx",
            "0\r\na: b\n\r\n",
            "0\r\na: b\rc\r\n\r\n",
            "0\r\n\na: b\r\n\r\n",
            " 1\r\n",
            "1\r1\r\n",
        ] {
            assert_eq!(
                read(Framing::chunked(), &[bad.as_bytes()]),
                Err(Malformed),
                "{bad:?}"
            );
        }
        let endless = format!("1;{}", "x".repeat(1 << 20));
        assert_eq!(read(Framing::chunked(), &[endless.as_bytes()]), Err(Malformed));
        let endless = format!("0\r\n{}", "a: b\r\n".repeat(1 << 16));
        assert_eq!(read(Framing::chunked(), &[endless.as_bytes()]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn content_is_found_wherever_the_pieces_end(
            chunks in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), "(;[a-z =\"]{0,9}| )?", any::<bool>()), 0..6),
            trailers in prop::collection::vec("[A-Za-z-]{1,9}: [ -~]{0,9}\r\n", 0..3),
            behind in "[ -~]{0,9}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
        ) {
            let mut text = Vec::new();
            let mut all = Vec::new();
            for (chunk, extension, upper) in &chunks {
                let size = if *upper { format!("0{:X}", chunk.len()) } else { format!("{:x}", chunk.len()) };
                text.extend_from_slice(format!("{size}{extension}\r\n").as_bytes());
                text.extend_from_slice(chunk);
                text.extend_from_slice(b"\r\n");
                all.extend_from_slice(chunk);
            }
            text.extend_from_slice(b"0\r\n");
            trailers.iter().for_each(|trailer| text.extend_from_slice(trailer.as_bytes()));
            text.extend_from_slice(b"\r\n");
            let whole = text.len();
            text.extend_from_slice(behind.as_bytes());

            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([text.len()]) {
                pieces.push(&text[from..cut]);
                from = cut;
            }
            prop_assert_eq!(
                read(Framing::chunked(), &pieces),
                Ok((all.clone(), behind.len(), true))
            );
            // Without the last byte, the content is not complete.
            let (_, _, done) = read(Framing::chunked(), &[&text[..whole - 1]]).unwrap();
            prop_assert!(!done);
            let length = Framing::Length(all.len() as u64);
            let more = [&all[..], behind.as_bytes()].concat();
            prop_assert_eq!(read(length, &[&more]), Ok((all, behind.len(), true)));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut content = Vec::new();
            let mut framing = Framing::chunked();
            if let Ok(used) = framing.read(&bytes, &mut content) {
                prop_assert!(used <= bytes.len() && content.len() <= used);
            }
        }
    }
}
