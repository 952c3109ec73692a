//! Limits, gates, parking, epochs, and what is left when a cluster is over.

use super::*;

#[test]
fn the_global_limit_holds() {
    let (mut q, now) = queue_with(QueueConfig::default().concurrency(2));
    for key in 0..3 {
        q.add(&"a", key, Live, now);
    }
    q.add_after(&"a", 9, Live, ms(1), now);
    let first = q.pop(now).unwrap();
    q.pop(now).unwrap();
    assert_eq!(q.pop(now + ms(5)), None);
    assert_eq!(q.next_deadline(), None, "no timer can help");
    q.done(&first, OK, now);
    assert!(q.pop(now).is_some());
    assert!(q.pop(now).is_none());
}

#[test]
fn a_cluster_at_its_limit_leaves_the_turn_to_others() {
    let (mut q, now) = queue_with(QueueConfig::default().cluster_concurrency(1));
    for key in 0..3 {
        q.add(&"a", key, Live, now);
        q.add(&"b", key, Live, now);
    }
    let (first, second) = (q.pop(now).unwrap(), q.pop(now).unwrap());
    assert_eq!((first.cluster, second.cluster), ("a", "b"));
    assert_eq!(q.pop(now), None);
    assert!(!q.has_dispatchable());
    q.done(&second, OK, now);
    assert_eq!(q.pop(now).unwrap().cluster, "b");
}

#[test]
fn behind_the_gate_items_gather() {
    let (mut q, now) = queue_with(QueueConfig::default().start_gated(true));
    q.add(&"a", 1, Live, now);
    q.add(&"a", 1, Initial, now);
    q.add_after(&"a", 2, Live, ms(5), now);
    assert_eq!((q.pop(now + ms(10)), q.next_deadline(), q.len()), (None, None, 2));
    assert!(q.depth(&"a", now).unwrap().gated);
    assert!(q.set_gate(&"a", true));
    assert_eq!(keys(&mut q, now + ms(10)), [1, 2]);
    q.add(&"a", 3, Live, now);
    q.set_gate(&"a", false);
    assert_eq!(q.pop(now), None, "a gate can close again");
}

#[test]
fn parked_items_wait_for_the_jittered_release() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Live, now);
    q.add_after(&"a", 2, Live, ms(10), now);
    assert!(q.park(&"a"));
    assert_eq!((q.pop(now + ms(20)), q.next_deadline()), (None, None));
    q.add(&"b", 7, Live, now + ms(20));
    assert_eq!(keys(&mut q, now + ms(20)), [7], "others go on");
    q.unpark(&"a", ms(30), now + ms(20));
    assert!(q.depth(&"a", now + ms(20)).unwrap().releasing);
    assert_eq!(
        (q.pop(now + ms(49)), q.next_deadline()),
        (None, Some(now + ms(50)))
    );
    assert_eq!(keys(&mut q, now + ms(50)), [1, 2]);
}

#[test]
fn parking_again_cancels_the_release() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Live, now);
    q.park(&"a");
    q.unpark(&"a", ms(30), now);
    q.park(&"a");
    assert_eq!((q.pop(now + ms(100)), q.next_deadline()), (None, None));
    q.unpark(&"a", Duration::ZERO, now + ms(100));
    assert_eq!(keys(&mut q, now + ms(100)), [1]);
    q.unpark(&"a", ms(9), now);
    assert!(
        !q.depth(&"a", now).unwrap().releasing,
        "unparking what is not parked does nothing"
    );
}

#[test]
fn disengaging_drops_what_waits_and_refuses_more() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Live, now);
    q.add_after(&"a", 2, Live, ms(10), now);
    q.add(&"b", 3, Live, now);
    assert_eq!(q.disengage(&"a"), 2);
    assert_eq!(q.disengage(&"a"), 0);
    assert!(!q.add(&"a", 1, Live, now));
    assert!(
        !q.set_gate(&"a", true) && !q.park(&"a") && !q.unpark(&"a", ms(1), now) && !q.set_weight(&"a", 2)
    );
    assert_eq!(keys(&mut q, now + ms(20)), [3]);
    assert_eq!(q.next_deadline(), None);
    assert_eq!((q.counters().dropped, q.counters().refused), (2, 1));
}

#[test]
fn an_orphan_holds_its_key_and_its_outcome_is_ignored() {
    let (mut q, now) = queue_with(QueueConfig::default().cluster_concurrency(1));
    q.add(&"a", 1, Live, now);
    let orphan = q.pop(now).unwrap();
    q.add(&"a", 1, Live, now);
    q.disengage(&"a");
    q.engage("a", 2);
    assert_eq!(q.pop(now), None, "the add of the old epoch is gone");
    q.add(&"a", 1, Initial, now);
    assert_eq!(q.pop(now), None, "never two at once");
    q.add(&"a", 2, Live, now);
    let other = q.pop(now).unwrap();
    assert_eq!(
        (other.key, other.epoch),
        (2, 2),
        "orphans do not use up the new epoch's limit"
    );
    q.done(&other, OK, now);
    assert!(!q.done(&orphan, Outcome::Retry, now));
    let work = q.pop(now).unwrap();
    assert_eq!(
        (work.key, work.epoch, work.attempt, work.priority),
        (1, 2, 0, Initial)
    );
    assert!(!q.done(&orphan, Outcome::Drop, now), "told twice");
    assert!(q.done(&work, OK, now));
    assert_eq!((q.running(), q.len()), (0, 0));
}

