//! Comparing secrets without holding them.

use std::{
    fmt,
    hash::{BuildHasher, Hash, RandomState},
    sync::LazyLock,
};

/// Stands for a secret in comparisons: equal for equal secrets within one process, and useless outside of it
/// (the hash is keyed with random state).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u64; 2]);

impl Fingerprint {
    /// The fingerprint of a value.
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
