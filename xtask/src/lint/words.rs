//! Finds retired words in identifiers, for which the vocabulary has other words.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use proc_macro2::{TokenStream, TokenTree};

use super::sources::Sources;

/// The retired words and their replacements. The vocabulary is in docs/architecture.md.
const RETIRED: [(&str, &str); 7] = [
    (
        "said saying unsaid say says",
        "announce (a provider), report (a status, an error), pending",
    ),
    ("told tell tells telling", "report, send, notify, log"),
    ("heard unheard", "received, silent"),
    (
        "settle settles settled unsettled",
        "announce, apply, converge: the one that is meant",
    ),
    ("sight sighting sightings", "observation"),
    ("looks looked looking", "reads, observed, asking"),
    ("letgo", "release, remove"),
];

/// Fails if an identifier in a Rust source contains a retired word.
pub(super) fn check(sources: &Sources) -> Result<()> {
    let mut report = Vec::new();
    for (path, text) in sources {
        let tokens: TokenStream = text
            .parse()
            .map_err(|error| anyhow!("{}: {error}", path.display()))?;
        search(path, tokens, &mut report);
    }
    if !report.is_empty() {
        bail!(
            "the vocabulary retired words of these identifiers:\n  {}",
            report.join("\n  ")
        );
    }
    Ok(())
}

fn search(path: &Path, tokens: TokenStream, report: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => search(path, group.stream(), report),
            TokenTree::Ident(name) => {
                if let Some((word, instead)) = retired(&name.to_string()) {
                    report.push(format!(
                        "{}: {name}: instead of `{word}`: {instead}",
                        path.display()
                    ));
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The first retired word in an identifier, and its replacement.
fn retired(identifier: &str) -> Option<(String, &'static str)> {
    let words = words(identifier);
    let pairs = words.windows(2).map(|pair| pair.concat());
    words.iter().cloned().chain(pairs).find_map(|word| {
        let (_, instead) = RETIRED
            .iter()
            .find(|(all, _)| all.split(' ').any(|each| each == word))?;
        Some((word, *instead))
    })
}

/// The words of an identifier in snake case, camel case or capitals, converted to lower case.
fn words(identifier: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in identifier.split('_').filter(|part| !part.is_empty()) {
        let is_camel = part.chars().any(char::is_lowercase);
        let mut word = String::new();
        for letter in part.chars() {
            if is_camel && letter.is_uppercase() && !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            word.extend(letter.to_lowercase());
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::retired;

    #[test]
    fn retired_words_are_found_in_each_form_of_an_identifier() {
        for identifier in [
            "said",
            "is_told_once",
            "LastHeard",
            "SETTLED_AFTER",
            "let_go",
            "LetGo",
        ] {
            assert!(retired(identifier).is_some(), "{identifier}");
        }
        for identifier in [
            "saidi",
            "essay",
            "Outlook",
            "lookup",
            "letter_goes",
            "let",
            "go",
            "go_let",
        ] {
            assert!(retired(identifier).is_none(), "{identifier}");
        }
    }
}
