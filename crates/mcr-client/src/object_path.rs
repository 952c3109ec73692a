//! The path of an object, from names that may come from data.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stays as it is in a segment of a path. The colon is common in names, as in `system:masters`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// An object on an API server. Its [path](Self::path) leads to this object and to no other, whatever the names hold.
///
/// `kube::Api` writes names into paths as they are. The names of RBAC objects may hold `?`, `#` and spaces, and a name that comes
/// from data (an annotation, a field of another object) may hold anything: `editor?x` would be a request for `editor`.
///
/// ```
/// use mcr_client::ObjectPath;
///
/// let role = ObjectPath {
///     group: "rbac.authorization.k8s.io",
///     version: "v1",
///     plural: "clusterroles",
///     namespace: None,
///     name: "system:editor?x",
/// };
/// assert_eq!(role.path()?, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:editor%3Fx");
/// assert!(ObjectPath { name: "../secrets/a", ..role }.path().is_err());
/// # Ok::<(), mcr_client::UnusableName>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectPath<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The version of the API group.
    pub version: &'a str,
    /// The plural name of the kind.
    pub plural: &'a str,
    /// The namespace. `None`: the object has none.
    pub namespace: Option<&'a str>,
    /// The name of the object.
    pub name: &'a str,
}

/// A name that no object can have on an API server, because it does not fit into a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no object can have the name {}, which is empty, a dot segment, or holds a slash; correct whatever gives this name",
    mcr_access::reason(&format!("{name:?}"))
)]
pub struct UnusableName {
    name: String,
}

impl<'a> ObjectPath<'a> {
    /// The path of the object, with the names percent-encoded.
    ///
    /// # Errors
    /// [`UnusableName`] if a part is empty, `.` or `..`, or holds a slash, which API servers decode before they split a path.
    pub fn path(&self) -> Result<String, UnusableName> {
        let Self {
            group,
            version,
            plural,
            namespace,
            name,
        } = *self;
        let mut segments = match group {
            "" => vec!["api", version],
            group => vec!["apis", group, version],
        };
        segments.extend(
            namespace
                .into_iter()
                .flat_map(|namespace| ["namespaces", namespace]),
        );
        segments.extend([plural, name]);
        let mut path = String::new();
        for segment in segments {
            path.push('/');
            path.push_str(&path_segment(segment)?);
        }
        Ok(path)
    }
}

fn path_segment(name: &str) -> Result<Cow<'_, str>, UnusableName> {
    match name {
        "" | "." | ".." => {}
        name if name.contains('/') => {}
        name => return Ok(utf8_percent_encode(name, ENCODED).into()),
    }
    let name = name.to_owned();
    Err(UnusableName { name })
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use percent_encoding::percent_decode_str;
    use proptest::prelude::*;

    use super::*;
    use crate::path;

    proptest! {
        #[test]
        fn a_path_leads_to_the_object_of_its_names_or_there_is_none(
            group in "[a-z.]{0,9}|\\PC{0,9}",
            namespace in proptest::option::of("[a-z]{1,9}|[./?#%:&= a%2eFf\\\\\u{e4}]{0,6}|\\PC{0,9}"),
            name in "[./?#%:&= a%2eFf\\\\\u{e4}\n]{0,6}|\\PC{0,9}",
        ) {
            let (version, plural, namespace) = ("v1", "roles", namespace.as_deref());
            let object = ObjectPath { group: &group, version, plural, namespace, name: &name };
            let mut parts: Vec<&str> = if group.is_empty() { vec!["api"] } else { vec!["apis", &group] };
            parts.push(version);
            parts.extend(namespace.into_iter().flat_map(|namespace| ["namespaces", namespace]));
            parts.extend([plural, &*name]);
            let wrong = |part: &&str| part.is_empty() || matches!(*part, "." | "..") || part.contains('/');
            prop_assert_eq!(object.path().is_err(), parts.iter().any(wrong));
            if let Ok(path) = object.path() {
                let uri: Uri = path.parse().unwrap();
                prop_assert_eq!((uri.path(), uri.query()), (&*path, None));
                prop_assert_eq!(path::problem(&path), None);
                // As an API server: it decodes the whole path, and then splits it.
                let decoded = percent_decode_str(&path[1..]).decode_utf8().unwrap();
                prop_assert_eq!(decoded.split('/').collect::<Vec<_>>(), parts);
            }
        }
    }
}
