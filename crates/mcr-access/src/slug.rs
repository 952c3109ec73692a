//! Turns any name into a DNS label.

use crate::namespace;

/// The length of the longest DNS label, in bytes.
const MAX_LEN: usize = 63;
/// The number of hexadecimal digits of the hash.
const DIGITS: usize = 16;

/// Returns a DNS label (RFC 1123) for a name: the name itself if it is one and does not end like a hash, or else its
/// last readable part, `-` and the hash of the whole name. The two forms never meet, because the second always ends
/// like a hash.
pub(crate) fn slug(name: &str) -> String {
    if namespace::is_valid(name) && !ends_like_a_hash(name) {
        return name.to_owned();
    }
    let hash = fnv_1a(name.as_bytes());
    format!("{}-{hash:0DIGITS$x}", readable(name))
}

fn ends_like_a_hash(label: &str) -> bool {
    let hex = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    label
        .rsplit_once('-')
        .is_some_and(|(_, end)| end.len() == DIGITS && end.bytes().all(hex))
}

/// The ASCII letters and digits of a name, in lower case, with `-` for the rest. A long name loses its beginning, because
/// the end says more (`/home/me/.kube/config+prod`).
fn readable(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_ascii_alphanumeric() {
            text.push(character.to_ascii_lowercase());
        } else if !text.ends_with('-') {
            text.push('-');
        }
    }
    // All is ASCII, so every byte is a boundary.
    let text = text.trim_matches('-');
    let from = text.len().saturating_sub(MAX_LEN - DIGITS - 1);
    match text[from..].trim_start_matches('-') {
        "" => "cluster".to_owned(),
        text => text.to_owned(),
    }
}

/// FNV-1a with 64 bits. It is the same on every machine and in every version, as names of stored objects must
/// be, and the hashes of the standard library are not.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    /// Objects in clusters have these names: a change here orphans them.
    #[test]
    fn slugs_stay_as_they_are() {
        for (name, expected) in [
            ("eu", "eu"),
            ("344qdshnqz45fjlp", "344qdshnqz45fjlp"),
            (
                "/home/me/kc/all.yaml+eu",
                "home-me-kc-all-yaml-eu-8326c92c07a45eb7",
            ),
            ("kind#dev", "kind-dev-a21d20ac13fdd9c7"),
            ("EU", "eu-08fb5f07b5965acf"),
            ("名前", "cluster-e89b3249d14aaeb0"),
            ("eu-0123456789abcdef", "eu-0123456789abcdef-a15caf03f05614be"),
        ] {
            assert_eq!(slug(name), expected, "{name}");
        }
        let long = format!("/very{}/config+prod", "/long".repeat(20));
        assert!(slug(&long).contains("-long-config-prod-"), "{}", slug(&long));
    }

    proptest! {
        #[test]
        fn a_slug_is_a_dns_label(name in prop_oneof![".{0,200}", "[-a-zA-Z0-9/+. ]{0,80}", "[-a-f0-9]{1,64}"]) {
            let slug = slug(&name);
            prop_assert!(namespace::is_valid(&slug), "{name:?}: {slug}");
            if namespace::is_valid(&name) && !ends_like_a_hash(&name) {
                prop_assert_eq!(slug, name);
            }
        }

        /// Neither two names that read alike, nor a name and another one's slug.
        #[test]
        fn different_names_have_different_slugs(names in proptest::collection::vec("[-/+.aA]{0,6}|[a-c-]{40,70}", 1..40)) {
            let with_slugs = names.iter().flat_map(|name| [name.clone(), slug(name), slug(&slug(name))]);
            let mut of = HashMap::new();
            for name in with_slugs {
                let other = of.entry(slug(&name)).or_insert_with(|| name.clone());
                prop_assert_eq!(&*other, &name);
            }
        }
    }
}
