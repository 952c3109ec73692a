//! What the objects of a kind have in common, for zstd.

use std::{fmt, sync::Arc};

use zstd_safe::{CDict, DDict};

use super::{Packing, contexts::Contexts};

/// Packs and unpacks what is like the samples it was made from.
pub(crate) struct Dictionary {
    pack: CDict<'static>,
    unpack: DDict<'static>,
    contexts: Arc<Contexts>,
}

/// What is packed does not unpack.
#[derive(Debug, thiserror::Error)]
#[error(
    "what a packed store holds of it can't be unpacked: memory ran out, or was overwritten. Read the object from the API server"
)]
pub(crate) struct Damaged;

impl Dictionary {
    /// None if there is nothing to learn from, or no memory.
    pub(super) fn train(samples: &[Vec<u8>], packing: &Packing, contexts: &Arc<Contexts>) -> Option<Self> {
        let all = samples.concat();
        let sizes: Vec<usize> = samples.iter().map(Vec::len).collect();
        let mut content = Vec::with_capacity(packing.dictionary_bytes);
        if zstd_safe::train_from_buffer(&mut content, &all, &sizes).is_err() {
            // Too few to find out what they have in common: what they are does as well.
            let last = all.len().saturating_sub(packing.dictionary_bytes);
            content = all.get(last..).unwrap_or_default().to_vec();
        }
        let pack = CDict::try_create(&content, packing.level)?;
        let unpack = DDict::try_create(&content)?;
        contexts.dictionary_made(pack.sizeof() + unpack.sizeof());
        Some(Self {
            pack,
            unpack,
            contexts: contexts.clone(),
        })
    }

    /// Packs, and hands over what comes of it unless it is not smaller.
    pub(crate) fn pack<T>(&self, json: &[u8], then: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let packed = self.contexts.pack(|press| {
            press.packed.clear();
            press.packed.reserve(zstd_safe::compress_bound(json.len()));
            let len = press
                .context
                .compress_using_cdict(&mut press.packed, json, &self.pack)
                .ok()?;
            (len < json.len()).then(|| then(&press.packed))
        });
        packed.flatten()
    }

    /// Unpacks what fills `json` to the last byte.
    pub(crate) fn unpack(&self, packed: &[u8], json: &mut [u8]) -> Result<(), Damaged> {
        let len = self
            .contexts
            .unpack(|context| context.decompress_using_ddict(json, packed, &self.unpack).ok());
        if len.flatten() == Some(json.len()) {
            Ok(())
        } else {
            Err(Damaged)
        }
    }

    fn bytes(&self) -> usize {
        self.pack.sizeof() + self.unpack.sizeof()
    }
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        self.contexts.dictionary_dropped(self.bytes());
    }
}

// It holds pieces of objects, which may be Secrets.
impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Vec<u8>> {
        let sample = |i: u32| {
            format!(
                "{{\"data\":{{\"name\":\"app-{i}\",\"mode\":\"canary\",\"replicas\":{}}}}}",
                i * 7
            )
        };
        (0..200).map(|i| sample(i).into_bytes()).collect()
    }

    fn dictionary() -> Dictionary {
        Dictionary::train(&samples(), &Packing::default(), &Arc::default()).unwrap()
    }

    #[test]
    fn what_is_like_the_samples_becomes_small_and_comes_back() {
        let dictionary = dictionary();
        let (mut all, mut small) = (0, 0);
        for sample in samples() {
            let packed = dictionary.pack(&sample, <[u8]>::to_vec).unwrap();
            let mut json = vec![0; sample.len()];
            dictionary.unpack(&packed, &mut json).unwrap();
            assert_eq!(json, sample);
            all += json.len();
            small += packed.len();
        }
        assert!(small * 10 < all * 6, "{small} of {all} bytes");
    }

    #[test]
    fn what_does_not_get_smaller_is_not_packed() {
        assert!(dictionary().pack(b"q9!", |_| ()).is_none());
    }

    #[test]
    fn a_dictionary_and_its_contexts_are_counted() {
        let contexts = Arc::default();
        let dictionary = Dictionary::train(&samples(), &Packing::default(), &contexts).unwrap();
        let alone = contexts.status();
        assert_eq!(alone.dictionaries, 1);
        assert!(dictionary.pack(&samples()[0], |_| ()).is_some());
        assert!(contexts.status().bytes > alone.bytes);
        drop(dictionary);
        assert_eq!(contexts.status().dictionaries, 0);
    }

    #[test]
    fn a_dictionary_shows_nothing_of_its_objects() {
        assert_eq!(format!("{:?}", dictionary()), "Dictionary { .. }");
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_other_bytes_and_never_a_panic(at in any::<prop::sample::Index>(), flip in 1..=255u8, cut in any::<bool>()) {
            let dictionary = dictionary();
            let sample = &samples()[17];
            let mut packed = dictionary.pack(sample, <[u8]>::to_vec).unwrap();
            let at = at.index(packed.len());
            if cut {
                packed.truncate(at);
            } else {
                packed[at] ^= flip;
            }
            let mut json = vec![0; sample.len()];
            let unpacked = dictionary.unpack(&packed, &mut json);
            prop_assert!(!cut || unpacked.is_err());
        }
    }
}
