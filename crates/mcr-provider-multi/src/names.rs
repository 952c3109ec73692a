//! Builds the names of clusters from the names of children, and splits them again.

use mcr_core::ClusterName;

use crate::error::MultiError;

/// Splits the name of a cluster at the first separator, into the name of its child and the name that the child
/// announced.
///
/// The second name may contain separators itself, for example if the child is a `MultiProvider` too. `None` if there is
/// no separator, or if one of the names is empty.
///
/// ```
/// use mcr_provider_multi::split_cluster_name;
///
/// assert_eq!(split_cluster_name("kind#dev", "#"), Some(("kind", "dev")));
/// assert_eq!(split_cluster_name("a#b#dev", "#"), Some(("a", "b#dev")));
/// assert_eq!(split_cluster_name("hub", "#"), None);
/// ```
pub fn split_cluster_name<'a>(name: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    name.split_once(separator)
        .filter(|(child, rest)| !child.is_empty() && !rest.is_empty())
}

/// Refuses a separator that can't be part of a cluster name.
pub(crate) fn check_separator(separator: &str) -> Result<(), MultiError> {
    // Any text that can be a name can also be a part of a name.
    if ClusterName::new(separator).is_err() {
        return Err(MultiError::Separator(separator.to_owned()));
    }
    Ok(())
}

/// Refuses a child's name that can't be the beginning of a cluster name, or that could not be split off again.
pub(crate) fn check_child(name: &str, separator: &str) -> Result<(), MultiError> {
    if name.is_empty() {
        return Err(MultiError::EmptyName);
    }
    // Checking that the name does not contain the separator is not enough. With "##", the cluster "b" of the child
    // "a#" would be "a###b", which is also the cluster "#b" of the child "a".
    if format!("{name}{separator}").find(separator) != Some(name.len()) {
        return Err(MultiError::SeparatorInName {
            name: name.to_owned(),
            separator: separator.to_owned(),
        });
    }
    // The shortest cluster name that is possible for this child.
    match ClusterName::new(format!("{name}{separator}x")) {
        Ok(_) => Ok(()),
        Err(why) => Err(MultiError::InvalidName {
            start: name.chars().take(64).collect(),
            why,
        }),
    }
}
