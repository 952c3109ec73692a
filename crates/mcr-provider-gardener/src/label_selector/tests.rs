use kube::core::SelectorExt;

use super::*;

#[test]
fn labels_are_selected_as_kubectl_does() {
    let labels = [("env", "dev"), ("example.com/tier", "a"), ("empty", "")];
    let labels = labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    for (selector, matches) in [
        ("env=dev", true),
        ("env == dev , example.com/tier!=b", true),
        ("env=test", false),
        ("env!=dev", false),
        ("env in (test,dev),example.com/tier", true),
        ("env in (test), example.com/tier", false),
        ("env notin (test, prod)", true),
        ("other notin (a)", true),
        ("!other", true),
        ("! env", false),
        ("empty=", true),
    ] {
        let parsed = parse(selector).unwrap_or_else(|| panic!("{selector}"));
        assert_eq!(parsed.matches(&labels), matches, "{selector}");
    }
    for wrong in [
        "env=dev,",
        ",env",
        "env in dev",
        "env in (dev",
        "env of (dev)",
        "a b",
        "env=a b",
        "=",
        "!",
        "env in (dev) x",
    ] {
        assert!(parse(wrong).is_none(), "{wrong}");
    }
}
