//! Origins that can't be copied now, in words.

use mcr::RequestKey;

/// An origin that can't be copied now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) rule: usize,
    /// The origin, or the copy.
    pub(crate) key: RequestKey,
    pub(crate) problem: Problem,
}

impl Note {
    /// Whether nobody knows which origins there are.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.problem, Problem::Unknown(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The selection names it, and it does not exist.
    Missing,
    /// The objects of its kind are not known in its cluster, with the reason.
    Unknown(String),
    /// Two origins have a copy of this name.
    Twice,
    /// A function of the user failed.
    Failed(String),
}

impl Problem {
    /// The reason for the condition, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "RelatedMissing",
            Self::Unknown(_) => "RelatedUnknown",
            Self::Twice => "NameTaken",
            Self::Failed(_) => "FunctionFailed",
        }
    }

    pub(crate) fn words(&self, what: &str) -> String {
        match self {
            Self::Missing => format!("{what} does not exist"),
            Self::Unknown(reason) => format!("{what} is not known: {reason}"),
            Self::Twice => {
                format!("{what} is the copy of another object already; give copies different names")
            }
            Self::Failed(reason) => format!("{what} is not copied: {reason}"),
        }
    }
}
