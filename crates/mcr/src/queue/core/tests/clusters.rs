//! Limits, gates, parking, epochs, and what is left when a cluster is over.

use super::*;

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
