//! How the names of clusters are made of those of children, and taken apart again.

use mcr_core::ClusterName;

use crate::error::MultiError;

/// Splits the name of a cluster at the first separator, into the name of its child and the name that the child announced.
///
/// The second name may contain separators itself, for example if the child is a `MultiProvider` too. `None` if there is no
/// separator, or if one of the names is empty.
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

/// Refuses a separator that can't stand in a cluster name.
pub(crate) fn check_separator(separator: &str) -> Result<(), MultiError> {
    // Whatever can be a name can be in one.
    if ClusterName::new(separator).is_err() {
        return Err(MultiError::Separator(separator.to_owned()));
    }
    Ok(())
}

/// Refuses a child's name that no cluster name can begin with, or that would not be found again in one.
pub(crate) fn check_child(name: &str, separator: &str) -> Result<(), MultiError> {
    if name.is_empty() {
        return Err(MultiError::EmptyName);
    }
    // Not only names that contain the separator: with "##", child "a#" and its cluster "b" would be "a###b",
    // which is also cluster "#b" of child "a".
    if format!("{name}{separator}").find(separator) != Some(name.len()) {
        return Err(MultiError::SeparatorInName {
            name: name.to_owned(),
            separator: separator.to_owned(),
        });
    }
    // The shortest cluster name there can be of it.
    match ClusterName::new(format!("{name}{separator}x")) {
        Ok(_) => Ok(()),
        Err(why) => Err(MultiError::InvalidName {
            start: name.chars().take(64).collect(),
            why,
        }),
    }
}
