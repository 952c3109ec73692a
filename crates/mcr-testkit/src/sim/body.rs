use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::watch::Watch;

/// The body of an answer: bytes, or a running watch.
#[derive(Debug)]
pub struct SimBody(Content);

#[derive(Debug)]
enum Content {
    Full(Bytes),
    Watch(Box<Watch>),
}

impl SimBody {
    #[doc(hidden)]
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Content::Full(bytes.into()))
    }

    pub(crate) fn watch(watch: Box<Watch>) -> Self {
        Self(Content::Watch(watch))
    }
}

impl Body for SimBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Content::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Watch(watch) => watch
                .poll_lines(context)
                .map(|lines| lines.map(|lines| Ok(Frame::data(lines)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Content::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Content::Full(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            Content::Watch(_) => SizeHint::default(),
        }
    }
}
