//! How bad a finding is.

use serde::Serialize;

use crate::colour::{Colours, Tone};

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warning,
    Problem,
}

impl Level {
    /// The word for it, padded to the width of the widest.
    pub(crate) fn painted(self, colours: Colours) -> String {
        let (word, tone) = match self {
            Self::Ok => ("ok", Tone::Good),
            Self::Warning => ("warning", Tone::Warning),
            Self::Problem => ("PROBLEM", Tone::Bad),
        };
        format!(
            "{}{:width$}",
            colours.paint(Some(tone), word),
            "",
            width = 7 - word.len()
        )
    }
}
