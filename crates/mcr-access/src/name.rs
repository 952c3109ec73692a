//! Names of clusters.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use crate::{slug::slug, unprintable::is_unprintable};

/// The name of one cluster of the fleet.
///
/// A name is opaque: each provider chooses the form of its names (the context for files, `namespace/name` for custom
/// resources, `kind#dev` behind a prefix layer). A name is not empty, has at most [`ClusterName::MAX_LEN`] bytes and no
/// control or format characters (such as U+202E, which turns the direction of writing), so it fits into a log line, a
/// metric label or a JSON document. Where Kubernetes allows fewer characters, use [`ClusterName::slug`]. A clone shares
/// the string.
///
/// ```
/// use mcr_access::ClusterName;
///
/// let name = ClusterName::new("kind#dev")?;
/// assert_eq!(name.as_str(), "kind#dev");
/// assert!(ClusterName::new("").is_err());
/// # Ok::<(), mcr_access::InvalidClusterName>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterName(Arc<str>);

/// Why a string is not a [`ClusterName`]. The text shows at most the first 64 characters of the string, and escapes those
/// that a terminal would not show as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidClusterName {
    /// The name has no characters.
    #[error("a cluster name must not be empty")]
    Empty,
    /// The name is longer than [`ClusterName::MAX_LEN`] bytes.
    #[error(
        "cluster name {start:?}… has {len} bytes, more than the {} allowed",
        ClusterName::MAX_LEN
    )]
    TooLong {
        /// The first 64 characters of the name.
        start: String,
        /// The length of the name in bytes.
        len: usize,
    },
    /// The name has a control character (line feed, tab, escape, …), a format character (Unicode's general category Cf:
    /// bidirectional controls, zero-width characters, …), or a separator of lines or paragraphs.
    #[error(
        "cluster name {start:?} has U+{:04X} at byte {at}, but control and format characters are not allowed",
        u32::from(*character)
    )]
    Unprintable {
        /// The first 64 characters of the name.
        start: String,
        /// The offset of the character in bytes.
        at: usize,
        /// The first such character.
        character: char,
    },
}

impl ClusterName {
    /// The length of the longest possible name, in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Checks a string and turns it into a name.
    ///
    /// # Errors
    /// [`InvalidClusterName`] if the string is empty, too long, or has control or format characters.
    pub fn new(name: impl AsRef<str>) -> Result<Self, InvalidClusterName> {
        let name = name.as_ref();
        let start = || name.chars().take(64).collect::<String>();
        if name.is_empty() {
            return Err(InvalidClusterName::Empty);
        }
        if name.len() > Self::MAX_LEN {
            return Err(InvalidClusterName::TooLong {
                start: start(),
                len: name.len(),
            });
        }
        if let Some((at, character)) = name.char_indices().find(|(_, c)| is_unprintable(*c)) {
            return Err(InvalidClusterName::Unprintable {
                start: start(),
                at,
                character,
            });
        }
        Ok(Self(Arc::from(name)))
    }

    /// Turns a string into a name without a check. For names that are valid anyway, or appear in logs only.
    #[doc(hidden)]
    pub fn unchecked(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a DNS label (RFC 1123) for this name, of at most 63 characters: for the name of an object, the key of a
    /// ConfigMap or the value of a label.
    ///
    /// A name that is such a label is its own slug. Any other name becomes its ASCII letters and digits in lower case,
    /// cut at the front, then `-` and 16 hexadecimal digits: the FNV-1a hash of the whole name. The slug follows from the
    /// name alone, and is the same on every machine and in every version.
    ///
    /// A name that ends like a slug, with `-` and 16 hexadecimal digits, gets a hash too. So no cluster that has another
    /// one's slug for a name shares that slug, and `slug` of a slug is another slug. Two names share a slug only if their
    /// hashes are equal: among 10,000 clusters with a chance of less than 1 in 10^11. But FNV-1a does not resist a person who
    /// searches for such names. If strangers choose the names of your clusters, store the whole name beside the slug and
    /// compare it.
    ///
    /// ```
    /// use mcr_access::ClusterName;
    ///
    /// assert_eq!(ClusterName::new("prod-eu")?.slug(), "prod-eu");
    /// assert_eq!(ClusterName::new("/kc/all.yaml+eu")?.slug(), "kc-all-yaml-eu-c17c8526ccae0eac");
    /// # Ok::<(), mcr_access::InvalidClusterName>(())
    /// ```
    pub fn slug(&self) -> String {
        slug(&self.0)
    }
}

impl fmt::Debug for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Deref for ClusterName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ClusterName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for ClusterName {
    fn eq(&self, other: &str) -> bool {
        &*self.0 == other
    }
}

impl PartialEq<&str> for ClusterName {
    fn eq(&self, other: &&str) -> bool {
        &*self.0 == *other
    }
}

impl TryFrom<&str> for ClusterName {
    type Error = InvalidClusterName;
    fn try_from(name: &str) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl TryFrom<String> for ClusterName {
    type Error = InvalidClusterName;
    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(name)
    }
}

impl std::str::FromStr for ClusterName {
    type Err = InvalidClusterName;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::new(name)
    }
}

impl serde::Serialize for ClusterName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for ClusterName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::new(name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_empty_not_long_and_printable() {
        assert_eq!(ClusterName::new(""), Err(InvalidClusterName::Empty));
        assert!(matches!(
            ClusterName::new("x".repeat(ClusterName::MAX_LEN + 1)),
            Err(InvalidClusterName::TooLong { len: 1025, .. })
        ));
        assert!(ClusterName::new("x".repeat(ClusterName::MAX_LEN)).is_ok());
        assert!(matches!(
            ClusterName::new("a\nb"),
            Err(InvalidClusterName::Unprintable {
                at: 1,
                character: '\n',
                ..
            })
        ));
        assert!(ClusterName::new("/home/me/über.kubeconfig+kind-dev").is_ok());
    }

    #[test]
    fn errors_report_what_is_wrong_and_show_no_character_that_hides() {
        let error = |name: &str| ClusterName::new(name).unwrap_err().to_string();
        assert_eq!(
            error("a\u{7}"),
            "cluster name \"a\\u{7}\" has U+0007 at byte 1, but control and format characters are not allowed"
        );
        assert_eq!(
            error("ü\u{202e}b\u{2066}"),
            "cluster name \"ü\\u{202e}b\\u{2066}\" has U+202E at byte 2, but control and format characters are not allowed"
        );
        for hidden in [
            "\u{200b}",
            "\u{feff}",
            "\u{ad}",
            "\u{2028}",
            "\u{e0041}",
            "\u{85}",
        ] {
            let error = error(&format!("prod{hidden}"));
            assert!(
                error.contains(" has U+") && !error.contains(is_unprintable),
                "{error:?}"
            );
        }
        let error = error(&"\u{202e}".repeat(1000));
        assert!(
            error.contains("3000 bytes") && !error.contains(is_unprintable),
            "{error:?}"
        );
    }
}
