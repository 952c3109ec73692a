//! Maps a watch line by line, as the lines arrive.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http_body::Frame;
use http_body_util::BodyExt;
use mcr_core::{AnswerBody, BoxError};

use super::{answer::Answers, json::Unreadable};
use crate::error::AnswerError;

/// The most bytes of a line. API servers accept no object of this size.
const MAX_LINE: usize = 16 << 20;

/// Cuts chunks into lines.
#[derive(Debug, Default)]
struct Lines {
    buffer: BytesMut,
    /// The number of bytes of the buffer that are known to have no line feed.
    seen: usize,
}

impl Lines {
    /// The next whole line with its line feed.
    fn next(&mut self) -> Option<Bytes> {
        let Some(end) = self.buffer[self.seen..].iter().position(|byte| *byte == b'\n') else {
            self.seen = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.seen + end + 1).freeze();
        self.seen = 0;
        Some(line)
    }
}

/// Maps the complete lines of a chunk.
fn mapped(lines: &mut Lines, answers: &Answers, chunk: &[u8], limit: usize) -> Result<Bytes, AnswerError> {
    lines.buffer.extend_from_slice(chunk);
    let mut out = BytesMut::new();
    while let Some(line) = lines.next() {
        if line.len() > limit {
            return Err(AnswerError::LineTooLong(limit));
        }
        match answers.line(&line) {
            _ if line.iter().all(u8::is_ascii_whitespace) => out.extend_from_slice(&line),
            Ok(Some(text)) => {
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\n");
            }
            Ok(None) => out.extend_from_slice(&line),
            Err(Unreadable) => return Err(AnswerError::NotJson),
        }
    }
    match lines.buffer.len() > limit {
        true => Err(AnswerError::LineTooLong(limit)),
        false => Ok(out.freeze()),
    }
}

/// Maps the body of a watch. The result ends with an error at the first line that can't be read, so no line passes
/// unmapped.
///
/// Dropping the result drops the original body.
pub(crate) fn map_lines(
    body: AnswerBody,
    answers: Answers,
) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static {
    struct State {
        body: http_body_util::BodyDataStream<AnswerBody>,
        lines: Lines,
        answers: Answers,
    }
    let state = State {
        body: body.into_data_stream(),
        lines: Lines::default(),
        answers,
    };
    stream::unfold(Some(state), |state| async move {
        let mut state = state?;
        loop {
            let chunk = match state.body.next().await {
                Some(Ok(chunk)) => chunk,
                Some(Err(error)) => return Some((Err(error), None)),
                None if state.lines.buffer.iter().all(u8::is_ascii_whitespace) => return None,
                None => return Some((Err(AnswerError::CutOff.into()), None)),
            };
            match mapped(&mut state.lines, &state.answers, &chunk, MAX_LINE) {
                Ok(out) if out.is_empty() => {}
                Ok(out) => return Some((Ok(Frame::data(out)), Some(state))),
                Err(error) => return Some((Err(error.into()), None)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mapping::{field_rules, names::Names, refuse::whole};

    fn answers() -> Answers {
        Answers {
            field_rules: field_rules::of("", "configmaps"),
            many: true,
            names: Names::of(&"island".into(), false).unwrap(),
        }
    }

    const WATCH: &str = concat!(
        r#"{"type":"ADDED","object":{"metadata":{"namespace":"island","name":"ä"}}}"#,
        "\n\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}"#,
        "\r\n",
        r#"{"type":"DELETED","object":{"metadata":{"namespace":"island"}}}"#,
        "\n",
    );

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_watch_is_cut(cuts in prop::collection::vec(0..WATCH.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut lines, mut out, mut start) = (Lines::default(), Vec::new(), 0);
            for end in cuts.into_iter().chain([WATCH.len()]) {
                out.extend(mapped(&mut lines, &answers(), &WATCH.as_bytes()[start..end], MAX_LINE).unwrap());
                start = end;
            }
            prop_assert!(lines.buffer.is_empty());
            prop_assert_eq!(String::from_utf8(out).unwrap(), WATCH.replace("island", "default"));
        }
    }

    #[test]
    fn a_complete_line_is_not_held_back() {
        let mut lines = Lines::default();
        let first = mapped(&mut lines, &answers(), b"{\"type\":\"X\"}\n{\"type\"", MAX_LINE).unwrap();
        assert_eq!(&first[..], b"{\"type\":\"X\"}\n");
        assert_eq!(
            &mapped(&mut lines, &answers(), b":1}\n", MAX_LINE).unwrap()[..],
            b"{\"type\":1}\n"
        );
    }

    #[test]
    fn what_can_not_be_read_ends_it() {
        let end = |chunk: &[u8], limit| {
            mapped(&mut Lines::default(), &answers(), chunk, limit)
                .unwrap_err()
                .to_string()
        };
        assert!(end(b"<html>\n", 100).contains("not JSON"));
        assert!(end(&[b'x'; 101], 100).contains("line"));
        assert!(end(&[&[b' '; 101][..], b"\n"].concat(), 100).contains("line"));
    }

    #[tokio::test]
    async fn a_line_that_is_cut_off_is_an_error_and_a_whole_one_is_not() {
        let read = |body: &'static str| map_lines(whole(body), answers()).collect::<Vec<_>>();
        let cut = read("{\"type\":\"X\"}\n{\"type\":").await;
        assert!(cut[0].is_ok() && cut[1].is_err() && cut.len() == 2);
        assert_eq!(read("{}\n").await.len(), 1);
        assert!(read("").await.is_empty());
    }
}
