//! Compares the queue with a naive model, over arbitrary calls.

use mcr::queue::{Outcome, Priority, QueueConfig, QueueCore, Work};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

const CLUSTERS: u8 = 4;

/// A call. Its first number is the cluster.
#[derive(Clone, Debug)]
enum Op {
    Add(u8, u8, Priority, u64),
    Pop,
    /// Which run, how it ended, and after which delay it runs again.
    Done(usize, u8, u64),
    Engage(u8, u64),
    Disengage(u8),
    Gate(u8, bool),
    Park(u8),
    Unpark(u8, u64),
    Weight(u8, u32),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let cluster = 0..CLUSTERS;
    let delay = prop_oneof![3 => Just(0u64), 1 => 1u64..40];
    let priority = prop::sample::select(Priority::ALL.to_vec());
    prop_oneof![
        12 => (cluster.clone(), 0u8..6, priority, delay.clone())
            .prop_map(|(cluster, key, priority, delay)| Op::Add(cluster, key, priority, delay)),
        12 => Just(Op::Pop),
        8 => (0usize..8, 0u8..5, delay).prop_map(|(which, outcome, delay)| Op::Done(which, outcome, delay)),
        2 => (cluster.clone(), 1u64..4).prop_map(|(cluster, epoch)| Op::Engage(cluster, epoch)),
        1 => cluster.clone().prop_map(Op::Disengage),
        1 => (cluster.clone(), prop::bool::weighted(0.7)).prop_map(|(cluster, open)| Op::Gate(cluster, open)),
        1 => cluster.clone().prop_map(Op::Park),
        2 => (cluster.clone(), 0u64..20).prop_map(|(cluster, jitter)| Op::Unpark(cluster, jitter)),
        1 => (cluster, 0u32..4).prop_map(|(cluster, weight)| Op::Weight(cluster, weight)),
        4 => (1u64..30).prop_map(Op::Advance),
    ]
}

/// A pending key: it must not run before `from`, and may run from `due` on.
#[derive(Clone, Copy, Debug)]
struct Pending {
    from: u64,
    due: u64,
    priority: Priority,
    /// Whether one of the adds had no delay.
    prompt: bool,
}

