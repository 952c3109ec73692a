//! Reads whole bodies.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use mcr_core::{AnswerBody, BoxError};

use crate::error::AnswerError;

/// The most bytes of a body. A larger body is refused, because a body is in memory twice while it is mapped.
pub(crate) const MAX_BODY: usize = 64 << 20;

/// Reads an answer to its end.
pub(crate) async fn read(body: AnswerBody) -> Result<Bytes, BoxError> {
    match within(body, MAX_BODY).await? {
        Some(bytes) => Ok(bytes),
        None => Err(AnswerError::TooLarge(MAX_BODY).into()),
    }
}

/// Reads a body to its end. `None` if it is larger than the limit.
pub(crate) async fn within(mut body: AnswerBody, limit: usize) -> Result<Option<Bytes>, BoxError> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if data.len() > limit - first.len() - all.len() {
            return Ok(None);
        }
        // Most bodies are one chunk, which needs no copy.
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            all.extend_from_slice(&std::mem::take(&mut first));
            all.extend_from_slice(&data);
        }
    }
    Ok(Some(if first.is_empty() { all.freeze() } else { first }))
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::mapping::refuse::whole;

    #[tokio::test]
    async fn no_more_is_read_than_the_limit() {
        let body = || whole(vec![b'x'; 10]);
        assert_eq!(within(body(), 10).await.unwrap().unwrap().len(), 10);
        assert!(within(body(), 9).await.unwrap().is_none());
        let chunks = |sizes: &'static [usize]| {
            let chunks = sizes
                .iter()
                .map(|size| Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'x'; *size]))));
            AnswerBody::new(StreamBody::new(stream::iter(chunks)))
        };
        assert_eq!(
            within(chunks(&[3, 0, 4, 3]), 10).await.unwrap().unwrap().len(),
            10
        );
        assert!(within(chunks(&[3, 4, 4]), 10).await.unwrap().is_none());
        assert!(within(whole(""), 0).await.unwrap().unwrap().is_empty());
    }
}
