//! Names of namespaces.

use std::sync::{Arc, LazyLock};

/// Returns `default`, the namespace of a context that names none. All callers share one string.
pub fn default_name() -> Arc<str> {
    static DEFAULT: LazyLock<Arc<str>> = LazyLock::new(|| "default".into());
    DEFAULT.clone()
}

/// Returns a name as a shared string. `default`, by far the most frequent one, is not allocated again.
pub fn interned(name: &str) -> Arc<str> {
    let default = default_name();
    if *name == *default { default } else { name.into() }
}

/// Returns whether Kubernetes accepts this name for a namespace: it must be a DNS label (RFC 1123).
pub fn is_valid(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}
