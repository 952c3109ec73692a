//! Where an answer ends: heads and bodies of HTTP/1.1 (RFC 9112), without I/O.

use http::{HeaderName, HeaderValue, Response, StatusCode, Version, header};

/// What bounds the head of an answer.
pub(super) const LONGEST_HEAD: usize = 64 << 10;

/// What bounds what a server may say beside the content: the extensions of a chunk, or all trailers.
const LONGEST_ASIDE: u16 = 16 << 10;

/// As many as hyper reads.
const MOST_HEADERS: usize = 100;

/// What came is not HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// What a server says before the content.
#[derive(Debug)]
pub(super) enum Head {
    /// It has only begun.
    Partial,
    /// There is another one behind these bytes (RFC 9110, section 15.2).
    Interim(usize),
    Final {
        /// In bytes.
        len: usize,
        response: Response<()>,
        framing: Framing,
        /// Whether the connection can be used again.
        keeps: bool,
    },
}

impl Head {
    /// Reads the head of the answer to a GET.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        let len = match head.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) => return Ok(Self::Partial),
            Err(_) => return Err(Malformed),
        };
        let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(Malformed)?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            // Nobody asked for it.
            return Err(Malformed);
        }
        if status.is_informational() {
            return Ok(Self::Interim(len));
        }
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = match head.version {
            Some(0) => Version::HTTP_10,
            _ => Version::HTTP_11,
        };
        for field in head.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
            let value = HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?;
            response.headers_mut().append(name, value);
        }
        let framing = Framing::of(&response)?;
        let keeps = keeps(&response) && framing != Framing::UntilClosed;
        Ok(Self::Final {
            len,
            response,
            framing,
            keeps,
        })
    }
}

/// The elements of a header that is a list, in lower case.
fn elements(response: &Response<()>, name: HeaderName) -> Vec<String> {
    let values = response.headers().get_all(name).into_iter();
    values
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|element| String::from_utf8_lossy(element).trim().to_ascii_lowercase())
        .filter(|element| !element.is_empty())
        .collect()
}

fn keeps(response: &Response<()>) -> bool {
    let said = elements(response, header::CONNECTION);
    let said = |word: &str| said.iter().any(|element| element == word);
    let both = [header::TRANSFER_ENCODING, header::CONTENT_LENGTH];
    // One that says both may mean to smuggle something (RFC 9112, section 6.3).
    let clear = !both.iter().all(|name| response.headers().contains_key(name));
    clear && !said("close") && (response.version() == Version::HTTP_11 || said("keep-alive"))
}

/// How the end of the content is found (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes are to come.
    Length(u64),
    Chunked(Chunk),
    UntilClosed,
}

/// What is to come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    /// The rest of its size.
    Size {
        so_far: u64,
        digits: u8,
    },
    /// What some say after the size, and how much of that there was.
    Extension {
        size: u64,
        len: u16,
    },
    /// The line feed after the size.
    SizeEnd(u64),
    Content(u64),
    ContentCr,
    ContentLf,
    /// Trailers, and how much of them there was.
    Trailer {
        len: u16,
        line_is_empty: bool,
    },
    LastLf,
    Nothing,
}

const NEXT_CHUNK: Chunk = Chunk::Size { so_far: 0, digits: 0 };

impl Framing {
    /// Of the answer to a GET.
    fn of(response: &Response<()>) -> Result<Self, Malformed> {
        if matches!(
            response.status(),
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        ) {
            return Ok(Self::Length(0));
        }
        if response.headers().contains_key(header::TRANSFER_ENCODING) {
            let codings = elements(response, header::TRANSFER_ENCODING);
            let chunked = codings.last().is_some_and(|last| last == "chunked");
            return Ok(if chunked {
                Self::Chunked(NEXT_CHUNK)
            } else {
                Self::UntilClosed
            });
        }
        if !response.headers().contains_key(header::CONTENT_LENGTH) {
            return Ok(Self::UntilClosed);
        }
        let lengths = elements(response, header::CONTENT_LENGTH);
        let (first, more) = lengths.split_first().ok_or(Malformed)?;
        let is_number = first.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number || more.iter().any(|other| other != first) {
            return Err(Malformed);
        }
        first.parse().map(Self::Length).map_err(|_| Malformed)
    }

    /// Whether all has come.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Nothing))
    }

    /// How much is to come, where that was said.
    pub(super) fn left(&self) -> Option<u64> {
        match self {
            Self::Length(left) => Some(*left),
            Self::Chunked(_) | Self::UntilClosed => None,
        }
    }

    /// Takes the content out of what came. Returns how many bytes belong to the answer: all of them, unless it is done.
    pub(super) fn read(&mut self, input: &[u8], content: &mut Vec<u8>) -> Result<usize, Malformed> {
        match self {
            Self::UntilClosed => {
                content.extend_from_slice(input);
                Ok(input.len())
            }
            Self::Length(left) => Ok(take(left, input, content)),
            Self::Chunked(chunk) => {
                let mut rest = input;
                while let [next, behind @ ..] = rest
                    && *chunk != Chunk::Nothing
                {
                    if let Chunk::Content(left) = chunk {
                        let taken = take(left, rest, content);
                        rest = rest.get(taken..).unwrap_or_default();
                        if *left == 0 {
                            *chunk = Chunk::ContentCr;
                        }
                    } else {
                        *chunk = chunk.after(*next)?;
                        rest = behind;
                    }
                }
                Ok(input.len() - rest.len())
            }
        }
    }
}

