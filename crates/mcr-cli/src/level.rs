//! Formats the lines and the counts of findings.

use mcr_core::doctor::Level;

use crate::{
    colour::{Colours, Tone},
    output::printable,
};

/// The number of problems and the number of warnings.
pub(crate) fn counts(levels: impl Iterator<Item = Level> + Clone) -> [usize; 2] {
    [Level::Problem, Level::Warning].map(|level| levels.clone().filter(|one| *one == level).count())
}

/// The line of a finding.
pub(crate) fn line(level: Level, check: &str, message: &str, colours: Colours) -> String {
    let (word, tone) = match level {
        Level::Ok => ("ok", Tone::Good),
        Level::Warning => ("warning", Tone::Warning),
        Level::Problem => ("PROBLEM", Tone::Bad),
    };
    let (painted, width) = (colours.paint(Some(tone), word), 7 - word.len());
    format!("  {painted}{:width$}  {check:<11}  {}\n", "", printable(message))
}

/// `no problems`, `1 problem`, `2 problems`.
pub(crate) fn many(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
