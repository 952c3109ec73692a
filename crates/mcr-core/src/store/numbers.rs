//! Numbers in few bytes, each of which is a character: what they stand before is text with them.

/// Six bits in a byte, the lowest first.
pub(super) const BITS: u32 = 6;
pub(super) const MOST_IN_A_BYTE: usize = (1 << BITS) - 1;
/// The seventh says that there are more.
pub(super) const MORE: u8 = 1 << BITS;

#[inline(always)]
pub(super) fn write(out: &mut Vec<u8>, mut number: usize) {
    while number > MOST_IN_A_BYTE {
        out.push((number & MOST_IN_A_BYTE) as u8 | MORE);
        number >>= BITS;
    }
    out.push(number as u8);
}

/// How many bytes [`write`] makes of it.
pub(super) fn len(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(BITS).max(1) as usize
}

/// Reads one, in no matter how many bytes, and how many these are. None if it ends in the middle.
#[inline(always)]
pub(super) fn read(bytes: &[u8]) -> Option<(usize, usize)> {
    let (mut number, mut shift, mut len) = (0, 0, 0);
    loop {
        let byte = *bytes.get(len)?;
        len += 1;
        number |= (usize::from(byte) & MOST_IN_A_BYTE).checked_shl(shift)?;
        if byte & MORE == 0 {
            return Some((number, len));
        }
        shift += BITS;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(number in any::<usize>(), shift in 0..usize::BITS, after in any::<Vec<u8>>()) {
            let number = number >> shift;
            let mut bytes = Vec::new();
            super::write(&mut bytes, number);
            let len = bytes.len();
            prop_assert_eq!(super::len(number), len);
            prop_assert!(bytes.is_ascii());
            prop_assert_eq!(super::read(&bytes[..len - 1]), None);
            bytes.extend(after);
            prop_assert_eq!(super::read(&bytes), Some((number, len)));
        }

        #[test]
        fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
            let _ = super::read(&bytes);
        }
    }
}
