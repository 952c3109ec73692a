//! Comparing secrets without keeping them.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

/// A keyed hash, to compare secrets without keeping them.
///
/// Equal values have equal fingerprints within one process. The keys are random and differ in each process, so a
/// fingerprint is of no use outside of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u64; 2]);

impl Fingerprint {
    /// Computes the fingerprint of a value.
    pub fn of(value: &impl Hash) -> Self {
        static KEYS: LazyLock<[RandomState; 2]> = LazyLock::new(|| [RandomState::new(), RandomState::new()]);
        Self(KEYS.each_ref().map(|key| key.hash_one(value)))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:08x})", self.0[0] as u32)
    }
}
