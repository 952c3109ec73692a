//! What servers have answered about related objects during one reconcile.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::DynamicObject;
use mcr::{ClusterName, RequestKey};

use super::{index::Selected, notes::Note};

/// A copy: the position of its rule, and where it is.
pub(crate) type CopyKey = (usize, RequestKey);

/// The most steps of one reconcile for each copy. A step whose answers are outdated is taken again.
const STEPS_PER_COPY: usize = 8;

#[derive(Default)]
pub(crate) struct Answers {
    /// Per rule and place: the origins of this selection.
    pub(crate) origins: BTreeMap<(usize, RequestKey), (Selected, Vec<DynamicObject>)>,
    /// Copies as their servers have them.
    pub(crate) copies: BTreeMap<CopyKey, Option<DynamicObject>>,
    /// Those of them that were read by name, and not by a list that may be older by now.
    asked: BTreeSet<CopyKey>,
    /// The rules and clusters whose copies of the source were listed.
    pub(crate) listed: BTreeSet<(usize, ClusterName)>,
    /// The copies of the last look.
    pub(crate) size: usize,
    steps: usize,
    /// What the last look found that is not as it should be.
    pub(crate) notes: Vec<Note>,
}

impl Answers {
    /// Counts a step. Returns the limit if it is reached.
    pub(crate) fn count(&mut self) -> Option<usize> {
        let most = 16 + STEPS_PER_COPY * self.size;
        self.steps += 1;
        (self.steps > most).then_some(most)
    }

    pub(crate) fn notes(&self) -> &[Note] {
        &self.notes
    }

    pub(crate) fn set_notes(&mut self, notes: Vec<Note>) {
        self.notes = notes;
    }

    /// Whether the server was asked for this copy by its name.
    pub(crate) fn has_asked(&self, key: &CopyKey) -> bool {
        self.asked.contains(key)
    }

    pub(crate) fn saw(&mut self, key: CopyKey, found: Option<DynamicObject>) {
        self.asked.insert(key.clone());
        self.copies.insert(key, found);
    }
}
