//! Decides when a discovery of all children announces `Synced`. No I/O, no clock of its own.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::registry::ChildId;

/// Opens once: when every child of the start has synced, or at the deadline.
#[derive(Debug)]
pub(crate) struct SyncBarrier {
    waiting: BTreeSet<ChildId>,
    /// None once the barrier has opened.
    deadline: Option<Instant>,
}

impl SyncBarrier {
    pub(crate) fn new(children: impl IntoIterator<Item = ChildId>, deadline: Instant) -> Self {
        Self {
            waiting: children.into_iter().collect(),
            deadline: Some(deadline),
        }
    }

    /// A child has synced or was removed.
    pub(crate) fn done(&mut self, child: ChildId) {
        self.waiting.remove(&child);
    }

    /// True once, when the barrier opens; [`late`](Self::late) then names the children that have not synced.
    pub(crate) fn opens(&mut self, now: Instant) -> bool {
        let opens = self
            .deadline
            .is_some_and(|deadline| self.waiting.is_empty() || deadline <= now);
        if opens {
            self.deadline = None;
        }
        opens
    }

    /// The children that the barrier still waits for.
    pub(crate) fn late(&self) -> impl Iterator<Item = ChildId> {
        self.waiting.iter().copied()
    }

    /// When the barrier opens at the latest; none once it has opened.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_opens_once_when_all_are_done() {
        let now = Instant::now();
        let mut barrier = SyncBarrier::new([1, 2], now + Duration::from_secs(1));
        assert!(!barrier.opens(now));
        barrier.done(1);
        barrier.done(7);
        assert!(!barrier.opens(now));
        barrier.done(2);
        assert!(barrier.opens(now));
        assert!(!barrier.opens(now));
        assert_eq!(barrier.deadline(), None);
    }

    #[test]
    fn it_opens_at_its_deadline_and_reports_who_is_late() {
        let now = Instant::now();
        let mut barrier = SyncBarrier::new([1, 2], now);
        barrier.done(2);
        assert!(barrier.opens(now));
        assert_eq!(barrier.late().collect::<Vec<_>>(), [1]);
        assert!(!barrier.opens(now));
    }

    #[test]
    fn without_children_it_opens_at_once() {
        let now = Instant::now();
        assert!(SyncBarrier::new([], now + Duration::from_secs(1)).opens(now));
    }
}
