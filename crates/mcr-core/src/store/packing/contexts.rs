//! What zstd works with. Each takes some hundred kilobytes, so they are used again.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use zstd_safe::{CCtx, DCtx};

use super::PackingStatus;

/// The contexts and the sizes of the dictionaries of a fleet.
pub(super) struct Contexts {
    /// How many of each are kept: as many as can be at work at once.
    most: usize,
    presses: Mutex<Vec<Press>>,
    expanders: Mutex<Vec<DCtx<'static>>>,
    dictionaries: AtomicUsize,
    dictionary_bytes: AtomicUsize,
}

/// What objects are packed with.
pub(super) struct Press {
    pub(super) context: CCtx<'static>,
    pub(super) packed: Vec<u8>,
}

/// One that has grown larger than this is not kept.
const LARGEST: usize = 2 << 20;

impl Default for Contexts {
    fn default() -> Self {
        Self {
            // Asked once: it takes longer than unpacking an object does.
            most: std::thread::available_parallelism().map_or(1, usize::from),
            presses: Mutex::default(),
            expanders: Mutex::default(),
            dictionaries: AtomicUsize::default(),
            dictionary_bytes: AtomicUsize::default(),
        }
    }
}

impl Contexts {
    /// None if there is no memory.
    pub(super) fn pack<T>(&self, pack: impl FnOnce(&mut Press) -> T) -> Option<T> {
        let mut press = match pop(&self.presses) {
            Some(press) => press,
            None => Press {
                context: CCtx::try_create()?,
                packed: Vec::new(),
            },
        };
        let result = pack(&mut press);
        if press.bytes() <= LARGEST {
            self.keep(&self.presses, press);
        }
        Some(result)
    }

    /// None if there is no memory.
    pub(super) fn unpack<T>(&self, unpack: impl FnOnce(&mut DCtx<'static>) -> T) -> Option<T> {
        let mut expander = match pop(&self.expanders) {
            Some(expander) => expander,
            None => DCtx::try_create()?,
        };
        let result = unpack(&mut expander);
        self.keep(&self.expanders, expander);
        Some(result)
    }

    fn keep<T>(&self, pool: &Mutex<Vec<T>>, one: T) {
        locked(pool, |all| {
            if all.len() < self.most {
                all.push(one);
            }
        });
    }

    pub(super) fn dictionary_made(&self, bytes: usize) {
        self.dictionaries.fetch_add(1, Ordering::Relaxed);
        self.dictionary_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn dictionary_dropped(&self, bytes: usize) {
        self.dictionaries.fetch_sub(1, Ordering::Relaxed);
        self.dictionary_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> PackingStatus {
        let presses: usize = locked(&self.presses, |all| all.iter().map(Press::bytes).sum());
        let expanders: usize = locked(&self.expanders, |all| all.iter().map(DCtx::sizeof).sum());
        PackingStatus {
            dictionaries: self.dictionaries.load(Ordering::Relaxed),
            bytes: self.dictionary_bytes.load(Ordering::Relaxed) + presses + expanders,
        }
    }
}

impl Press {
    fn bytes(&self) -> usize {
        self.context.sizeof() + self.packed.capacity()
    }
}

fn locked<T, R>(pool: &Mutex<Vec<T>>, act: impl FnOnce(&mut Vec<T>) -> R) -> R {
    act(&mut pool.lock().unwrap_or_else(PoisonError::into_inner))
}

fn pop<T>(pool: &Mutex<Vec<T>>) -> Option<T> {
    locked(pool, Vec::pop)
}
