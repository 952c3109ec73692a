//! The answers that a proxy remembers for stale reads.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, Method, Uri};
use http_body::Body as _;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;

use super::body::{Body, full};

/// The most answers that are remembered, and the most bytes of each.
const ANSWERS: usize = 256;
const BYTES: usize = 4 * 1024 * 1024;

/// The last answers to lists and reads of objects, by their requests.
#[derive(Default)]
pub(super) struct Memory(Mutex<Answers>);

#[derive(Default)]
struct Answers {
    by_key: HashMap<String, Remembered>,
    /// Oldest first.
    order: VecDeque<String>,
}

#[derive(Clone)]
pub(super) struct Remembered {
    content_type: Option<HeaderValue>,
    body: Bytes,
}

impl Remembered {
    pub(super) fn content_type(&self) -> Option<HeaderValue> {
        self.content_type.clone()
    }

    pub(super) fn body(&self) -> Body {
        full(self.body.clone())
    }
}

/// The key of a request. Requests with the same key get the same answer as long as no object changes.
pub(super) fn key(method: &Method, uri: &Uri, accept: Option<&HeaderValue>) -> Option<String> {
    if *method != Method::GET {
        return None;
    }
    let volatile = [
        "resourceVersion=",
        "resourceVersionMatch=",
        "timeoutSeconds=",
        "timeout=",
    ];
    let query: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !volatile.iter().any(|name| pair.starts_with(name)))
        .collect();
    let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
    Some(format!("{}?{} {accept}", uri.path(), query.join("&")))
}

impl Memory {
    pub(super) fn get(&self, key: &str) -> Option<Remembered> {
        let answers = self.0.lock();
        answers.by_key.get(key).cloned()
    }

    fn put(&self, key: String, answer: Remembered) {
        let mut answers = self.0.lock();
        if answers.by_key.insert(key.clone(), answer).is_none() {
            answers.order.push_back(key);
        }
        if answers.order.len() > ANSWERS
            && let Some(oldest) = answers.order.pop_front()
        {
            answers.by_key.remove(&oldest);
        }
    }

    /// Forwards a body. When it is complete, remembers it unless it is too long.
    pub(super) fn remember(
        self: &Arc<Self>,
        key: String,
        content_type: Option<HeaderValue>,
        body: Body,
    ) -> Body {
        let memory = self.clone();
        let tee = (body, BytesMut::new(), key, content_type);
        let frames = stream::unfold(Some(tee), move |state| {
            let memory = memory.clone();
            async move {
                let (mut body, mut whole, key, content_type) = state?;
                let frame = match body.frame().await? {
                    Ok(frame) => frame,
                    Err(error) => return Some((Err(error), None)),
                };
                if let Some(data) = frame.data_ref()
                    && whole.len() <= BYTES
                {
                    whole.extend_from_slice(data);
                }
                if body.is_end_stream() && whole.len() <= BYTES {
                    // Stored together with the last byte, because hyper does not poll a body of known length again
                    // after that.
                    let remembered = Remembered {
                        content_type: content_type.clone(),
                        body: whole.split().freeze(),
                    };
                    memory.put(key.clone(), remembered);
                }
                Some((Ok(frame), Some((body, whole, key, content_type))))
            }
        });
        StreamBody::new(frames).boxed_unsync()
    }
}
