//! The names of children, separators and clusters.

#![allow(clippy::unwrap_used, reason = "tests")]

use mcr_core::ClusterName;
use mcr_provider_clusters::ClustersProvider;
use mcr_provider_multi::{MultiError, MultiProvider, split_cluster_name};
use proptest::prelude::*;

fn check_child(name: &str, separator: &str) -> Result<(), MultiError> {
    let multi = MultiProvider::builder().separator(separator).build()?;
    multi.handle().add_as(name, ClustersProvider::new())
}

fn check_separator(separator: &str) -> Result<(), MultiError> {
    MultiProvider::builder().separator(separator).build().map(drop)
}

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
