//! Whose turn it is to be asked. No I/O, no clock of its own.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;

/// The number of a request.
pub type Ticket = u64;

/// The clusters that wait for a request, and the number of requests that run. `K` names a cluster.
///
/// Clusters whose last request failed come after all others, and take at most half of the places. So clusters that don't answer,
/// which keep a place until the deadline, delay no cluster that does.
#[derive(Debug)]
pub struct Schedule<K> {
    at_once: usize,
    slow_at_once: usize,
    waiting: BTreeMap<K, (Line, Instant)>,
    lines: [BTreeSet<(Instant, K)>; 3],
    running: BTreeMap<Ticket, Run>,
    next: Ticket,
}

#[derive(Debug)]
struct Run {
    line: Line,
    slow: bool,
}

/// Which of the lines a cluster stands in, the first one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The last request was answered, or nothing is known.
    Healthy,
    /// There was no request yet. Comes after those that were answered, if somebody makes the difference.
    New,
    /// The last request failed.
    Failing,
}

impl Line {
    const ALL: [Self; 3] = [Self::Healthy, Self::New, Self::Failing];
}

impl<K: Ord + Clone> Schedule<K> {
    /// An empty schedule. 0 requests at once count as 1.
    pub fn new(at_once: usize) -> Self {
        Self::with_slow(at_once, 0)
    }

    /// An empty schedule, in which requests that wait for a server may give up their place: see [`slow`](Self::slow).
    pub fn with_slow(at_once: usize, slow_at_once: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            slow_at_once,
            waiting: BTreeMap::new(),
            lines: Default::default(),
            running: BTreeMap::new(),
            next: 0,
        }
    }

    fn line(&mut self, line: Line) -> &mut BTreeSet<(Instant, K)> {
        &mut self.lines[line as usize]
    }

    /// Lets a cluster wait until this time. It no longer waits for an earlier or later one.
    pub fn plan(&mut self, name: &K, line: Line, at: Instant) {
        self.cancel(name);
        self.waiting.insert(name.clone(), (line, at));
        self.line(line).insert((at, name.clone()));
    }

    /// Lets a cluster no longer wait.
    pub fn cancel(&mut self, name: &K) {
        if let Some((line, at)) = self.waiting.remove(name) {
            self.line(line).remove(&(at, name.clone()));
        }
    }

    /// Starts the next request that is due, if there is a place for it.
    pub fn start(&mut self, now: Instant) -> Option<(K, Ticket)> {
        let mut fronts = self.fronts();
        let (line, _) = fronts.find(|(_, due)| *due <= now)?;
        let (_, name) = self.line(line).pop_first()?;
        self.waiting.remove(&name);
        let ticket = self.next;
        self.next += 1;
        self.running.insert(ticket, Run { line, slow: false });
        Some((name, ticket))
    }

    /// A request turns out to wait rather than to work. It takes one of the places for slow ones, and its own is free.
    ///
    /// If many wait, the server of many hangs. So beside each slow one as many start as otherwise at once: those that are new
    /// and hang are tried within a few rounds, and hold up the others no longer.
    pub fn slow(&mut self, ticket: Ticket) {
        if let Some(run) = self.running.get_mut(&ticket) {
            run.slow = self.slow_at_once > 0;
        }
    }

    /// A request has ended, and its place is free.
    pub fn ended(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// How many requests run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// When the next request is due. None while no place is free or nobody waits.
    pub fn next_due(&self) -> Option<Instant> {
        self.fronts().map(|(_, due)| due).min()
    }

    /// The first of each line that has a place, in the order of their rank.
    fn fronts(&self) -> impl Iterator<Item = (Line, Instant)> + use<K> {
        let count = |failing, slow| {
            let such = |run: &&Run| (run.line == Line::Failing) == failing && run.slow == slow;
            self.running.values().filter(such).count()
        };
        let (failing, all) = (count(true, false), self.running.len());
        let room = failing + count(false, false) < self.at_once.saturating_mul(1 + count(false, true));
        let few_failing = failing < (self.at_once / 2).max(1) && count(true, true) < 4 * self.at_once;
        let places = self.at_once + self.slow_at_once;
        // The last places are for those that have answered before.
        let last = places + self.at_once.min(self.slow_at_once);
        let has_place = |line: Line| match line {
            Line::Healthy => room && all < last,
            Line::New => room && all < places,
            Line::Failing => room && all < places && few_failing,
        };
        let fronts = Line::ALL.map(|line| {
            let (due, _) = self.lines[line as usize].first().filter(|_| has_place(line))?;
            Some((line, *due))
        });
        fronts.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn name(name: &str) -> String {
        name.to_owned()
    }

    #[test]
    fn failing_clusters_come_last_and_take_half_of_the_places() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut schedule = Schedule::new(4);
        for failing in ["f1", "f2", "f3"] {
            schedule.plan(&name(failing), Line::Failing, now);
        }
        schedule.plan(&name("h1"), Line::Healthy, later);
        let start = |schedule: &mut Schedule<String>, at| schedule.start(at).map(|(name, _)| name);
        assert_eq!(start(&mut schedule, later).as_deref(), Some("h1"));
        assert_eq!(start(&mut schedule, later).as_deref(), Some("f1"));
        let (_, second) = schedule.start(later).unwrap();
        assert_eq!(start(&mut schedule, later), None, "half of the places");
        assert_eq!(schedule.next_due(), None);
        schedule.plan(&name("h2"), Line::Healthy, later);
        assert_eq!(schedule.next_due(), Some(later));
        assert_eq!(start(&mut schedule, now), None, "not yet due");
        assert_eq!(start(&mut schedule, later).as_deref(), Some("h2"));
        schedule.plan(&name("h3"), Line::Healthy, now);
        assert_eq!(start(&mut schedule, later), None, "all places are taken");
        schedule.ended(second);
        assert_eq!(start(&mut schedule, later).as_deref(), Some("h3"));
    }

    #[test]
    fn a_cluster_waits_once() {
        let now = Instant::now();
        let mut schedule = Schedule::new(0);
        schedule.plan(&name("a"), Line::Failing, now);
        schedule.plan(&name("a"), Line::Healthy, now);
        schedule.plan(&name("b"), Line::Healthy, now);
        schedule.cancel(&name("b"));
        let (first, ticket) = schedule.start(now).unwrap();
        assert_eq!(first, "a");
        schedule.ended(ticket);
        assert_eq!(schedule.start(now), None);
    }
}
