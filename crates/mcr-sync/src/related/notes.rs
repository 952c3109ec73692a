//! Why an origin can't be copied now, as text for people.

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
    /// Whether it is unknown which origins exist.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self.problem, Problem::Unknown(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The selection names an object that does not exist.
    Missing,
    /// The origins in a cluster can't be read, for this reason.
    Unknown(String),
    /// The copy of another origin has the same name.
    SameName,
    /// A function of the user failed.
    Failed(String),
}

impl Problem {
    /// The reason for the condition, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "RelatedMissing",
            Self::Unknown(_) => "RelatedUnknown",
            Self::SameName => "NameTaken",
            Self::Failed(_) => "FunctionFailed",
        }
    }

    pub(crate) fn message(&self, what: &str) -> String {
        match self {
            Self::Missing => format!("{what} does not exist"),
            Self::Unknown(reason) => format!("{what} is not known: {reason}"),
            Self::SameName => {
                format!("{what} is the copy of another object already; give copies different names")
            }
            Self::Failed(reason) => format!("{what} is not copied: {reason}"),
        }
    }
}
