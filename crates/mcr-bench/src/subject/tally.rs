use std::{
    any::Any,
    io::{BufRead, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;

use super::message::{Message, Observation, now};
use crate::objects::BEAT;

/// Returns the allocated bytes, if they are counted.
pub type Heap = fn() -> Option<usize>;

/// The allocated bytes of this process.
pub(crate) fn allocated(heap: Heap) -> Result<usize> {
    heap().context("this is the program without an allocator that counts")
}

/// Counts the reconciles of a subject, and prints messages about them to stdout.
#[derive(Clone)]
pub struct Tally(Arc<Inner>);

struct Inner {
    expected: usize,
    seen: AtomicUsize,
    beats: Mutex<Vec<Observation>>,
    applied: AtomicUsize,
    failed: AtomicU64,
}

impl Tally {
    /// A tally that is synced after `expected` objects.
    pub fn new(expected: usize) -> Self {
        Self(Arc::new(Inner {
            expected,
            seen: AtomicUsize::new(0),
            beats: Mutex::default(),
            applied: AtomicUsize::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// An object of a cluster has passed the reconciler.
    pub fn reconciled(&self, cluster: &str, object: &ConfigMap) {
        if object.metadata.name.as_deref() == Some(BEAT) {
            let seq = object
                .data
                .as_ref()
                .and_then(|data| data.get("seq")?.parse().ok());
            if let Some(seq) = seq {
                self.beat(cluster, seq);
            }
        }
        self.reconciled_many(1);
    }

    /// An object of a kind has passed the reconciler.
    pub fn reconciled_of<K: 'static>(&self, cluster: &str, object: &K) {
        match (object as &dyn Any).downcast_ref::<ConfigMap>() {
            Some(map) => self.reconciled(cluster, map),
            None => self.reconciled_many(1),
        }
    }

    /// A beat of a cluster has been seen.
    pub fn beat(&self, cluster: &str, seq: u64) {
        self.0.beats.lock().push(Observation {
            cluster: cluster.to_owned(),
            seq,
            at: now(),
        });
    }

    /// Several objects have passed the reconciler.
    pub fn reconciled_many(&self, objects: usize) {
        let before = self.0.seen.fetch_add(objects, Ordering::Relaxed);
        if before < self.0.expected && before + objects >= self.0.expected {
            send(&Message::Synced { at: now() });
        }
    }

    /// An attempt to apply an object has ended.
    pub fn applied<E>(&self, ended: &Result<(), E>) {
        if ended.is_err() {
            self.0.failed.fetch_add(1, Ordering::Relaxed);
        } else if self.0.applied.fetch_add(1, Ordering::Relaxed) + 1 == self.0.expected {
            let failed = self.0.failed.load(Ordering::Relaxed);
            send(&Message::Applied { at: now(), failed });
        }
    }

    /// Answers the driver's questions, in a thread that ends with the process. The process ends with its stdin, so that
    /// none outlives a driver that was killed.
    pub fn answer_stdin(&self, heap: Heap) {
        let this = self.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                match line.as_deref().map(str::trim) {
                    Ok("beats") => {
                        let beats = std::mem::take(&mut *this.0.beats.lock());
                        send(&Message::Beats { beats });
                    }
                    Ok("seen") => {
                        let count = this.0.seen.load(Ordering::Relaxed) as u64;
                        send(&Message::Seen { count });
                    }
                    Ok("heap") => send(&Message::Heap { bytes: heap() }),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            std::process::exit(0);
        });
    }
}

/// Writes a line.
pub(crate) fn send(message: &Message) {
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    // Fails only if the driver is gone, which needs no message.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
