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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bad_names_are_refused_with_what_to_do() {
        let error = |name: &str, separator| check_child(name, separator).unwrap_err().to_string();
        assert_eq!(
            error("", "#"),
            "a child has an empty name; clusters are named after their child, so give it a name with `child_as` or \
             `add_as`"
        );
        assert_eq!(
            error("a#b", "#"),
            "child name \"a#b\" runs into the separator \"#\", so its clusters could be taken for another child's; \
             give the child another name with `child_as` or `add_as`, or choose another separator"
        );
        assert!(error("a#", "##").contains("runs into"), "a###b is ambiguous");
        assert!(check_child("#a", "##").is_ok(), "#a##b is not");
        assert_eq!(
            error("a\tb", "#"),
            "child name \"a\\tb\" can't be part of a cluster name: cluster name \"a\\tb#x\" has U+0009 at byte 1, \
             but control and format characters are not allowed; give the child a short, printable name with `child_as` or `add_as`"
        );
        assert!(error(&"x".repeat(ClusterName::MAX_LEN - 1), "#").contains("1025 bytes"));
        assert!(check_child(&"x".repeat(ClusterName::MAX_LEN - 2), "#").is_ok());
        assert!(check_separator("").is_err() && check_separator("\n").is_err());
        assert!(check_separator("#\u{200b}").is_err() && error("a\u{202e}", "#").contains("U+202E"));
        assert!(check_separator("::").is_ok());
    }

    proptest! {
        /// Two children can't make the same name: from every name the child that made it is found again.
        #[test]
        fn a_name_is_split_as_it_was_made(child in "[ab#]{1,4}", cluster in "[ab#]{1,6}", separator in "[ab#]{1,3}") {
            if check_child(&child, &separator).is_err() {
                return Ok(());
            }
            let name = format!("{child}{separator}{cluster}");
            prop_assert_eq!(split_cluster_name(&name, &separator), Some((&*child, &*cluster)));
        }
    }
}
