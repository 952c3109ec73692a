//! UIDs in 16 bytes.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A UID. Those that are not UUIDs (no API server makes any) are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uid([u8; 16]);

/// Where the hyphens are, counted in bytes of the value.
const GROUPS: [std::ops::Range<usize>; 5] = [0..4, 4..6, 6..8, 8..10, 10..16];

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// What each byte stands for as a digit; more than 15 if it is none.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [u8::MAX; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        nibbles[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    nibbles
};

impl Uid {
    /// Also says whether it can be written as it was.
    pub(super) fn read(uid: &str) -> (Self, bool) {
        match Self::canonical(uid.as_bytes()) {
            Some(canonical) => (canonical, true),
            None => (Self::new(uid), false),
        }
    }

    /// As API servers write it; none if it is written in any other way.
    fn canonical(uid: &[u8]) -> Option<Self> {
        let uid: &[u8; 36] = uid.try_into().ok()?;
        let mut value = [0; 16];
        let mut wrong = false;
        let mut at = 0;
        for group in GROUPS {
            for byte in &mut value[group] {
                let (high, low) = (NIBBLES[usize::from(uid[at])], NIBBLES[usize::from(uid[at + 1])]);
                wrong |= (high | low) > 0xf;
                *byte = high << 4 | low;
                at += 2;
            }
            wrong |= uid.get(at).is_some_and(|hyphen| *hyphen != b'-');
            at += 1;
        }
        (!wrong).then_some(Self(value))
    }

    fn new(uid: &str) -> Self {
        let mut value = [0; 16];
        let mut digits = uid.bytes().filter(|byte| *byte != b'-').map(|digit| {
            let nibble = char::from(digit).to_digit(16)?;
            u8::try_from(nibble).ok()
        });
        for byte in &mut value {
            let (Some(Some(high)), Some(Some(low))) = (digits.next(), digits.next()) else {
                return Self::hashed(uid);
            };
            *byte = high << 4 | low;
        }
        if digits.next().is_some() {
            return Self::hashed(uid);
        }
        Self(value)
    }

    fn hashed(uid: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        uid.hash(&mut hasher);
        Self((u128::from(hasher.finish()) << 64 | uid.len() as u128).to_be_bytes())
    }

    /// How long it is as API servers write it.
    pub(super) const TEXT: usize = 36;

    /// As API servers write it.
    pub(super) fn text(self) -> [u8; Self::TEXT] {
        let mut text = [b'-'; Self::TEXT];
        let mut at = 0;
        for group in GROUPS {
            for byte in &self.0[group] {
                text[at] = DIGITS[usize::from(byte >> 4)];
                text[at + 1] = DIGITS[usize::from(byte & 15)];
                at += 2;
            }
            at += 1;
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uids_are_told_apart() {
        let a = Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab");
        assert_ne!(a, Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ac"));
        assert_eq!(a, Uid::new("6e0c7b4e-0b7c-4b58-9d3e-0123456789ab"));
        assert_ne!(Uid::new("not a uuid"), Uid::new("another"));
    }

    #[test]
    fn a_uuid_is_written_as_it_was_read() {
        let text = "6e0c7b4e-0b7c-4b58-9d3e-0123456789ab";
        let (uid, whole) = Uid::read(text);
        assert!(whole);
        assert_eq!(uid.text(), text.as_bytes());
    }

    proptest! {
        #[test]
        fn a_uid_is_whole_if_it_is_written_as_it_was_read(text in prop_oneof![
            "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            "[0-9a-fA-F-]{36}",
            "[0-9a-fg-]{0,40}",
        ]) {
            let (uid, whole) = Uid::read(&text);
            prop_assert_eq!(uid, Uid::new(&text));
            prop_assert_eq!(whole, uid.text() == text.as_bytes());
        }
    }
}
