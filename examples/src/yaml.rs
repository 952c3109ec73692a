//! Files in YAML that a user writes.

use std::path::Path;

use anyhow::Context;
use serde::de::DeserializeOwned;

/// Reads every document of a file.
///
/// # Errors
/// If it can't be read or is not of this form: in one line, with the flag, the file, the place and what stands there.
pub fn documents<T: DeserializeOwned>(flag: &str, path: &Path) -> anyhow::Result<Vec<T>> {
    let named = || format!("{flag} {}", path.display());
    let text = std::fs::read_to_string(path).with_context(named)?;
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_multiple_with_options(&text, options).map_err(|error| {
        let line = error.location().map_or(0, |at| at.line());
        let there = usize::try_from(line).unwrap_or_default().saturating_sub(1);
        let source = text.lines().nth(there).unwrap_or_default().trim();
        let problem = error.without_snippet();
        anyhow::anyhow!("{}: `{source}`: {problem}", named())
    })
}
