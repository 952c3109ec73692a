//! The tree of modules of a crate, and the dependencies between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::TokenStream;

use super::code::{Code, Words};
use crate::lint::sources::Sources;

/// A dependency from one to the other. Both are children of one module. `self` stands for the parent.
pub(super) type Arrow = (String, String);

/// The modules of a crate by their paths, each with its file. The path of the root is empty.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<Words, (PathBuf, Code)>);

impl Tree {
    /// Reads the crate with this `lib.rs` or `main.rs`.
    pub(super) fn read(root: &Path, sources: &Sources) -> Result<Self> {
        let mut tree = Self::default();
        let mut open = vec![(Words::new(), root.to_owned(), parse(root, sources)?)];
        while let Some((path, file, tokens)) = open.pop() {
            let code = Code::read(tokens);
            for (name, inline) in &code.children {
                let path = [&path[..], std::slice::from_ref(name)].concat();
                let (file, tokens) = match inline {
                    Some(tokens) => (file.clone(), tokens.clone()),
                    None => {
                        let file = file_of(root, &path, sources)
                            .with_context(|| format!("{}: `mod {name}` has no file", file.display()))?;
                        let tokens = parse(&file, sources)?;
                        (file, tokens)
                    }
                };
                open.push((path, file, tokens));
            }
            tree.0.insert(path, (file, code));
        }
        Ok(tree)
    }

    /// The dependencies among the children of each module, each with one example: a file and a path.
    pub(super) fn arrows(&self) -> BTreeMap<Words, BTreeMap<Arrow, String>> {
        let mut levels = BTreeMap::<Words, BTreeMap<Arrow, String>>::new();
        for (from, (file, code)) in &self.0 {
            let used = code
                .paths
                .iter()
                .filter(|path| path.len() > 1 || code.imports.contains_key(&path[0]))
                .filter_map(|path| Some((path, self.resolve(from, path)?)));
            let reexported = code
                .reexports
                .iter()
                .filter_map(|path| Some((path, self.resolve(from, path)?)))
                .filter(|(_, to)| !to.starts_with(from));
            for (path, to) in used.chain(reexported).filter(|(_, to)| to != from) {
                let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let side = |words: &Words| words.get(shared).map_or("self", String::as_str).to_owned();
                levels
                    .entry(from[..shared].to_vec())
                    .or_default()
                    .entry((side(from), side(&to)))
                    .or_insert_with(|| format!("{} ({})", file.display(), path.join("::")));
            }
        }
        levels
    }

    /// The imports through the root, or through an inline module, of items that this module only imports itself.
    pub(super) fn by_way_of_root(&self) -> Vec<String> {
        let root = self.0.get(&Words::new()).map(|(file, _)| file);
        let others = self.0.iter().filter(|(_, (file, _))| Some(file) != root);
        others
            .flat_map(|(from, (file, code))| code.paths.iter().map(move |path| (from, file, path)))
            .filter(|(from, _, path)| self.is_imported_by(root, from, path))
            .map(|(_, file, path)| format!("{}: {}", file.display(), path.join("::")))
            .collect()
    }

    /// Whether the path goes through an import of a module in this file. Such an import is the first segment that is
    /// not a module.
    fn is_imported_by(&self, root: Option<&PathBuf>, from: &[String], path: &[String]) -> bool {
        let mut place = from.to_vec();
        for word in path {
            match word.as_str() {
                "crate" => place.clear(),
                "self" => {}
                "super" => {
                    place.pop();
                }
                _ => match self.0.get(&place) {
                    Some((_, code)) if code.children.contains_key(word) => place.push(word.clone()),
                    Some((file, code)) => return Some(file) == root && code.imports.contains_key(word),
                    None => return false,
                },
            }
        }
        false
    }

    /// The module that defines what the path refers to. `None` if another crate does.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<Words> {
        let mut place = from.to_vec();
        for (index, word) in path.iter().enumerate() {
            match word.as_str() {
                "crate" => place.clear(),
                "self" => {}
                "super" => {
                    place.pop();
                }
                _ => {
                    let (_, code) = self.0.get(&place)?;
                    match code.imports.get(word) {
                        _ if code.children.contains_key(word) => place.push(word.clone()),
                        // `use http;` and `use http::http;` refer to another crate.
                        Some(import) if import[0] == *word => return None,
                        Some(import) => place = self.resolve(&place, import)?,
                        None => return (index > 0).then_some(place),
                    }
                }
            }
        }
        Some(place)
    }
}

/// The file of a module that is not defined inline.
fn file_of(root: &Path, path: &[String], sources: &Sources) -> Option<PathBuf> {
    let folder = root.with_file_name(path.join("/"));
    let files = [folder.with_extension("rs"), folder.join("mod.rs")];
    files.into_iter().find(|file| sources.contains_key(file))
}

fn parse(file: &Path, sources: &Sources) -> Result<TokenStream> {
    let text = &sources[file];
    text.parse::<TokenStream>()
        .map_err(|error| anyhow!("{} is not Rust: {error}", file.display()))
}
