//! Identifiers that kcp derives from names. They have the form of kcp's identifiers. The labels of initializers and
//! terminators also have the same values as in kcp, because clients compute them.

use sha2::{Digest, Sha224};

/// A hash of a text with 64 well-distributed bits. The same in every process.
fn hash(text: &str, seed: u64) -> u64 {
    let mut state = seed ^ 0xcbf2_9ce4_8422_2325;
    for byte in text.bytes() {
        state = (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn base36(text: &str, seed: u64, length: usize) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut left = u128::from(hash(text, seed)) << 64 | u128::from(hash(text, !seed));
    let digits = std::iter::from_fn(|| {
        let digit = usize::try_from(left % 36).ok()?;
        left /= 36;
        DIGITS.get(digit).map(|digit| char::from(*digit))
    });
    digits.take(length).collect()
}

fn hex(text: &str, length: usize) -> String {
    let words = (0_u64..4).map(|seed| format!("{:016x}", hash(text, seed)));
    words.collect::<String>().chars().take(length).collect()
}

/// The id of a logical cluster: 16 characters.
pub(super) fn cluster_id(seed: u64, number: u64) -> String {
    base36(&number.to_string(), seed, 16)
}

/// The identity hash of an export: 64 hexadecimal characters.
pub(super) fn identity(export_cluster: &str, export: &str) -> String {
    hex(&format!("{export_cluster}/{export}"), 64)
}

/// The value of the label by which kcp finds the bindings of an export. Also the end of the label key of its claims.
pub(super) fn export_hash(export_cluster: &str, export: &str) -> String {
    base36(&format!("{export_cluster}|{export}"), 1, 43)
}

/// The value of the label with which kcp marks claimed objects.
pub(super) fn claim_hash(group: &str, resource: &str, identity: &str) -> String {
    base36(&format!("{group}/{resource}/{identity}"), 2, 43)
}

/// The value of `internal.tenancy.kcp.io/shard`.
pub(super) fn shard_hash(shard: &str) -> String {
    base36(shard, 3, 8)
}

/// The label of a LogicalCluster that still waits for this initializer or terminator (`word`).
pub(super) fn lifecycle_label(word: &str, name: &str) -> (String, String) {
    let prefix = format!("{word}.internal.kcp.io/");
    let hash = Sha224::digest(name.as_bytes());
    let value: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let length = 63_usize.saturating_sub(prefix.len());
    let key = format!("{prefix}{}", value.chars().take(length).collect::<String>());
    (key, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_have_the_form_of_kcps() {
        let id = cluster_id(7, 1);
        assert_eq!(id.len(), 16);
        assert!(id.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase()));
        assert_ne!(id, cluster_id(7, 2));
        assert_eq!(identity("a", "b").len(), 64);
        let (key, value) = lifecycle_label("initializer", "root:example");
        assert_eq!(key, format!("initializer.internal.kcp.io/{}", &value[..35]));
        assert_eq!(value, "38e7732cde2d692db77aa02ff9191566864333f33580d861066abb16");
        let (key, _) = lifecycle_label("terminator", "root:example");
        assert_eq!(key.len(), 63);
    }
}
