//! One behaviour per test, which its name describes. `tests/queue/model.rs` checks the whole against a naive model.

mod clusters;

use super::*;

type Queue = QueueCore<&'static str, u32>;
use Priority::{Initial, Live, Retry};

const OK: Outcome = Outcome::Success { requeue_after: None };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue_with(config: QueueConfig) -> (Queue, Instant) {
    let now = Instant::now();
    let mut queue = Queue::new(config.seed(1), now);
    queue.engage("a", 1);
    queue.engage("b", 1);
    (queue, now)
}

fn queue() -> (Queue, Instant) {
    queue_with(QueueConfig::default())
}

fn keys(queue: &mut Queue, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop(now))
        .map(|work| work.key)
        .collect()
}

/// Pops and completes everything dispatchable.
fn run_all(queue: &mut Queue, now: Instant) -> Vec<Work<&'static str, u32>> {
    let mut ran = Vec::new();
    while let Some(work) = queue.pop(now) {
        queue.done(&work, OK, now);
        ran.push(work);
    }
    ran
}

#[test]
fn a_higher_priority_promotes_and_a_lower_one_does_not_demote() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Retry, now);
    q.add(&"a", 2, Live, now);
    q.add(&"a", 1, Live, now + ms(5));
    q.add(&"a", 2, Retry, now + ms(5));
    let first = q.pop(now + ms(10)).unwrap();
    let second = q.pop(now + ms(10)).unwrap();
    // Promoted items join the end of the class, and the earliest add counts.
    assert_eq!((first.key, first.priority), (2, Live));
    assert_eq!(
        (second.key, second.priority, second.queued_for),
        (1, Live, ms(10))
    );
}

#[test]
fn very_long_delays_are_clamped() {
    let (mut q, now) = queue();
    q.add_after(&"a", 1, Live, Duration::MAX, now);
    assert_eq!(q.next_deadline(), Some(now + MAX_DELAY));
    assert_eq!(q.pop(now + MAX_DELAY).unwrap().key, 1);
}

#[test]
fn classes_share_eight_to_two_to_one() {
    let (mut q, now) = queue();
    for key in 0..300 {
        q.add(&"a", key, Priority::ALL[key as usize % 3], now);
    }
    for _ in 0..9 {
        let mut seen = [0; 3];
        for _ in 0..11 {
            seen[q.pop(now).unwrap().priority as usize] += 1;
        }
        assert_eq!(seen, [1, 2, 8]);
    }
}

#[test]
fn introspection_reports_ready_from_delayed_from_running() {
    let (mut q, now) = queue();
    (0..3).for_each(|key| assert!(q.add(&"a", key, Live, now + ms(u64::from(key)))));
    q.add_after(&"a", 9, Live, ms(500), now);
    q.pop(now + ms(5)).unwrap();
    let depth = q.depth(&"a", now + ms(10)).unwrap();
    assert_eq!((depth.ready, depth.delayed, depth.running), (2, 1, 1));
    assert_eq!(
        (depth.oldest_wait, q.oldest_wait(now + ms(10))),
        (Some(ms(9)), Some(ms(9)))
    );
    assert_eq!((q.len(), q.depth(&"x", now)), (3, None));
    // Parked clusters wait for another reason.
    q.park(&"a");
    assert_eq!(q.oldest_wait(now), None);
    assert_eq!(q.clusters().collect::<Vec<_>>(), [(&"a", &1), (&"b", &1)]);
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let now = Instant::now();
        let mut q = Queue::new(QueueConfig::default().seed(42), now);
        let mut log = Vec::new();
        for cluster in ["x", "y", "z"] {
            q.engage(cluster, 1);
            (0..20).for_each(|key| assert!(q.add(&cluster, key, Priority::ALL[key as usize % 3], now)));
        }
        for step in 0..300 {
            let at = now + ms(step);
            while let Some(work) = q.pop(at) {
                q.done(&work, if work.attempt < 3 { Outcome::Retry } else { OK }, at);
                log.push((step, work.cluster, work.key));
            }
        }
        log
    };
    assert_eq!(run(), run());
}

