//! Numbers of variable length. Each byte is an ASCII character, so a varint inside of text leaves it valid UTF-8.

/// The bits of the number in each byte, the lowest first.
pub(super) const BITS: u32 = 6;
/// The largest number that one byte holds.
pub(super) const MAX_IN_A_BYTE: usize = (1 << BITS) - 1;
/// The continuation bit: another byte follows.
pub(super) const MORE: u8 = 1 << BITS;

#[inline(always)]
pub(super) fn write(out: &mut Vec<u8>, mut number: usize) {
    while number > MAX_IN_A_BYTE {
        out.push((number & MAX_IN_A_BYTE) as u8 | MORE);
        number >>= BITS;
    }
    out.push(number as u8);
}

/// How many bytes [`write`] makes of the number.
pub(super) fn len(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(BITS).max(1) as usize
}

/// Reads a number, and the number of its bytes. Also accepts encodings that are longer than those of [`write`]. `None`
/// if the last byte is missing.
#[inline(always)]
pub(super) fn read(bytes: &[u8]) -> Option<(usize, usize)> {
    let (mut number, mut shift, mut len) = (0, 0, 0);
    loop {
        let byte = *bytes.get(len)?;
        len += 1;
        number |= (usize::from(byte) & MAX_IN_A_BYTE).checked_shl(shift)?;
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
        fn a_number_is_read_as_it_was_written(number in any::<usize>(), shift in 0..usize::BITS, after in any::<Vec<u8>>()) {
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
