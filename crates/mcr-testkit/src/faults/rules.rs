use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{Fault, Match, random::Random, request::RequestInfo};

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

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fault.fmt(f)?;
        if self.which != Match::any() {
            write!(f, " on {}", self.which)?;
        }
        Ok(())
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
    pub(super) fn take(&self, dice: &Dice) -> bool {
        let mut counts = self.counts.lock();
        if counts.1 == Some(0) {
            return false;
        }
        if let Some(probability) = self.rule.which.probability
            && dice.unit() >= probability
        {
            return false;
        }
        if counts.0 > 0 {
            counts.0 -= 1;
            return false;
        }
        counts.1 = counts.1.map(|left| left - 1);
        dice.hits.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// The random numbers of a proxy, and the number of hits.
#[derive(Debug)]
pub(super) struct Dice {
    random: Mutex<Random>,
    pub(super) hits: AtomicU64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Mutex::new(Random::new(seed)),
            hits: AtomicU64::new(0),
        }
    }

    fn unit(&self) -> f64 {
        self.random.lock().unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(which: Match, of: usize) -> Vec<usize> {
        let active = Active::new(RuleId(0), Fault::Forbidden.on(which));
        let dice = Dice::new(1);
        (0..of).filter(|_| active.take(&dice)).collect()
    }

    #[test]
    fn a_rule_lets_off_some_takes_some_and_is_spent() {
        assert_eq!(taken(Match::any(), 3), [0, 1, 2]);
        assert_eq!(taken(Match::any().skip(1).times(2), 6), [1, 2]);
        assert_eq!(taken(Match::any().times(0), 3), [0; 0]);
        let some = taken(Match::any().probability(0.3), 1000).len();
        assert!((200..400).contains(&some), "{some} of 1000");
        assert_eq!(
            taken(Match::any().probability(0.5), 50),
            taken(Match::any().probability(0.5), 50)
        );
    }
}
