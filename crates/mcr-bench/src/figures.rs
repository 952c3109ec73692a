//! The stored figures with which `--check` compares the code: instructions of small programs, and bytes of objects in a store.
//! Unlike times, they are the same in each run, also on a busy machine.

use std::{collections::BTreeMap, fmt::Write, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{alone::steps::Step, driver::Programs, names::name};

/// The largest accepted ratio of a figure to the stored one.
const GROWTH: f64 = 1.10;

/// The stored figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Instructions of one step, by its name.
    pub instructions: BTreeMap<String, f64>,
    /// Allocated bytes of one object, by its kind.
    pub bytes: BTreeMap<String, f64>,
}

impl Stored {
    fn all(&self) -> impl Iterator<Item = (String, f64)> {
        let instructions = self
            .instructions
            .iter()
            .map(|(name, value)| (format!("instructions of {name}"), *value));
        let bytes = self
            .bytes
            .iter()
            .map(|(name, value)| (format!("bytes of {name}"), *value));
        instructions.chain(bytes)
    }
}

/// Describes the figures that have grown by more than a tenth, and those without a stored figure.
pub fn grown(stored: &Stored, now: &Stored) -> Vec<String> {
    let before: BTreeMap<String, f64> = stored.all().collect();
    let problem = |(name, is): (String, f64)| match before.get(&name) {
        None => Some(format!("{name}: {is:.0}, and no figure is stored")),
        Some(was) if is > was * GROWTH => Some(format!(
            "{name}: {was:.0} before, {is:.0} now ({:+.0} %)",
            100.0 * (is / was - 1.0)
        )),
        Some(_) => None,
    };
    now.all().filter_map(problem).collect()
}

/// Every figure beside the stored one.
pub fn table(stored: &Stored, now: &Stored) -> String {
    let before: BTreeMap<String, f64> = stored.all().collect();
    let mut text = String::new();
    for (name, is) in now.all() {
        let was = before
            .get(&name)
            .map_or_else(|| "none".to_owned(), |was| format!("{was:.0}"));
        // Writing to a String never fails.
        let _ = writeln!(text, "{name:<28} {was:>10} stored {is:>10.0} now");
    }
    text
}

/// Reads the stored figures. No figures if the file does not exist.
///
/// # Errors
///
/// When the file does not have the form that [`write()`] writes.
pub fn read(path: &Path) -> Result<Stored> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display())),
        Err(_) => Ok(Stored::default()),
    }
}

/// Stores figures.
///
/// # Errors
///
/// When the file can't be written.
pub fn write(path: &Path, now: &Stored) -> Result<()> {
    let mut text = serde_json::to_string_pretty(now)?;
    text.push('\n');
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Whether valgrind, which counts instructions, is installed.
pub fn valgrind_is_there() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The instructions of each step: the difference between many and few repetitions, which leaves out the start of the
/// program.
///
/// # Errors
///
/// When valgrind fails.
pub fn instructions(programs: &Programs) -> Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    for step in Step::value_variants() {
        let (few, many) = (1_000, 3_000);
        let more = counted(programs, *step, many)?.saturating_sub(counted(programs, *step, few)?);
        figures.insert(name(step), (more as f64 / (many - few) as f64).round());
    }
    Ok(figures)
}

fn counted(programs: &Programs, step: Step, size: usize) -> Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(&programs.bench)
        .args(["step", &name(&step), &format!("--size={size}")])
        .output()
        .context("starting valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    match collected(&text) {
        Some(count) if output.status.success() => Ok(count),
        _ => bail!("callgrind of {} failed ({}):\n{text}", name(&step), output.status),
    }
}

/// The count in the last output of callgrind.
fn collected(output: &str) -> Option<u64> {
    let line = output
        .lines()
        .rev()
        .find_map(|line| line.split_once("Collected :"));
    line?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_count_is_found_in_what_callgrind_reports() {
        let output = "==7== Callgrind, a call-graph generating cache profiler\n==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n";
        assert_eq!(collected(output), Some(1_234_567));
        assert_eq!(collected("==7== Process terminating"), None);
    }
}
