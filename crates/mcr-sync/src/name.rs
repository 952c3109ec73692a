//! Names of targets: unique by default, and readable.

use std::{fmt::Write, sync::Arc};

use mcr::ObjectKey;
use sha2::{Digest, Sha256};

/// The most characters of a name that [`hashed`] returns: the limit of a DNS label, which every kind accepts.
pub const MAX_NAME: usize = 63;

/// The most characters of an object's name in Kubernetes.
const MAX_OBJECT_NAME: usize = 253;

/// The hexadecimal digits of the hash in a name: 80 bits.
const HASH_DIGITS: usize = 20;

/// Names an object of a source cluster.
///
/// ```
/// use mcr_sync::SourceName;
///
/// let source = SourceName { cluster: "team-a", namespace: Some("shop"), name: "db" };
/// assert_ne!(source.hash(), SourceName { cluster: "team-b", ..source }.hash());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceName<'a> {
    /// The name of the cluster in the fleet.
    pub cluster: &'a str,
    /// The namespace. `None` for a cluster-scoped object.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: &'a str,
}

impl SourceName<'_> {
    /// A hash of all three parts: 40 hexadecimal digits, which fit in a label.
    ///
    /// Each part is hashed with its length. So two sources can't have the same hash just because their joined parts
    /// are the same text.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for part in [Some(self.cluster), self.namespace, Some(self.name)] {
            match part {
                Some(part) => {
                    hash.update([1]);
                    hash.update((part.len() as u64).to_be_bytes());
                    hash.update(part.as_bytes());
                }
                None => hash.update([0]),
            }
        }
        hex(&hash.finalize()[..20])
    }
}

/// The hexadecimal digits of these bytes.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The key of an object that may be cluster-scoped.
pub(crate) fn key(namespace: Option<impl Into<Arc<str>>>, name: impl Into<Arc<str>>) -> ObjectKey {
    let (namespace, name) = (namespace.map(Into::into), name.into());
    ObjectKey { namespace, name }
}

/// The default name of a target: the readable part of the source's name, and a hash of cluster, namespace and name.
///
/// The name has at most [`MAX_NAME`] characters, begins with a letter, and is valid for every kind.
///
/// ```
/// use mcr_sync::{SourceName, hashed};
///
/// let name = hashed(SourceName { cluster: "team-a", namespace: Some("shop"), name: "db" });
/// assert!(name.starts_with("db-") && name.len() <= 63);
/// ```
pub fn hashed(source: SourceName<'_>) -> String {
    readable_with(source.name, &source.hash())
}

/// A name made of the readable part of another name and the first digits of a hash.
pub(crate) fn readable_with(name: &str, hash: &str) -> String {
    let mut readable: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | '0'..='9' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_lowercase())
        .take(MAX_NAME - HASH_DIGITS - 1)
        .collect();
    if readable.is_empty() {
        readable.push('x');
    }
    format!("{readable}-{}", &hash[..HASH_DIGITS])
}

/// Whether the name is valid for kinds with the usual rules, such as ConfigMaps.
pub(crate) fn is_valid(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut labels = name.split('.');
    name.len() <= MAX_OBJECT_NAME
        && labels.all(|label| label.starts_with(is_word) && label.ends_with(is_word))
        && name.chars().all(|c| is_word(c) || c == '-' || c == '.')
}

/// Whether a kind exists that allows this name. RBAC kinds allow more names than other kinds.
pub(crate) fn is_possible(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '%'])
}

/// A template of names, such as `{cluster}-{name}`. The variables are `cluster`, `namespace`, `name` and `hash`.
///
/// Two sources may get the same name from a template without `{hash}`. The second source is then reported as a
/// conflict, and nothing is overwritten.
///
/// ```
/// use mcr_sync::{NameTemplate, SourceName};
///
/// let template = NameTemplate::parse("{cluster}-{name}")?;
/// let source = SourceName { cluster: "team-a", namespace: Some("shop"), name: "db" };
/// assert_eq!(template.render(source)?, "team-a-db");
/// # Ok::<(), mcr_sync::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Cluster,
    Namespace,
    Name,
    Hash,
}

/// Why a template, or a name that it makes, can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The template names a variable that does not exist.
    #[error(
        "the template has an unknown variable {{{0}}}; use {{cluster}}, {{namespace}}, {{name}} or {{hash}}"
    )]
    UnknownVariable(String),
    /// A brace is not closed.
    #[error("the template {0:?} has a brace that is not closed; close it, as in {{name}}")]
    OpenBrace(String),
    /// The name has more than 253 characters.
    #[error("the template makes a name of {0} characters, and 253 are allowed; use {{hash}} in it")]
    TooLong(usize),
    /// The name is not valid in Kubernetes.
    #[error(
        "the template makes the name {0:?}, which Kubernetes does not allow: a name has lower case letters, digits, '-' and \
         '.', and begins and ends with a letter or digit; use {{hash}} in the template"
    )]
    Invalid(String),
}