#[test]
fn a_key_is_due_at_the_end_of_its_delay_and_unknown_once_it_is_done() {
    let (mut q, now) = queue();
    let due = |q: &Queue| q.due(&"a", &1);
    assert_eq!((due(&q), q.due(&"unknown", &1)), (None, None));
    q.add_after(&"a", 1, Live, ms(50), now);
    let all = (due(&q), q.due(&"a", &2), q.due(&"b", &1));
    assert_eq!(all, (Some(now + ms(50)), None, None));
    // A change makes it ready, and then it runs.
    q.add(&"a", 1, Live, now + ms(10));
    assert_eq!(due(&q), Some(now));
    let work = q.pop(now + ms(10)).unwrap();
    assert_eq!(due(&q), Some(now));
    q.done(&work, Outcome::RetryAfter(ms(30)), now + ms(20));
    assert_eq!(due(&q), Some(now + ms(50)));
    let work = q.pop(now + ms(50)).unwrap();
    q.done(&work, OK, now + ms(50));
    assert_eq!(due(&q), None);
    // The run of an earlier epoch is not a request of this one.
    q.add(&"a", 1, Live, now);
    let orphan = q.pop(now + ms(60)).unwrap();
    q.engage("a", 2);
    assert_eq!(due(&q), None);
    q.done(&orphan, OK, now + ms(60));
}

#[test]
fn a_full_cluster_takes_known_keys_and_what_fails_runs_at_once_without_its_failures() {
    let (now, zero) = (Instant::now(), Duration::ZERO);
    let mut queue = QueueCore::new(QueueConfig::default(), now);
    queue.engage("eu", 1);
    for (epoch, key, added) in [
        (None, 1, Added::Yes),
        (Some(&1), 2, Added::Yes),
        (Some(&1), 3, Added::Full),
        (None, 1, Added::Yes),
        (Some(&2), 1, Added::NotEngaged),
    ] {
        let result = queue.add_within(&"eu", epoch, (key, 2), Priority::Live, zero, now);
        assert_eq!(result, added);
    }
    let requeue_after = Some(Duration::from_secs(9));
    for outcome in [Outcome::Retry, Outcome::Success { requeue_after }] {
        let work = queue.pop(now).unwrap();
        queue.done(&work, outcome, now);
    }
    assert_eq!(queue.pop(now), None);
    queue.retry_now(&"eu", now);
    let work = queue.pop(now).unwrap();
    assert_eq!((work.key, work.attempt), (1, 0));
    assert_eq!(queue.pop(now), None, "the other one has not failed");
}

#[test]
fn a_forgotten_key_does_not_run_and_a_running_one_is_left_alone() {
    let now = Instant::now();
    let mut queue = QueueCore::new(QueueConfig::default(), now);
    queue.engage("eu", 1);
    queue.add(&"eu", "ready", Priority::Live, now);
    queue.add_after(&"eu", "delayed", Priority::Live, Duration::from_secs(1), now);
    assert!(queue.forget(&"eu", &"ready") && queue.forget(&"eu", &"delayed"));
    assert!(!queue.forget(&"eu", &"ready") && !queue.forget(&"us", &"ready"));
    let left = (queue.len(), queue.next_deadline(), queue.counters().dropped);
    assert_eq!(left, (0, None, 2));
    assert_eq!(queue.pop(now + Duration::from_secs(2)), None);

    queue.add(&"eu", "running", Priority::Live, now);
    let work = queue.pop(now).unwrap();
    queue.add(&"eu", "running", Priority::Live, now);
    assert!(!queue.forget(&"eu", &"running"));
    assert!(queue.done(&work, Outcome::Drop, now));
    assert_eq!(queue.pop(now).map(|work| work.key), Some("running"));
}