/// Takes as much as is there of what is left.
fn take(left: &mut u64, input: &[u8], content: &mut Vec<u8>) -> usize {
    let len = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    content.extend_from_slice(input.get(..len).unwrap_or_default());
    *left -= len as u64;
    len
}

impl Chunk {
    /// What is to come after a byte that is not content.
    fn after(self, byte: u8) -> Result<Self, Malformed> {
        let longer = |len: u16| (len < LONGEST_ASIDE).then_some(len + 1).ok_or(Malformed);
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
            // A line feed within it is how others find another end than we do.
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
            (Self::Trailer { len, .. }, byte) => Self::Trailer {
                len: longer(len)?,
                line_is_empty: byte == b'\n',
            },
            (Self::LastLf, b'\n') => Self::Nothing,
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(text: &str) -> Result<Head, Malformed> {
        Head::read(text.as_bytes())
    }

    /// How an answer with these headers ends, and whether its connection can be used again.
    fn ends(status: &str, headers: &str) -> Result<(Framing, bool), Malformed> {
        match head(&format!("{status}\r\n{headers}\r\n"))? {
            Head::Final { framing, keeps, .. } => Ok((framing, keeps)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_end_is_where_the_head_says() {
        let ok = |headers: &str| ends("HTTP/1.1 200 OK", headers);
        let chunked = Framing::Chunked(NEXT_CHUNK);
        assert_eq!(ok("content-length: 7\r\n"), Ok((Framing::Length(7), true)));
        assert_eq!(ok("content-length: 7, 7\r\n"), Ok((Framing::Length(7), true)));
        assert_eq!(ok("Transfer-Encoding: Chunked\r\n"), Ok((chunked, true)));
        assert_eq!(ok("transfer-encoding: gzip, chunked\r\n"), Ok((chunked, true)));
        assert_eq!(
            ok("transfer-encoding: gzip\r\n"),
            Ok((Framing::UntilClosed, false))
        );
        assert_eq!(ok(""), Ok((Framing::UntilClosed, false)));
        assert_eq!(
            ok("content-length: 7\r\nconnection: x, Close\r\n"),
            Ok((Framing::Length(7), false))
        );
        // Chunks count, and the connection is not trusted any more.
        assert_eq!(
            ok("content-length: 7\r\ntransfer-encoding: chunked\r\n"),
            Ok((chunked, false))
        );
        for length in ["", "7, 8", "-7", "+7", "7a", "99999999999999999999"] {
            assert_eq!(
                ok(&format!("content-length: {length}\r\n")),
                Err(Malformed),
                "{length}"
            );
        }
        let empty = Ok((Framing::Length(0), true));
        assert_eq!(ends("HTTP/1.1 204 No Content", ""), empty);
        assert_eq!(ends("HTTP/1.1 304 Not Modified", "content-length: 7\r\n"), empty);
        let seven = "content-length: 7\r\n";
        assert_eq!(ends("HTTP/1.0 200 OK", seven), Ok((Framing::Length(7), false)));
        assert_eq!(
            ends(
                "HTTP/1.0 200 OK",
                "content-length: 7\r\nconnection: keep-alive\r\n"
            ),
            Ok((Framing::Length(7), true))
        );
    }

    #[test]
    fn what_comes_before_the_answer_is_not_the_answer() {
        assert!(matches!(
            head("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1"),
            Ok(Head::Interim(37))
        ));
        assert!(matches!(
            head("HTTP/1.1 200 OK\r\ncontent-len"),
            Ok(Head::Partial)
        ));
        assert!(matches!(head(""), Ok(Head::Partial)));
        assert_eq!(
            head("HTTP/1.1 101 Switching Protocols\r\n\r\n").err(),
            Some(Malformed)
        );
        assert_eq!(head("SSH-2.0-OpenSSH_9.7\r\n").err(), Some(Malformed));
        assert_eq!(head("HTTP/2 200 OK\r\n\r\n").err(), Some(Malformed));
    }

    /// All content, and how many bytes behind it are not of the answer.
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
            " 1\r\n",
            "1\r1\r\n",
        ] {
            assert_eq!(
                read(Framing::Chunked(NEXT_CHUNK), &[bad.as_bytes()]),
                Err(Malformed),
                "{bad:?}"
            );
        }
        let endless = format!("1;{}", "x".repeat(1 << 20));
        assert_eq!(
            read(Framing::Chunked(NEXT_CHUNK), &[endless.as_bytes()]),
            Err(Malformed)
        );
        let endless = format!("0\r\n{}", "a: b\r\n".repeat(1 << 16));
        assert_eq!(
            read(Framing::Chunked(NEXT_CHUNK), &[endless.as_bytes()]),
            Err(Malformed)
        );
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
                read(Framing::Chunked(NEXT_CHUNK), &pieces),
                Ok((all.clone(), behind.len(), true))
            );
            // Without its last byte it is not done.
            let (_, _, done) = read(Framing::Chunked(NEXT_CHUNK), &[&text[..whole - 1]]).unwrap();
            prop_assert!(!done);
            let length = Framing::Length(all.len() as u64);
            let more = [&all[..], behind.as_bytes()].concat();
            prop_assert_eq!(read(length, &[&more]), Ok((all, behind.len(), true)));
        }

        #[test]
        fn nothing_that_comes_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Head::read(&bytes);
            let mut content = Vec::new();
            let mut framing = Framing::Chunked(NEXT_CHUNK);
            if let Ok(used) = framing.read(&bytes, &mut content) {
                prop_assert!(used <= bytes.len() && content.len() <= used);
            }
        }
    }
}
