//! Frames of HTTP bodies.

use std::task::Poll;

use bytes::Bytes;
use http_body::Frame;

type PolledFrame<T, E> = Poll<Option<Result<T, E>>>;

/// Appends the data of a frame that was polled to `bytes`. Trailers are dropped.
pub(crate) fn append_data<E>(frame: PolledFrame<Frame<Bytes>, E>, bytes: &mut Vec<u8>) -> PolledFrame<(), E> {
    frame.map_ok(|frame| {
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
        }
    })
}
