//! docs/benchmarks.md and its plots, made of rows.

mod machine;
mod page;
mod plot;
mod reasons;
mod rows;
mod targets;
mod verdict;

use std::path::Path;

use anyhow::{Context, Result};
pub use machine::Machine;
pub use page::page;
pub use plot::{Line, plot};
pub use rows::merge;
pub use targets::verdicts;
pub use verdict::Verdict;

use crate::row::Row;

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
    let verdicts = verdicts(&rows);
    let put = |path: &str, text: String| {
        let path = root.join(path);
        let folder = path.parent().unwrap_or(root);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
    };
    put(ROWS, rows::write(&rows)?)?;
    put("docs/benchmarks.md", page(&rows, &verdicts, machine))?;
    let memory = |row: &Row| Some(row.rss_idle_kb? / 1000.0);
    put(
        "docs/benchmarks/memory.svg",
        plot("Resident memory, idle (MB)", &page::lines(&rows, memory)),
    )?;
    put(
        "docs/benchmarks/time.svg",
        plot(
            "All objects reconciled (s)",
            &page::lines(&rows, |row| row.synced_s),
        ),
    )?;
    Ok(verdicts)
}
