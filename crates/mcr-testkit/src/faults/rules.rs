use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{Fault, Match, request::RequestInfo};

/// A fault and the requests to which it applies. Made from a [`Fault`] or by [`Fault::on`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The requests to which the fault applies. Faults of the connection ignore it.
    pub which: Match,
}

impl Fault {
    /// Applies this fault only to some requests.
    pub fn on(self, which: Match) -> Rule {
        Rule { fault: self, which }
    }
}

impl From<Fault> for Rule {
    fn from(fault: Fault) -> Self {
        fault.on(Match::any())
    }
}

/// The ID of a rule in a proxy; see [`FaultProxy::add`](super::FaultProxy::add).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) u64);

/// The rules in force, in the order they were set.
pub(super) type Rules = Arc<Vec<Arc<Active>>>;

/// A rule in force.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: RuleId,
    pub(super) rule: Rule,
    /// How many matches are still skipped, and how many may still be hit (`None`: any number).
    counts: Mutex<(u64, Option<u64>)>,
}

impl Active {
    pub(super) fn new(id: RuleId, rule: Rule) -> Self {
        let counts = Mutex::new((rule.which.skip, rule.which.times));
        Self { id, rule, counts }
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.rule.fault
    }

    pub(super) fn fits(&self, info: &RequestInfo) -> bool {
        self.rule.which.fits(info)
    }

    /// Whether the fault applies this time. Call it only if all conditions match, because it counts the match.
    pub(super) fn take(&self, hits: &AtomicU64) -> bool {
        let mut counts = self.counts.lock();
        if counts.1 == Some(0) {
            return false;
        }
        if counts.0 > 0 {
            counts.0 -= 1;
            return false;
        }
        counts.1 = counts.1.map(|left| left - 1);
        hits.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(which: Match, of: usize) -> Vec<usize> {
        let active = Active::new(RuleId(0), Fault::Forbidden.on(which));
        (0..of).filter(|_| active.take(&AtomicU64::new(0))).collect()
    }

    #[test]
    fn a_rule_lets_off_some_takes_some_and_is_spent() {
        assert_eq!(taken(Match::any(), 3), [0, 1, 2]);
        assert_eq!(taken(Match::any().skip(1).times(2), 6), [1, 2]);
        assert_eq!(taken(Match::any().times(0), 3), [0; 0]);
    }
}
