//! Timestamps in six bytes.

/// A timestamp in the format of Kubernetes, to the second and in UTC: `2026-11-22T09:27:48Z`. It takes six bytes,
/// each an ASCII character.
#[derive(Clone, Copy)]
pub(super) struct CompactTimestamp([u8; Self::BYTES]);

/// Year, month, day, hour, minute and second, in the order of the text: the number of bits, the number of digits, and
/// the character that follows.
const PARTS: [(u32, usize, u8); 6] = [
    (14, 4, b'-'),
    (4, 2, b'-'),
    (5, 2, b'T'),
    (5, 2, b':'),
    (6, 2, b':'),
    (6, 2, b'Z'),
];

impl CompactTimestamp {
    /// The length of the compact form.
    pub(super) const BYTES: usize = 6;
    /// The bits that each byte holds.
    const BITS: u32 = 7;
    const TEXT_LEN: usize = 20;

    /// Parses a text. `None` if it has another format. Accepts days that do not exist in the calendar.
    #[inline]
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; Self::TEXT_LEN] = text.try_into().ok()?;
        // These two bytes exclude nearly all other texts of this length.
        if text[10] != b'T' || text[19] != b'Z' {
            return None;
        }
        let mut value = 0_u64;
        let mut at = 0;
        for (bits, digits, after) in PARTS {
            let mut part = 0_u64;
            for digit in &text[at..at + digits] {
                part = part * 10 + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
            }
            at += digits;
            if text[at] != after || part >> bits != 0 {
                return None;
            }
            at += 1;
            value = value << bits | part;
        }
        let mut bytes = [0; Self::BYTES];
        for byte in bytes.iter_mut().rev() {
            *byte = value as u8 & ((1 << Self::BITS) - 1);
            value >>= Self::BITS;
        }
        Some(Self(bytes))
    }

    /// Reads the compact form. `None` if the length is wrong.
    pub(super) fn from_compact(compact: &str) -> Option<Self> {
        compact.as_bytes().try_into().ok().map(Self)
    }

    pub(super) fn as_compact(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn text(self) -> [u8; Self::TEXT_LEN] {
        let join = |value: u64, byte| value << Self::BITS | u64::from(byte);
        let mut value = self.0.into_iter().fold(0, join);
        let mut text = [0; Self::TEXT_LEN];
        let mut at = Self::TEXT_LEN;
        for (bits, digits, after) in PARTS.into_iter().rev() {
            at -= 1;
            text[at] = after;
            let mut part = value & ((1 << bits) - 1);
            value >>= bits;
            for _ in 0..digits {
                at -= 1;
                text[at] = b'0' + (part % 10) as u8;
                part /= 10;
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_timestamp_is_written_as_it_was_read(text in prop_oneof![
            "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
            "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9/;]{2}:[0-9]{2}[Zz]",
            "[0-9TZ:-]{20}",
            "[ -~]{0,30}",
        ]) {
            if let Some(timestamp) = CompactTimestamp::parse(text.as_bytes()) {
                prop_assert_eq!(&timestamp.text()[..], text.as_bytes());
                let same = CompactTimestamp::from_compact(timestamp.as_compact()).unwrap();
                prop_assert_eq!(&same.text()[..], text.as_bytes());
            }
        }

        #[test]
        fn every_time_of_day_is_parsed(year in 0..10_000_u32, month in 1..13_u32, day in 1..32_u32, hour in 0..24_u32, minute in 0..60_u32, second in 0..61_u32) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
            prop_assert!(CompactTimestamp::parse(text.as_bytes()).is_some(), "{text}");
        }
    }
}