impl Pending {
    /// After a delay.
    fn later(from: u64, due: u64, priority: Priority) -> Self {
        let prompt = false;
        Self {
            from,
            due,
            priority,
            prompt,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Cluster {
    epoch: Option<u64>,
    gated: bool,
    parked: bool,
    release: u64,
    pending: BTreeMap<u8, Pending>,
    failures: BTreeMap<u8, u32>,
    /// The running keys, with the epoch of the run and the add that came meanwhile.
    running: BTreeMap<u8, (u64, Option<Pending>)>,
}

impl Cluster {
    fn may_dispatch(&self, now: u64, limit: Option<usize>) -> bool {
        let running = self
            .running
            .values()
            .filter(|(epoch, _)| Some(*epoch) == self.epoch)
            .count();
        self.epoch.is_some()
            && !self.gated
            && !self.parked
            && self.release <= now
            && limit.is_none_or(|limit| running < limit)
    }

    fn end_epoch(&mut self) -> usize {
        // No cluster has epoch 0, so the run stays an orphan.
        self.running.values_mut().for_each(|run| *run = (0, None));
        self.failures.clear();
        self.epoch = None;
        std::mem::take(&mut self.pending).len()
    }
}

fn merge(old: Option<Pending>, new: Pending) -> Pending {
    old.map_or(new, |old| Pending {
        from: old.from.min(new.from),
        due: old.due.min(new.due),
        priority: old.priority.max(new.priority),
        prompt: old.prompt || new.prompt,
    })
}

struct Check {
    queue: QueueCore<u8, u8>,
    model: Vec<Cluster>,
    config: QueueConfig,
    start: Instant,
    now: u64,
    works: Vec<Work<u8, u8>>,
}

impl Check {
    fn new(config: QueueConfig) -> Self {
        let start = Instant::now();
        let mut check = Self {
            queue: QueueCore::new(config.clone(), start),
            model: vec![Cluster::default(); CLUSTERS as usize],
            config,
            start,
            now: 0,
            works: Vec::new(),
        };
        (0..CLUSTERS - 1).for_each(|cluster| check.engage(cluster, 1));
        check
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn engage(&mut self, cluster: u8, epoch: u64) {
        let model = &mut self.model[cluster as usize];
        let mut dropped = 0;
        if model.epoch != Some(epoch) {
            dropped = model.end_epoch();
            (model.epoch, model.gated, model.parked, model.release) =
                (Some(epoch), self.config.start_gated, false, 0);
        }
        assert_eq!(self.queue.engage(cluster, epoch), dropped);
    }

    fn pop(&mut self) -> bool {
        let work = self.queue.pop(self.instant());
        let (now, limit) = (self.now, self.config.cluster_concurrency);
        let running: usize = self.model.iter().map(|cluster| cluster.running.len()).sum();
        let free = self.config.concurrency.is_none_or(|limit| running < limit);
        let Some(work) = work else {
            let deadline = self.queue.next_deadline();
            let is_later = deadline.is_none_or(|deadline| deadline > self.instant());
            assert!(is_later, "a deadline in the past would spin");
            let waiting = self
                .model
                .iter()
                .filter(|cluster| free && cluster.may_dispatch(now, limit));
            for (key, pending) in waiting.flat_map(|cluster| &cluster.pending) {
                assert!(pending.due > now, "{key} was not dispatched");
                let due = self.start + Duration::from_millis(pending.due);
                assert!(
                    deadline.is_some_and(|deadline| deadline <= due),
                    "the timer would miss {key}"
                );
            }
            return false;
        };
        assert!(free, "global limit");
        let cluster = &mut self.model[work.cluster as usize];
        assert!(cluster.may_dispatch(now, limit), "{work:?}");
        assert_eq!(Some(work.epoch), cluster.epoch);
        assert_eq!(
            work.attempt,
            cluster.failures.get(&work.key).copied().unwrap_or(0)
        );
        let pending = cluster.pending.remove(&work.key).expect("only added keys run");
        assert!(pending.from <= now, "too early");
        assert_eq!(work.priority, pending.priority);
        assert!(
            cluster.running.insert(work.key, (work.epoch, None)).is_none(),
            "two at once"
        );
        self.works.push(work);
        true
    }

    fn add(&mut self, cluster: u8, key: u8, priority: Priority, delay: u64) {
        let accepted = self.queue.add_after(
            &cluster,
            key,
            priority,
            Duration::from_millis(delay),
            self.instant(),
        );
        let debounce = self
            .config
            .debounce
            .map_or(0, |debounce| debounce.as_millis() as u64);
        let model = &mut self.model[cluster as usize];
        assert_eq!(accepted, model.epoch.is_some());
        if !accepted {
            return;
        }
        let add = if delay > 0 {
            Pending::later(self.now + delay, self.now + delay, priority)
        } else {
            // `merge` keeps the bound of the first add, so `due` limits the delay of a key that changes all the time.
            Pending {
                from: self.now + debounce,
                due: self.now + 10 * debounce,
                priority,
                prompt: true,
            }
        };
        match model.running.get_mut(&key) {
            Some((_, pending)) => *pending = Some(merge(*pending, add)),
            None => {
                let merged = merge(model.pending.get(&key).copied(), add);
                model.pending.insert(key, merged);
            }
        }
    }

    fn done(&mut self, which: usize, outcome: u8, delay: u64) {
        if self.works.is_empty() {
            return;
        }
        let work = self.works.remove(which % self.works.len());
        let after = Duration::from_millis(delay);
        let outcome = match outcome {
            0 => Outcome::Success { requeue_after: None },
            1 => Outcome::Success {
                requeue_after: Some(after),
            },
            2 => Outcome::Retry,
            3 => Outcome::RetryAfter(after),
            _ => Outcome::Drop,
        };
        let used = self.queue.done(&work, outcome, self.instant());
        let model = &mut self.model[work.cluster as usize];
        let (epoch, add) = model.running.remove(&work.key).expect("it ran");
        assert_eq!(used, epoch == work.epoch);
        assert!(!self.queue.done(&work, outcome, self.start), "reported twice");
        let mut again = None;
        if used {
            let at = self.now + delay;
            let failures = work.attempt + 1;
            match outcome {
                Outcome::Success { requeue_after } => {
                    model.failures.remove(&work.key);
                    again = requeue_after.map(|_| Pending::later(at, at, Priority::Initial));
                }
                Outcome::Drop => {
                    model.failures.remove(&work.key);
                }
                Outcome::RetryAfter(_) => {
                    model.failures.insert(work.key, failures);
                    again = Some(Pending::later(at, at, Priority::Retry));
                }
                Outcome::Retry => {
                    model.failures.insert(work.key, failures);
                    let nominal = self.config.backoff.nominal(failures).as_millis() as u64;
                    let (from, due) = (self.now + nominal * 4 / 5, self.now + nominal);
                    again = Some(Pending::later(from, due, Priority::Retry));
                }
            }
        }
        // An add without delay replaces the requeue of the outcome. An add with a delay is merged with it.
        let pending = match (add, again) {
            (Some(add), Some(again)) if !add.prompt => Some(merge(Some(add), again)),
            (add, again) => add.or(again),
        };
        if let Some(pending) = pending {
            model.pending.insert(work.key, pending);
        }
    }

    fn apply(&mut self, op: Op) {
        let at = self.instant();
        match op {
            Op::Add(cluster, key, priority, delay) => self.add(cluster, key, priority, delay),
            Op::Pop => {
                self.pop();
            }
            Op::Done(which, outcome, delay) => self.done(which, outcome, delay),
            Op::Engage(cluster, epoch) => self.engage(cluster, epoch),
            Op::Disengage(cluster) => {
                let dropped = self.model[cluster as usize].end_epoch();
                assert_eq!(self.queue.disengage(&cluster), dropped);
            }
            Op::Gate(cluster, open) => {
                let model = &mut self.model[cluster as usize];
                model.gated = !open;
                assert_eq!(self.queue.set_gate(&cluster, open), model.epoch.is_some());
            }
            Op::Park(cluster) => {
                let model = &mut self.model[cluster as usize];
                (model.parked, model.release) = (true, 0);
                assert_eq!(self.queue.park(&cluster), model.epoch.is_some());
            }
            Op::Unpark(cluster, jitter) => {
                let model = &mut self.model[cluster as usize];
                if std::mem::take(&mut model.parked) {
                    model.release = self.now + jitter;
                }
                let engaged = model.epoch.is_some();
                let unparked = self.queue.unpark(&cluster, Duration::from_millis(jitter), at);
                assert_eq!(unparked, engaged);
            }
            Op::Weight(cluster, weight) => {
                let engaged = self.model[cluster as usize].epoch.is_some();
                assert_eq!(self.queue.set_weight(&cluster, weight), engaged);
            }
            Op::Advance(ms) => self.now += ms,
        }
        let pending: usize = self.model.iter().map(|cluster| cluster.pending.len()).sum();
        assert_eq!(self.queue.len(), pending);
        assert_eq!(self.queue.running(), self.works.len());
    }

    /// Opens all gates, runs all items, and checks that the queue is empty.
    fn drain(mut self) {
        for cluster in 0..CLUSTERS {
            self.apply(Op::Gate(cluster, true));
            self.apply(Op::Unpark(cluster, 0));
        }
        self.now += 10_000_000;
        loop {
            while self.pop() {}
            if self.works.is_empty() {
                break;
            }
            while !self.works.is_empty() {
                self.apply(Op::Done(0, 0, 0));
            }
        }
        assert_eq!(
            (self.queue.len(), self.queue.running()),
            (0, 0),
            "nothing is lost, nothing is left"
        );
        assert!(self.model.iter().all(|cluster| cluster.pending.is_empty()));
        assert_eq!(self.queue.next_deadline(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn it_agrees_with_the_model(
        ops in prop::collection::vec(op(), 0..250),
        global in prop::option::of(1usize..4),
        per_cluster in prop::option::of(1usize..3),
        debounce in prop::option::weighted(0.3, 1u64..15),
        gated in prop::bool::weighted(0.2),
        age in 0u64..50,
    ) {
        let config = QueueConfig::default()
            .concurrency(global)
            .cluster_concurrency(per_cluster)
            .debounce(debounce.map(Duration::from_millis))
            .start_gated(gated)
            .age_after(Duration::from_millis(age))
            .seed(7);
        let mut check = Check::new(config);
        for op in ops {
            check.apply(op);
        }
        check.drain();
    }
}
