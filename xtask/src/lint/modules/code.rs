//! Finds the children of a module and the modules that it refers to, in the module's tokens.
//!
//! Tokens suffice: the lint needs no build, and also finds paths inside macros.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The segments of a path.
pub(super) type Words = Vec<String>;

/// The code of a module, without items that only exist in tests.
#[derive(Default)]
pub(super) struct Code {
    /// The child modules. A child that is defined inline has its tokens here.
    pub(super) children: BTreeMap<String, Option<TokenStream>>,
    /// The names that `use` declarations import, with their paths.
    pub(super) imports: BTreeMap<String, Words>,
    /// The paths of public `use` declarations.
    pub(super) reexports: BTreeSet<Words>,
    /// The paths in private `use` declarations and in all other code. A path of one segment may be a variable.
    pub(super) paths: BTreeSet<Words>,
}

impl Code {
    /// Reads the tokens of a module.
    pub(super) fn read(tokens: TokenStream) -> Self {
        let mut code = Self::default();
        code.add(&Vec::from_iter(tokens), true);
        code
    }

    /// Adds the tokens of the module itself (`top`), or of a group within it.
    fn add(&mut self, tokens: &[TokenTree], top: bool) {
        let mut at = 0;
        while let [first, after @ ..] = &tokens[at..] {
            let before = &tokens[..at];
            at += match first {
                _ if is_test(first, after) => {
                    1 + length(after, |token| is(token, ';') || braces(token).is_some())
                }
                TokenTree::Group(group) => {
                    let inner = Vec::from_iter(group.stream());
                    // `pub(in crate::codec)` is not an import.
                    if !inner.first().is_some_and(|token| is_word(token, "in")) {
                        self.add(&inner, false);
                    }
                    1
                }
                TokenTree::Ident(word) if word == "mod" && top => {
                    let inline = after.get(1).and_then(braces);
                    self.children.insert(after[0].to_string(), inline);
                    3
                }
                // `use<'a>` lists the captures of a return type.
                TokenTree::Ident(word)
                    if word == "use" && !after.first().is_some_and(|next| is(next, '<')) =>
                {
                    let length = length(after, |token| is(token, ';'));
                    let public = before.iter().rev().take(2).any(|token| is_word(token, "pub"));
                    self.add_use(&after[..length], public, top);
                    1 + length
                }
                TokenTree::Ident(word) => {
                    let path = path(word.to_string(), after);
                    let length = path.len() * 3 - 2;
                    // A single segment after a dot is a field or a method.
                    if path.len() > 1 || !before.last().is_some_and(|token| is(token, '.')) {
                        self.paths.insert(path);
                    }
                    length
                }
                _ => 1,
            };
        }
    }

    /// Adds the paths of a `use` declaration. `tokens` are those after the word `use`.
    fn add_use(&mut self, tokens: &[TokenTree], public: bool, top: bool) {
        let mut found = Vec::new();
        use_tree(tokens, &[], &mut found);
        for (name, path) in found {
            let paths = if public {
                &mut self.reexports
            } else {
                &mut self.paths
            };
            paths.insert(path.clone());
            if top && name != "*" {
                self.imports.insert(name, path);
            }
        }
    }
}

/// Finds the paths of a `use` declaration, each with the name that it imports.
fn use_tree(tokens: &[TokenTree], prefix: &[String], found: &mut Vec<(String, Words)>) {
    let mut path = prefix.to_vec();
    let mut name = None;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                for part in Vec::from_iter(group.stream()).split(|token| is(token, ',')) {
                    use_tree(part, &path, found);
                }
                return;
            }
            // A path that starts with `::` refers to another crate.
            TokenTree::Punct(_) if path.is_empty() => return,
            _ if is(token, '*') => path.push("*".to_owned()),
            TokenTree::Ident(word) if word == "as" => name = tokens.iter().rfind(|token| !is(token, ';')),
            TokenTree::Ident(word) if name.is_none() => path.push(word.to_string()),
            _ => {}
        }
    }
    // `use a::{self}` imports `a`.
    path.pop_if(|word| word == "self");
    let name = name.map(TokenTree::to_string).or_else(|| path.last().cloned());
    // There are no tokens after the last comma in braces.
    if let Some(name) = name.filter(|_| !tokens.is_empty()) {
        found.push((name, path));
    }
}

/// The path that starts with this word: segments separated by `::`.
fn path(first: String, mut after: &[TokenTree]) -> Words {
    let mut words = vec![first];
    while let [colon, colon_too, TokenTree::Ident(word), rest @ ..] = after
        && is(colon, ':')
        && is(colon_too, ':')
    {
        words.push(word.to_string());
        after = rest;
    }
    words
}

/// Whether these tokens are an attribute that restricts an item to tests.
fn is_test(first: &TokenTree, after: &[TokenTree]) -> bool {
    let [TokenTree::Group(attribute), ..] = after else {
        return false;
    };
    let text: String = attribute.stream().to_string().split_whitespace().collect();
    is(first, '#') && (text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

/// The number of tokens up to and including the one that ends an item.
fn length(tokens: &[TokenTree], ends: impl FnMut(&TokenTree) -> bool) -> usize {
    tokens.iter().position(ends).map_or(tokens.len(), |last| last + 1)
}

fn is(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == text)
}

fn braces(token: &TokenTree) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    }
}
