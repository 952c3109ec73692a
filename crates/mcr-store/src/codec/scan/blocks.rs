//! Searches text for special bytes, one block at a time. Special bytes are quotes, backslashes and control characters:
//! the bytes that can't occur unescaped inside a JSON string.

/// The number of bytes in a block: one for each bit of a word.
pub(super) const BLOCK: usize = u64::BITS as usize;

/// The special bytes of the block that starts at `start`, as one bit per byte. `None` if the text ends before the
/// block does.
#[inline(never)]
pub(super) fn special_at(bytes: &[u8], start: usize) -> Option<u64> {
    let rest = bytes.get(start..)?;
    if let Some(block) = rest.first_chunk() {
        return Some(special(block));
    }
    let mut block = [b' '; BLOCK];
    block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    (!rest.is_empty()).then(|| special(&block))
}

/// The special bytes of a block, as one bit per byte. The lowest bit is that of the first byte. The compiler turns the
/// loop into vector instructions.
fn special(block: &[u8; BLOCK]) -> u64 {
    /// The bit that marks a special byte, by the position of the byte. Each eighth of the block has its own bit, so that
    /// the results of all eighths can be combined in 8 bytes.
    const EIGHTHS: [u8; BLOCK] = {
        let mut eighths = [0; BLOCK];
        let mut at = 0;
        while at < BLOCK {
            eighths[at] = 1 << (at / 8);
            at += 1;
        }
        eighths
    };
    let mut found = [0_u8; BLOCK];
    for ((found, byte), eighth) in found.iter_mut().zip(block).zip(EIGHTHS) {
        // `^ 2` swaps the quote (0x22) and the blank (0x20). So one comparison with the blank finds quotes and control
        // characters.
        let is_special = (*byte ^ 2 <= b' ') | (*byte == b'\\');
        *found = if is_special { eighth } else { 0 };
    }
    let (quarters, _) = found.as_chunks();
    let all = quarters
        .iter()
        .fold(0, |all, quarter| all | u128::from_le_bytes(*quarter));
    transposed(all as u64 | (all >> 64) as u64)
}

/// Transposes a matrix of eight rows with eight bits each.
fn transposed(bits: u64) -> u64 {
    let swap = |bits: u64, by: u32, mask: u64| {
        let differ = (bits ^ (bits >> by)) & mask;
        bits ^ differ ^ (differ << by)
    };
    let bits = swap(bits, 7, 0x00aa_00aa_00aa_00aa);
    let bits = swap(bits, 14, 0x0000_cccc_0000_cccc);
    swap(bits, 28, 0x0000_0000_f0f0_f0f0)
}
