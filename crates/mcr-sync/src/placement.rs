//! What a sync writes, and where.

use mcr::RequestKey;

/// A target, or the copy of a related object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Placement {
    /// The position of the rule for related objects. `None` for a target.
    pub(crate) rule: Option<usize>,
    /// Where it is or shall be.
    pub(crate) at: RequestKey,
}

impl Placement {
    pub(crate) fn target(place: &RequestKey) -> Self {
        let (rule, at) = (None, place.clone());
        Self { rule, at }
    }

    pub(crate) fn copy(rule: usize, at: RequestKey) -> Self {
        let rule = Some(rule);
        Self { rule, at }
    }
}
