//! Where a sync writes, and what was found there.

use std::sync::Arc;

use kube::core::DynamicObject;
use mcr::RequestKey;

/// A target, or the copy of a related object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Placement {
    /// The position of the rule for related objects. `None` for a target.
    pub(crate) rule: Option<usize>,
    /// The cluster, namespace and name of the object.
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

/// The object at a placement, as far as it can be read.
#[derive(Debug)]
pub(crate) enum Found {
    /// Unknown, because its cluster is away.
    Unknown,
    Absent,
    Object(Arc<DynamicObject>),
}

impl Found {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    pub(crate) fn object(self) -> Option<Arc<DynamicObject>> {
        if let Self::Object(object) = self {
            Some(object)
        } else {
            None
        }
    }
}

impl From<Option<Arc<DynamicObject>>> for Found {
    fn from(object: Option<Arc<DynamicObject>>) -> Self {
        object.map_or(Self::Absent, Self::Object)
    }
}
