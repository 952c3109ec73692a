//! Faults with conditions, and counts of their matches.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{Fault, Match, request::RequestInfo};

/// A fault and the requests to which it applies. [`Fault::on`] makes a rule. A [`Fault`] alone is a rule for all
/// requests.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The fault.
    pub fault: Fault,
    /// The requests to which the fault applies. Faults of the connection ignore it.
    pub which: Match,
}

impl Fault {
    /// Makes a rule that applies this fault only to some requests.
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

/// The active rules, in the order in which the test has set them.
pub(super) type Rules = Arc<Vec<Arc<Active>>>;

/// An active rule.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: RuleId,
    pub(super) rule: Rule,
    remaining: Mutex<Remaining>,
}

/// The remaining counts of a [`Match`].
#[derive(Debug)]
struct Remaining {
    /// How many further matches are skipped.
    skip: u64,
    /// How many further times the fault applies. `None`: any number of times.
    times: Option<u64>,
}

impl Active {
    pub(super) fn new(id: RuleId, rule: Rule) -> Self {
        let remaining = Mutex::new(Remaining {
            skip: rule.which.skip,
            times: rule.which.times,
        });
        Self { id, rule, remaining }
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.rule.fault
    }

    pub(super) fn fits(&self, info: &RequestInfo) -> bool {
        self.rule.which.fits(info)
    }

    /// Counts a request or a line that matches all conditions. Returns whether the fault applies to it. If so,
    /// increments `hits`.
    pub(super) fn count_match(&self, hits: &AtomicU64) -> bool {
        let mut remaining = self.remaining.lock();
        if remaining.times == Some(0) {
            return false;
        }
        if remaining.skip > 0 {
            remaining.skip -= 1;
            return false;
        }
        remaining.times = remaining.times.map(|times| times - 1);
        hits.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(which: Match, matches: usize) -> Vec<usize> {
        let active = Active::new(RuleId(0), Fault::Forbidden.on(which));
        (0..matches)
            .filter(|_| active.count_match(&AtomicU64::new(0)))
            .collect()
    }

    #[test]
    fn a_rule_skips_some_matches_hits_some_and_ends() {
        assert_eq!(hit(Match::any(), 3), [0, 1, 2]);
        assert_eq!(hit(Match::any().skip(1).times(2), 6), [1, 2]);
        assert_eq!(hit(Match::any().times(0), 3), [0; 0]);
    }
}
