//! What is not as it should be with related objects, in words.

use std::fmt;

use mcr::RequestKey;

use crate::{plan::HoldReason, writes::Trouble};

/// A related object or a copy that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// The origin or the copy.
    pub(crate) key: RequestKey,
    pub(crate) problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The selection names it, and it does not exist.
    Missing,
    /// The objects of its kind are not known in its cluster, with the reason.
    Unknown(String),
    /// The copy is being deleted.
    Deleting,
    /// The name of the copy is taken by somebody else.
    Foreign,
    /// Two origins have a copy of this name.
    Twice,
    /// A function of the user failed.
    Failed(String),
    /// The server of the copy takes each write, and the copy is not as it should be.
    Trouble(Trouble),
}

impl Note {
    /// The reason for the condition, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match &self.problem {
            Problem::Missing => "RelatedMissing",
            Problem::Unknown(_) => "RelatedUnknown",
            Problem::Deleting => "CopyDeleting",
            Problem::Foreign | Problem::Twice => "NameTaken",
            Problem::Failed(_) => "FunctionFailed",
            Problem::Trouble(trouble) => trouble.reason(),
        }
    }

    /// Whether a former place is kept until this is over. A server may never store what it drops.
    pub(crate) fn is_obstacle(&self) -> bool {
        !matches!(self.problem, Problem::Trouble(_))
    }

    /// Why the copy is looked at again. `None` if an event tells when this is over.
    pub(crate) fn hold(&self) -> Option<HoldReason> {
        match self.problem {
            Problem::Unknown(_) => Some(HoldReason::Away),
            Problem::Deleting => Some(HoldReason::Deleting),
            Problem::Foreign => Some(HoldReason::Foreign),
            Problem::Missing | Problem::Twice | Problem::Failed(_) | Problem::Trouble(_) => None,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, kind, key, .. } = self;
        let RequestKey { cluster, object } = key;
        let what = format!("{kind} {object} in cluster {cluster}, related by {id:?},");
        match &self.problem {
            Problem::Missing => write!(f, "{what} does not exist"),
            Problem::Unknown(reason) => write!(f, "{what} is not known: {reason}"),
            Problem::Deleting => write!(f, "{what} is being deleted and waits for its finalizers"),
            Problem::Foreign => write!(
                f,
                "{what} belongs to somebody else, so no copy is made; rename or delete it"
            ),
            Problem::Twice => write!(
                f,
                "{what} is the copy of another object already; give copies different names"
            ),
            Problem::Failed(reason) => write!(f, "{what} is not copied: {reason}"),
            Problem::Trouble(trouble) => f.write_str(&trouble.words(key)),
        }
    }
}
