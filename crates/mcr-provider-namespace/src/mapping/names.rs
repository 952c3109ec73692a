//! The two names of one namespace.

use std::sync::Arc;

/// The name of the only namespace inside a cluster, unless names are kept.
pub(crate) const DEFAULT: &str = "default";

/// The name of a namespace inside its cluster, and its real name in the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) inside: Arc<str>,
    pub(crate) real: Arc<str>,
}

impl Names {
    /// The names of a namespace. `None` if `real` is no valid name of a namespace, so that it can't be used in a path.
    pub(crate) fn of(real: &Arc<str>, keep: bool) -> Option<Self> {
        is_name(real).then(|| Self {
            inside: if keep { real.clone() } else { DEFAULT.into() },
            real: real.clone(),
        })
    }

    /// Maps a name from inside to outside, or from outside to inside.
    ///
    /// Swaps the two names, so that no request from inside can mean the real `default`, and an object that was
    /// read can be written back unchanged.
    pub(crate) fn swap<'a>(&'a self, name: &'a str) -> &'a str {
        if name == &*self.inside {
            &self.real
        } else if name == &*self.real {
            &self.inside
        } else {
            name
        }
    }
}

/// A DNS label.
pub(crate) fn is_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
        && bytes[0] != b'-'
        && bytes[bytes.len() - 1] != b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_places() {
        let names = Names::of(&"island".into(), false).unwrap();
        for (inside, real) in [
            ("default", "island"),
            ("island", "default"),
            ("zoo", "zoo"),
            ("", ""),
        ] {
            assert_eq!(names.swap(inside), real);
            assert_eq!(names.swap(real), inside);
        }
        let host = Names::of(&"default".into(), false).unwrap();
        assert_eq!((host.swap("default"), host.swap("island")), ("default", "island"));
        let kept = Names::of(&"island".into(), true).unwrap();
        assert_eq!((kept.swap("default"), kept.swap("island")), ("default", "island"));
    }

    #[test]
    fn only_what_can_be_a_namespace_gets_into_a_path() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a%2fb",
            "A",
            "-a",
            "a-",
            "a.b",
            "a b",
            "ä",
            &"a".repeat(64),
        ] {
            assert_eq!(Names::of(&bad.into(), false), None, "{bad:?}");
        }
        for good in ["a", "0", "kube-system", &"a".repeat(63)] {
            assert!(Names::of(&good.into(), true).is_some(), "{good:?}");
        }
    }
}
