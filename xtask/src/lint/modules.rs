//! Finds circles among the modules of a crate, and imports through the root of a crate.

mod code;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::tree::{Arrow, Tree};
use super::sources::Sources;

/// Fails if modules import each other in a circle: siblings, or a module and its children.
///
/// A module may re-export what its children define. That alone does not count as an import.
pub(super) fn check(sources: &Sources) -> Result<()> {
    let mut report = Vec::new();
    for root in roots(sources) {
        circles_of(root, sources, &mut report)?;
    }
    if !report.is_empty() {
        bail!(
            "modules import each other in a circle (`self` stands for the items of the module itself); \
             move an item until all arrows point one way:\n  {}",
            report.join("\n  ")
        );
    }
    Ok(())
}

/// Fails if a file imports something from `lib.rs` that a module of the crate or another crate defines. Such an import
/// hides which module depends on which.
pub(super) fn check_imports(sources: &Sources) -> Result<()> {
    let mut report = Vec::new();
    for root in roots(sources) {
        report.extend(Tree::read(root, sources)?.by_way_of_root());
    }
    if !report.is_empty() {
        bail!(
            "files import by way of the root of their crate; name the module that defines the item, or the other crate:\n  {}",
            report.join("\n  ")
        );
    }
    Ok(())
}

/// The paths of all `lib.rs` and `main.rs` files.
fn roots(sources: &Sources) -> impl Iterator<Item = &Path> {
    let is_root = |path: &&PathBuf| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    sources.keys().filter(is_root).map(PathBuf::as_path)
}

/// The name of the folder of the crate with this `lib.rs` or `main.rs`, which is the name of the crate.
fn name(root: &Path) -> String {
    root.iter()
        .rev()
        .nth(2)
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Adds the circles of the crate with this `lib.rs` or `main.rs` to the report.
fn circles_of(root: &Path, sources: &Sources, report: &mut Vec<String>) -> Result<()> {
    let tree = Tree::read(root, sources)?;
    let name = name(root);
    for (parent, arrows) in tree.arrows() {
        for circle in circles(&Vec::from_iter(arrows.keys())) {
            let inside = [vec![name.clone()], parent.clone()].concat().join("::");
            let modules = Vec::from_iter(circle.iter().copied()).join(", ");
            report.push(format!("in {inside}: {modules}"));
            for ((from, to), example) in &arrows {
                if circle.contains(from.as_str()) && circle.contains(to.as_str()) {
                    report.push(format!("    {from} -> {to}: {example}"));
                }
            }
        }
    }
    Ok(())
}

/// Sets of nodes that can all reach each other: the strongly connected components with more than one node.
fn circles<'a>(arrows: &[&'a Arrow]) -> BTreeSet<BTreeSet<&'a str>> {
    let reached_from = |start: &'a str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(node) = open.pop() {
            let next = arrows.iter().filter(|(from, _)| from == node);
            open.extend(next.map(|(_, to)| to.as_str()).filter(|to| reached.insert(*to)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = arrows
        .iter()
        .map(|(from, _)| (from.as_str(), reached_from(from)))
        .collect();
    let back = |from: &str, to: &str| reached.get(from).is_some_and(|nodes| nodes.contains(to));
    reached
        .iter()
        .filter(|(node, nodes)| nodes.contains(*node))
        .map(|(node, nodes)| nodes.iter().copied().filter(|other| back(other, node)).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Result, Sources, check, check_imports};

    fn report_of(check: fn(&Sources) -> Result<()>, files: &[(&str, &str)]) -> String {
        let sources = files
            .iter()
            .map(|(file, text)| (format!("x/src/{file}").into(), (*text).into()));
        check(&Sources::from_iter(sources)).map_or_else(|error| error.to_string(), |()| String::new())
    }

    /// The report on the circles of a crate of these files.
    fn report(files: &[(&str, &str)]) -> String {
        report_of(check, files)
    }

    #[test]
    fn an_import_by_way_of_the_root_is_named_and_one_from_a_module_is_not() {
        let root = "mod a; mod b; pub use b::B; pub use http::{self, Uri}; pub fn own() {} pub mod hidden { pub use crate::b::C; }";
        let imports = |a| report_of(check_imports, &[("lib.rs", root), ("a.rs", a), ("b.rs", "")]);
        for (a, path) in [
            ("use crate::{B, b::C};", "crate::B"),
            ("fn f(uri: crate::Uri) {}", "crate::Uri"),
            ("use super::http::Error;", "super::http::Error"),
            ("mod inner { use super::super::B; }", "super::super::B"),
            ("use crate::hidden::C;", "crate::hidden::C"),
        ] {
            assert!(
                imports(a).ends_with(&format!("\n  x/src/a.rs: {path}")),
                "{}",
                imports(a)
            );
        }
        for a in [
            "use crate::{b::B, own}; use http::Uri;",
            "#[cfg(test)] mod tests { use crate::B; }",
            "use super::b; fn f() { self::g(); B }",
        ] {
            assert_eq!(imports(a), "");
        }
    }

    #[test]
    fn siblings_that_import_each_other_are_a_circle_with_an_example_for_each_arrow() {
        let a = ("a.rs", "use crate::{b::{self, B as Other}, c}; pub struct A;");
        let c = ("c/mod.rs", "fn f() { log!(\"{}\", super::a::A::new()) }");
        let report = report(&[("lib.rs", "mod a; mod b { pub struct B; } mod c;"), a, c]);
        assert!(report.contains("in x: a, c\n"), "{report}");
        assert!(report.contains("    a -> c: x/src/a.rs (crate::c)\n"), "{report}");
        assert!(
            report.contains("    c -> a: x/src/c/mod.rs (super::a::A::new)"),
            "{report}"
        );
    }

    #[test]
    fn a_parent_that_uses_a_child_which_uses_the_parent_is_a_circle() {
        let circle = |parent: &str| {
            let child = "mod child { use super::Own; pub struct Item; }";
            report(&[("lib.rs", &format!("mod m {{ pub struct Own; {parent} {child} }}"))])
        };
        assert!(circle("fn f() { 0..child::LEN }").contains("in x::m: child, self\n"));
        assert!(circle("pub use child::Item; fn f() -> Item {}").contains("in x::m: child, self\n"));
        assert_eq!(circle("pub(crate) use self::child::Item;"), "");
        assert_eq!(circle("fn f(child: u8) { self.child(child) }"), "");
    }

    #[test]
    fn a_path_leads_to_the_module_that_defines_the_item() {
        // `a` names `b` by way of the root, and `d` names `c` by way of `b`.
        let root = "mod a; mod b; pub use b::B; use http::http;";
        let b = "mod c; mod d; pub use c::C; pub use crate::a::A; pub struct B;";
        let files = |a, c| {
            let d = ("b/d.rs", "use crate::b::C;");
            report(&[("lib.rs", root), ("a.rs", a), ("b.rs", b), ("b/c.rs", c), d])
        };
        assert!(files("use crate::B;", "").contains("in x: a, b\n"));
        assert!(files("", "use super::d::D;").contains("in x::b: c, d\n"));
        assert_eq!(files("use crate::http;", "use super::B;"), "");
    }

    #[test]
    fn tests_and_other_crates_make_no_arrows() {
        let a =
            "mod a { #[cfg(test)] mod tests; #[cfg(all(test, unix))] fn f() { crate::b::g() } fn g() {} }";
        let b = "mod b { use crate::a::g; use ::a::h; fn f() -> impl Sized + use<'static> { x.a::<u8>() } }";
        assert_eq!(report(&[("lib.rs", &format!("{a} {b}"))]), "");
    }
}
