//! The namespace of requests that name none.

use std::sync::{Arc, LazyLock};

/// `default`. All clusters share its text.
pub fn usual() -> Arc<str> {
    static USUAL: LazyLock<Arc<str>> = LazyLock::new(|| "default".into());
    USUAL.clone()
}

/// A namespace, sharing the text of the usual one.
pub fn shared(name: &str) -> Arc<str> {
    let usual = usual();
    if *name == *usual { usual } else { name.into() }
}

/// Whether Kubernetes accepts it as the name of a namespace: a DNS label (RFC 1123).
pub fn is_valid(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
