//! The body of a running watch. It is processed line by line, so that a fault can start while the watch runs.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, atomic::AtomicU64},
};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    Fault,
    body::{Body, BoxError, GARBAGE, edited, gone_event, is_named, make_undecodable, pace},
    request::RequestInfo,
    rules::{Active, RuleId, Rules},
};

/// How a watch ends.
enum End {
    /// Without an error.
    Done,
    /// The connection breaks.
    Broken(BoxError),
}

struct WatchBody {
    upstream: Incoming,
    info: RequestInfo,
    rules: watch::Receiver<Rules>,
    hits: Arc<AtomicU64>,
    /// The beginning of a line whose end has not arrived yet.
    partial: BytesMut,
    ready: VecDeque<Bytes>,
    end: Option<End>,
    /// The rules that apply once to a watch, and have been applied to this one.
    applied_once: HashSet<RuleId>,
}

pub(super) fn watched(
    upstream: Incoming,
    info: RequestInfo,
    rules: watch::Receiver<Rules>,
    hits: Arc<AtomicU64>,
) -> Body {
    let body = WatchBody {
        upstream,
        info,
        rules,
        hits,
        partial: BytesMut::new(),
        ready: VecDeque::new(),
        end: None,
        applied_once: HashSet::new(),
    };
    let frames = stream::unfold(body, async |mut body| {
        let frame = body.next().await?;
        Some((frame.map(Frame::data), body))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Half of an event, without its end.
const HALF_A_LINE: &[u8] =
    br#"{"type":"MODIFIED","object":{"kind":"Half","apiVersion":"v1","metadata":{"name":"ha"#;

impl WatchBody {
    async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            let rules = self.rules.borrow_and_update().clone();
            if let Some(mut line) = self.ready.pop_front() {
                let Some(bytes_per_second) = self.slowed(&rules) else {
                    return Some(Ok(line));
                };
                let piece = pace(&mut line, bytes_per_second).await;
                if !line.is_empty() {
                    self.ready.push_front(line);
                }
                return Some(Ok(piece));
            }
            match self.end.take() {
                Some(End::Done) => {
                    self.end = Some(End::Done);
                    return None;
                }
                Some(End::Broken(error)) => {
                    self.end = Some(End::Done);
                    return Some(Err(error));
                }
                None => {}
            }
            if self.apply_to_whole_watch(&rules) {
                continue;
            }
            let is_stale = self
                .fitting(&rules)
                .any(|rule| *rule.fault() == Fault::StaleReads);
            tokio::select! {
                changed = self.rules.changed() => {
                    if changed.is_err() {
                        self.end = Some(End::Broken("the proxy has ended".into()));
                    }
                }
                frame = self.upstream.frame(), if !is_stale => match frame {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            self.receive(&data);
                        }
                    }
                    Some(Err(error)) => self.end = Some(End::Broken(error.into())),
                    None => {
                        let partial = self.partial.split().freeze();
                        self.ready.extend((!partial.is_empty()).then_some(partial));
                        self.end = Some(End::Done);
                    }
                }
            }
        }
    }

    fn fitting<'a>(&'a self, rules: &'a Rules) -> impl Iterator<Item = &'a Arc<Active>> {
        rules.iter().filter(|rule| rule.fits(&self.info))
    }

    fn slowed(&self, rules: &Rules) -> Option<u32> {
        self.fitting(rules).find_map(|rule| match rule.fault() {
            Fault::Slow { bytes_per_second, .. } => *bytes_per_second,
            _ => None,
        })
    }

    /// Applies the first fault that affects a watch as a whole and was not applied to this one yet. Returns whether
    /// there was one.
    fn apply_to_whole_watch(&mut self, rules: &Rules) -> bool {
        for rule in rules.iter().filter(|rule| rule.fits(&self.info)) {
            let fault = rule.fault();
            let is_for_whole_watch = matches!(
                fault,
                Fault::GoneEvent | Fault::Truncated | Fault::CutOff | Fault::Garbage
            );
            if !is_for_whole_watch || !self.applied_once.insert(rule.id) || !rule.count_match(&self.hits) {
                continue;
            }
            match fault {
                Fault::GoneEvent => {
                    self.ready.push_back(gone_event());
                    self.end = Some(End::Done);
                }
                Fault::Truncated => {
                    self.ready.push_back(Bytes::from_static(HALF_A_LINE));
                    self.end = Some(End::Done);
                }
                Fault::Garbage => self.ready.push_back(garbage_line()),
                _ => self.end = Some(End::Broken("a fault: the watch is cut off".into())),
            }
            return true;
        }
        false
    }

    fn receive(&mut self, data: &[u8]) {
        let mut from = self.partial.len();
        self.partial.extend_from_slice(data);
        let rules = self.rules.borrow().clone();
        while let Some(at) = self.partial[from..].iter().position(|byte| *byte == b'\n') {
            let line = self.partial.split_to(from + at + 1).freeze();
            from = 0;
            self.process_line(&rules, line);
        }
    }

    fn process_line(&mut self, rules: &Rules, line: Bytes) {
        for rule in rules.iter().filter(|rule| rule.fits(&self.info)) {
            let (hits, id) = (&self.hits, rule.id);
            match rule.fault() {
                Fault::Garbage if rule.count_match(hits) => return self.ready.push_back(garbage_line()),
                Fault::SkipEvents if is_event(&line) && rule.count_match(hits) => return,
                Fault::DuplicateEvents if is_event(&line) && rule.count_match(hits) => {
                    return self.ready.extend([line.clone(), line]);
                }
                Fault::Undecodable { name } if name.is_some() || !self.applied_once.contains(&id) => {
                    let mut spoilt = false;
                    let line = edited(line.clone(), |event| {
                        spoilt = is_event_value(event)
                            && is_named(&event["object"], name.as_deref())
                            && rule.count_match(hits)
                            && make_undecodable(&mut event["object"]);
                        spoilt
                    });
                    if spoilt {
                        self.applied_once.insert(id);
                        self.ready.extend([line, Bytes::from_static(b"\n")]);
                        return;
                    }
                }
                _ => {}
            }
        }
        self.ready.push_back(line);
    }
}

fn garbage_line() -> Bytes {
    [GARBAGE, b"\n"].concat().into()
}

fn is_event(line: &[u8]) -> bool {
    serde_json::from_slice::<Value>(line).is_ok_and(|event| is_event_value(&event))
}

fn is_event_value(event: &Value) -> bool {
    matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED" | "DELETED"))
}
