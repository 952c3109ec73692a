//! Bodies that are read as a whole.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use mcr_core::BoxError;

use crate::error::AnswerError;

/// The most that is read of a body. Larger ones are refused: a body is held in memory twice while it is mapped.
pub(crate) const MAX_BODY: usize = 64 << 20;

/// Reads an answer to its end.
pub(crate) async fn read(body: Body) -> Result<Bytes, BoxError> {
    match within(body, MAX_BODY).await? {
        Some(bytes) => Ok(bytes),
        None => Err(AnswerError::TooLarge(MAX_BODY).into()),
    }
}

/// Reads a body to its end. None: it is larger than the limit.
pub(crate) async fn within(body: Body, limit: usize) -> Result<Option<Bytes>, BoxError> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(Some(collected.to_bytes())),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_is_read_than_the_limit() {
        let body = || Body::from(vec![b'x'; 10]);
        assert_eq!(within(body(), 10).await.unwrap().unwrap().len(), 10);
        assert!(within(body(), 9).await.unwrap().is_none());
        assert!(within(Body::empty(), 0).await.unwrap().unwrap().is_empty());
    }
}
