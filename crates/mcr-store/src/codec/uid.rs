//! UIDs in 16 bytes.

use std::hash::{DefaultHasher, Hash, Hasher};

use uuid::{Uuid, fmt::Hyphenated};

/// A UID. API servers use UUIDs. For any other text, it holds a hash of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uid(Uuid);

impl Uid {
    /// Reads a UID. Also returns whether it is canonical, that is, whether [`text`](Self::text) restores the original
    /// text.
    pub(super) fn read(uid: &str) -> (Self, bool) {
        let read = Uuid::try_parse(uid).map_or_else(|_| Self::hashed(uid), Self);
        (read, read.text() == uid.as_bytes())
    }

    fn hashed(uid: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        Self(Uuid::from_u64_pair(hasher.finish(), uid.len() as u64))
    }

    /// The length of the canonical text.
    pub(super) const TEXT_LEN: usize = Hyphenated::LENGTH;

    /// The canonical text: in lower case, with hyphens.
    pub(super) fn text(self) -> [u8; Self::TEXT_LEN] {
        let mut text = [0; Self::TEXT_LEN];
        self.0.as_hyphenated().encode_lower(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn different_uids_differ() {
        let read = |text: &str| Uid::read(text).0;
        let a = read("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab");
        assert_ne!(a, read("6e0c7b4e-0b7c-4b58-9d3e-0123456789ac"));
        assert_eq!(a, read("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab"));
        assert_ne!(read("not a uuid"), read("another"));
    }

    proptest! {
        #[test]
        fn a_uid_is_canonical_if_it_is_written_as_it_was_read(text in prop_oneof![
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "[0-9a-fA-F-]{36}",
            "[0-9a-fg-]{0,40}",
        ]) {
            let (uid, is_canonical) = Uid::read(&text);
            prop_assert_eq!(uid, Uid::read(&text).0);
            prop_assert_eq!(is_canonical, uid.text() == text.as_bytes());
        }
    }
}
