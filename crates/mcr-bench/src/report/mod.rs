//! docs/benchmarks.md and its plots, made of rows.

mod machine;
mod page;
mod plot;
mod rows;
mod targets;

use std::path::Path;

use anyhow::{Context, Result};
pub use machine::Machine;
pub use page::page;
pub use plot::{Line, plot};
pub use rows::merge;
pub use targets::{Verdict, verdicts};

use crate::row::{Figure, Row};

/// The file that keeps rows between calls, so that a suite can be measured again by itself.
const ROWS: &str = "docs/benchmarks/rows.jsonl";

/// Writes the page, its plots and the rows. Rows of other suites from earlier calls stay, if `keep` is set.
///
/// # Errors
///
/// When a file can't be read or written.
pub fn write(root: &Path, new: Vec<Row>, keep: bool, machine: &Machine) -> Result<Vec<Verdict>> {
    let kept = root.join(ROWS);
    let old = match std::fs::read_to_string(&kept) {
        Ok(text) if keep => rows::read(&text).with_context(|| format!("reading {}", kept.display()))?,
        _ => Vec::new(),
    };
    let rows = merge(old, new);
    let verdicts = verdicts(&rows)?;
    let put = |path: &str, text: String| {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
    };
    put(ROWS, rows::write(&rows)?)?;
    put("docs/benchmarks.md", page(&rows, &verdicts, machine))?;
    for (path, title, figure) in [
        (
            "docs/benchmarks/memory.svg",
            "Resident memory, idle (MB)",
            Figure::RssIdleKb,
        ),
        (
            "docs/benchmarks/time.svg",
            "All objects reconciled (s)",
            Figure::SyncedS,
        ),
    ] {
        put(path, plot(title, &page::lines(&rows, figure))?)?;
    }
    Ok(verdicts)
}

#[cfg(test)]
mod tests;