impl NameTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`NameError::UnknownVariable`] and [`NameError::OpenBrace`].
    pub fn parse(template: &str) -> Result<Self, NameError> {
        let (mut parts, mut rest) = (Vec::new(), template);
        while let Some((text, after)) = rest.split_once('{') {
            let Some((variable, after)) = after.split_once('}') else {
                return Err(NameError::OpenBrace(template.to_owned()));
            };
            parts.push(Part::Text(text.to_owned()));
            parts.push(match variable {
                "cluster" => Part::Cluster,
                "namespace" => Part::Namespace,
                "name" => Part::Name,
                "hash" => Part::Hash,
                other => return Err(NameError::UnknownVariable(other.to_owned())),
            });
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The name of a source's target. For a cluster-scoped source, `{namespace}` is empty.
    ///
    /// # Errors
    /// [`NameError::TooLong`] and [`NameError::Invalid`] if Kubernetes does not accept the name. A long name is not
    /// cut: two names that differ only in the part that is cut would become the same.
    pub fn render(&self, source: SourceName<'_>) -> Result<String, NameError> {
        let mut name = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => name.push_str(text),
                Part::Cluster => name.push_str(source.cluster),
                Part::Namespace => name.push_str(source.namespace.unwrap_or_default()),
                Part::Name => name.push_str(source.name),
                Part::Hash => name.push_str(&source.hash()[..HASH_DIGITS]),
            }
        }
        if name.len() > MAX_OBJECT_NAME {
            return Err(NameError::TooLong(name.len()));
        }
        if !is_valid(&name) {
            return Err(NameError::Invalid(name));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source<'a>(cluster: &'a str, namespace: Option<&'a str>, name: &'a str) -> SourceName<'a> {
        SourceName {
            cluster,
            namespace,
            name,
        }
    }

    proptest! {
        #[test]
        fn a_default_name_is_valid_for_every_kind(cluster in ".{0,80}", namespace in ".{0,80}", name in ".{0,300}") {
            let made = hashed(source(&cluster, Some(&namespace), &name));
            prop_assert!(made.len() <= MAX_NAME, "{made}");
            prop_assert!(made.starts_with(|c: char| c.is_ascii_lowercase()), "{made}");
            prop_assert!(made.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{made}");
            prop_assert!(!made.ends_with('-'));
        }

        #[test]
        fn different_sources_have_different_names(a in ("[a-c-]{1,3}", "[a-c-]{0,3}", "[a-c-]{1,3}"), b in ("[a-c-]{1,3}", "[a-c-]{0,3}", "[a-c-]{1,3}")) {
            prop_assume!(a != b);
            prop_assert_ne!(hashed(source(&a.0, Some(&a.1), &a.2)), hashed(source(&b.0, Some(&b.1), &b.2)));
        }
    }

    /// Names are stored in clusters: another hash in another release would make every target again.
    #[test]
    fn the_name_of_a_source_is_the_same_in_every_release() {
        assert_eq!(
            hashed(source("team-a", Some("shop"), "1.DB")),
            "db-5923721e4edef1d8f630"
        );
    }

    #[test]
    fn a_template_makes_names_or_reports_why_not() {
        let render = |template: &str, name: &str| {
            NameTemplate::parse(template)?.render(source("eu", Some("shop"), name))
        };
        assert_eq!(
            render("{cluster}.{namespace}-{name}", "db").unwrap(),
            "eu.shop-db"
        );
        assert_eq!(
            render("{hash}", "db").unwrap(),
            source("eu", Some("shop"), "db").hash()[..20]
        );
        assert_eq!(
            render("{nmae}", "db"),
            Err(NameError::UnknownVariable("nmae".into()))
        );
        assert_eq!(render("{name", "db"), Err(NameError::OpenBrace("{name".into())));
        assert_eq!(render("{name}", &"x".repeat(254)), Err(NameError::TooLong(254)));
        for bad in ["-db", "db-", "d_b", "", "a..b", "Db"] {
            assert_eq!(
                render("{name}", bad),
                Err(NameError::Invalid(bad.into())),
                "{bad}"
            );
        }
        assert_eq!(
            NameTemplate::parse("{namespace}x")
                .unwrap()
                .render(source("eu", None, "db"))
                .unwrap(),
            "x"
        );
    }
}
