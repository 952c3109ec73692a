//! When everything that existed at the start of a discovery has been said. No I/O, no clock of its own.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::registry::ChildId;

/// Says once that all children there were at the start have synced, or that those left have had their time.
#[derive(Debug)]
pub(crate) struct Gate {
    waiting: BTreeSet<ChildId>,
    /// None once it has been said.
    deadline: Option<Instant>,
}

impl Gate {
    pub(crate) fn new(children: impl IntoIterator<Item = ChildId>, deadline: Instant) -> Self {
        Self {
            waiting: children.into_iter().collect(),
            deadline: Some(deadline),
        }
    }

    /// A child has said everything, or is no longer there to say anything.
    pub(crate) fn settle(&mut self, child: ChildId) {
        self.waiting.remove(&child);
    }

    /// True once, when the time has come; [`late`](Self::late) then tells who is missing.
    pub(crate) fn opens(&mut self, now: Instant) -> bool {
        let opens = self
            .deadline
            .is_some_and(|deadline| self.waiting.is_empty() || deadline <= now);
        if opens {
            self.deadline = None;
        }
        opens
    }

    /// The children that are still waited for.
    pub(crate) fn late(&self) -> impl Iterator<Item = ChildId> {
        self.waiting.iter().copied()
    }

    /// When to look again if nothing happens until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_opens_once_when_all_have_settled() {
        let now = Instant::now();
        let mut gate = Gate::new([1, 2], now + Duration::from_secs(1));
        assert!(!gate.opens(now));
        gate.settle(1);
        gate.settle(7);
        assert!(!gate.opens(now));
        gate.settle(2);
        assert!(gate.opens(now));
        assert!(!gate.opens(now));
        assert_eq!(gate.deadline(), None);
    }

    #[test]
    fn it_opens_at_its_deadline_and_tells_who_is_late() {
        let now = Instant::now();
        let mut gate = Gate::new([1, 2], now);
        gate.settle(2);
        assert!(gate.opens(now));
        assert_eq!(gate.late().collect::<Vec<_>>(), [1]);
        assert!(!gate.opens(now));
    }

    #[test]
    fn without_children_it_opens_at_once() {
        let now = Instant::now();
        assert!(Gate::new([], now + Duration::from_secs(1)).opens(now));
    }
}
