//! Objects in less memory: packed with a dictionary of their kind, which all clusters share.
//!
//! A dictionary is made once, from the first objects of a kind. It holds pieces of them, so it is as secret as they are:
//! it is never shown, and no two kinds share one.

mod contexts;
mod dictionary;
mod packer;
mod samples;

pub(crate) use dictionary::{Damaged, Dictionary};
pub(crate) use packer::{Packer, Packers};

/// How objects are packed.
///
/// Of 10,000 objects in 100 clusters, with all that packing takes counted, Deployments take 0.12 times their JSON, Pods 0.13,
/// custom resources of 1.2 kB 0.25, ConfigMaps of 1 kB 0.28 and those of 260 bytes 0.76; reading and decoding one takes up to
/// a seventh longer, of ConfigMaps half as long again. Level 3 packs these no better, and its context is 350 kB larger. The size of the dictionary
/// hardly matters for them; real objects are less alike, so the default is not the smallest. What it is for others is
/// measured by
///
/// ```text
/// PACKING=<bytes of a dictionary>,<level> \
///     cargo test --release -p mcr-core --features packed --test store_cost -- --nocapture what_a_packed
/// ```
///
/// # Limits
/// - A dictionary is made once. It is dropped when nobody watches the kind any more and its objects are gone; if objects
///   change much after it was made, they are packed less well.
/// - A dictionary may hold pieces of objects that have been deleted, Secrets among them, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// From how many objects of a kind its dictionary is made. Kinds of which the fleet holds fewer stay as they are.
    /// Default 500.
    pub samples: usize,
    /// How large a dictionary becomes at most. Default 32 KiB.
    pub dictionary_bytes: usize,
    /// How much effort is made, as zstd counts it. Default 1.
    pub level: i32,
}

impl Default for Packing {
    fn default() -> Self {
        Self {
            samples: 500,
            dictionary_bytes: 32 << 10,
            level: 1,
        }
    }
}

/// What packing takes beyond the objects; made by [`Fleet::packing`](crate::Fleet::packing).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackingStatus {
    /// How many dictionaries are held.
    pub dictionaries: usize,
    /// How many bytes dictionaries take, with what is needed to pack and unpack.
    pub bytes: usize,
}

/// The form of objects that are packed as these are.
#[cfg(test)]
pub(super) fn packed_form(plain: &super::Form, objects: &[std::sync::Arc<super::Object>]) -> super::Form {
    let samples: Vec<Vec<u8>> = objects
        .iter()
        .map(|object| object.rest_json().unwrap().into_owned())
        .collect();
    plain.packed(Dictionary::train(&samples, &Packing::default(), &std::sync::Arc::default()).unwrap())
}