#[test]
fn an_orphan_of_two_epochs_ago_still_holds_its_key() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Live, now);
    let orphan = q.pop(now).unwrap();
    assert_eq!(q.engage("a", 2), 0);
    q.add(&"a", 1, Live, now);
    q.engage("a", 3);
    assert_eq!(q.depth(&"a", now).unwrap().orphaned, 1);
    q.add(&"a", 1, Live, now);
    assert_eq!(q.pop(now), None);
    q.done(&orphan, OK, now);
    assert_eq!(q.pop(now).unwrap().epoch, 3);
}

#[test]
fn engaging_the_same_epoch_again_changes_nothing() {
    let (mut q, now) = queue();
    q.add(&"a", 1, Live, now);
    q.park(&"a");
    assert_eq!(q.engage("a", 1), 0);
    assert!(q.depth(&"a", now).unwrap().parked);
    assert_eq!(q.engage("a", 2), 1, "another epoch starts afresh");
    assert!(!q.depth(&"a", now).unwrap().parked);
}

#[test]
fn weighted_clusters_are_served_by_weight() {
    let (mut q, now) = queue();
    q.set_weight(&"b", 3);
    for key in 0..12 {
        q.add(&"a", key, Live, now);
        q.add(&"b", key, Live, now);
    }
    let served: String = run_all(&mut q, now)
        .iter()
        .take(12)
        .map(|work| work.cluster)
        .collect();
    assert_eq!(served, "abbbabbbabbb");
}

#[test]
fn everything_is_forgotten_in_the_end() {
    let (mut q, now) = queue();
    for key in 0..5000 {
        q.add(&"a", key, Live, now);
        q.add_after(&"b", key, Live, ms(1), now);
    }
    assert_eq!(run_all(&mut q, now + ms(1)).len(), 10_000);
    for cluster in ["a", "b"] {
        let at = q.slot(&cluster).unwrap() as usize;
        assert_eq!(q.slots[at].items.known(), 0);
        assert!(q.slots[at].items.room() <= 64);
    }
    q.add(&"a", 1, Live, now);
    let work = q.pop(now).unwrap();
    q.disengage(&"a");
    q.disengage(&"b");
    assert_eq!(q.index.len(), 1, "the orphan's");
    q.done(&work, OK, now);
    assert_eq!(
        (q.index.len(), q.slots.len(), q.timers.len(), q.running, q.pending),
        (0, 0, 0, 0, 0)
    );
}

#[test]
fn giving_memory_back_keeps_what_is_left_in_order() {
    let (mut q, now) = queue();
    (0..4000).for_each(|key| assert!(q.add(&"a", key, Live, now)));
    (4000..4100).for_each(|key| assert!(q.add(&"a", key, Initial, now)));
    (5000..5050).for_each(|key| assert!(q.add_after(&"a", key, Live, ms(u64::from(6000 - key)), now)));
    let running = q.pop(now).unwrap();
    let mut left = Vec::new();
    while let Some(work) = q.pop(now) {
        q.done(&work, OK, now);
        left.push(work.key);
    }
    assert!(q.slots[0].items.room() < 1000, "{}", q.slots[0].items.room());
    let initial: Vec<_> = left.iter().copied().filter(|key| *key >= 4000).collect();
    assert_eq!(initial, (4000..4100).collect::<Vec<_>>());
    assert!(q.done(&running, OK, now));
    assert_eq!(
        keys(&mut q, now + ms(1000)),
        (5000..5050).rev().collect::<Vec<_>>()
    );
}

#[test]
fn very_many_items_due_together_are_all_served() {
    let (mut q, now) = queue_with(QueueConfig::default().cluster_concurrency(1));
    for key in 0..1000 {
        q.add_after(&"a", key, Live, ms(5), now);
    }
    q.add_after(&"b", 1, Live, ms(6), now);
    let held = q.pop(now + ms(10)).unwrap();
    assert_eq!(held.cluster, "a");
    assert_eq!(
        q.pop(now + ms(10)).unwrap().cluster,
        "b",
        "the backlog of another cluster does not hide it"
    );
    assert_eq!(q.pop(now + ms(10)), None);
    assert_eq!(q.next_deadline(), None);
    q.done(&held, OK, now + ms(10));
    assert_eq!(run_all(&mut q, now + ms(10)).len(), 999);
}
