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
    waiting: BTreeMap<K, (Line, Instant)>,
    healthy: BTreeSet<(Instant, K)>,
    failing: BTreeSet<(Instant, K)>,
    running: BTreeMap<Ticket, Line>,
    next: Ticket,
}

/// Which of the two lines a cluster stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The last request was answered, or there was none.
    Healthy,
    /// The last request failed.
    Failing,
}

impl<K: Ord + Clone> Schedule<K> {
    /// An empty schedule. 0 requests at once count as 1.
    pub fn new(at_once: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            waiting: BTreeMap::new(),
            healthy: BTreeSet::new(),
            failing: BTreeSet::new(),
            running: BTreeMap::new(),
            next: 0,
        }
    }

    fn line(&mut self, line: Line) -> &mut BTreeSet<(Instant, K)> {
        match line {
            Line::Healthy => &mut self.healthy,
            Line::Failing => &mut self.failing,
        }
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
        let mut fronts = self.fronts().into_iter().flatten();
        let (line, _) = fronts.find(|(_, due)| *due <= now)?;
        let (_, name) = self.line(line).pop_first()?;
        self.waiting.remove(&name);
        let ticket = self.next;
        self.next += 1;
        self.running.insert(ticket, line);
        Some((name, ticket))
    }

    /// A request has ended, and its place is free.
    pub fn ended(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// When the next request is due. None while no place is free or nobody waits.
    pub fn next_due(&self) -> Option<Instant> {
        self.fronts().into_iter().flatten().map(|(_, due)| due).min()
    }

    /// The first of each line that has a place, in the order of their rank.
    fn fronts(&self) -> [Option<(Line, Instant)>; 2] {
        let slow = self.running.values().filter(|line| **line == Line::Failing);
        let room = self.running.len() < self.at_once;
        let room_for_failing = room && slow.count() < (self.at_once / 2).max(1);
        let front = |line, of: &BTreeSet<(Instant, K)>| of.first().map(|(due, _)| (line, *due));
        [
            front(Line::Healthy, &self.healthy).filter(|_| room),
            front(Line::Failing, &self.failing).filter(|_| room_for_failing),
        ]
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
