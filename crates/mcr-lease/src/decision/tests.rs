//! The decisions of one candidate, step by step.

mod world;

use super::*;

const MS: Duration = Duration::from_millis(1);
const DURATIONS: Durations = Durations {
    lease: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};
fn record(version: &str, holder: Option<&str>) -> Record {
    Record {
        uid: "u".to_owned(),
        version: version.to_owned(),
        holder: holder.map(str::to_owned),
        duration: Some(holder.map_or(RELEASED, |_| DURATIONS.lease)),
        written: true,
    }
}

/// It is cut off from the Lease, and believes until its deadline.
#[test]
fn a_holder_that_somebody_has_taken_out_is_waited_for() {
    let mut me = candidate();
    let duration = Some(DURATIONS.lease);
    me.read(
        at(100),
        Some(Record {
            duration,
            ..record("1", None)
        }),
    );
    me.written(at(100), at(100), record("2", Some("me")));
    assert!(!me.is_held(at(100)));
    me.written(at(115), at(115), record("3", Some("me")));
    assert!(me.is_held(at(115)));
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn candidate() -> Decision {
    Decision::new("me".into(), DURATIONS)
}

#[test]
fn a_foreign_record_expires_when_it_was_not_changed_for_its_duration_on_the_local_clock() {
    let mut me = candidate();
    assert_eq!(me.step(at(100)), Step::Read);
    me.read(at(100), Some(record("1", Some("other"))));
    me.read(at(110), Some(record("2", Some("other"))));
    me.read(at(124), Some(record("2", Some("other"))));
    assert_eq!(me.step(at(124)), Step::Wait(at(125)));
    assert_eq!(me.step(at(125)), Step::Update);
}

#[test]
fn a_holder_believes_from_the_time_at_which_it_sent_the_write() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(104), record("2", Some("me")));
    assert!(me.is_held(at(109)) && !me.is_held(at(110)));
    assert_eq!(me.term().stop_by, at(112) + MS * 500);
    // A response that comes after the deadline of its write gives nothing.
    let mut late = candidate();
    late.read(at(100), Some(record("1", None)));
    late.written(at(100), at(110), record("2", Some("me")));
    assert!(!late.is_held(at(110)) && late.term().number == 0);
}

#[test]
fn a_lapse_begins_a_new_term_and_a_renewal_does_not() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.written(at(109), at(109), record("3", Some("me")));
    assert_eq!(me.term().number, 1);
    me.written(at(120), at(120), record("4", Some("me")));
    assert_eq!(me.term().number, 2);
}

#[test]
fn a_rival_in_the_record_ends_the_term_at_once() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.rejected(at(102));
    assert!(me.is_held(at(102)), "a conflict alone may come from a label");
    assert_eq!(me.step(at(102)), Step::Read);
    me.read(at(102), Some(record("3", Some("other"))));
    assert!(!me.is_held(at(102)) && me.term().stop_by.is_zero());
}

#[test]
fn a_deleted_lease_is_created_again_by_its_holder_and_claimed_by_others() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.written(at(100), at(100), record("2", Some("me")));
    me.rejected(at(102));
    me.read(at(102), None);
    assert_eq!((me.step(at(102)), me.is_held(at(102))), (Step::Create, true));
    let created = Record {
        uid: "v".to_owned(),
        ..record("3", Some("me"))
    };
    me.written(at(102), at(102), created.clone());
    assert!(me.is_held(at(111)) && me.term().number == 1);

    let mut rival = candidate();
    rival.read(at(100), Some(record("2", Some("other"))));
    rival.read(at(101), None);
    assert_eq!(
        rival.step(at(101)),
        Step::Wait(at(104)),
        "the holder has time to create it"
    );
    assert_eq!(rival.step(at(104)), Step::Create);

    let mut other = candidate();
    other.read(at(100), None);
    assert_eq!(other.step(at(100)), Step::Create);
    other.written(at(100), at(101), created);
    assert!(!other.is_held(at(101)) && !other.may_release(at(101)));
    // It keeps its claim, and leads after a write at the end of the wait.
    other.written(at(115), at(115), record("4", Some("me")));
}

/// Whatever becomes of the record of a holder with a longer duration, this candidate waits that long for the holder.
#[test]
fn a_candidate_waits_the_longest_duration_that_it_has_seen() {
    let of = |uid: &str, version: &str, holder, seconds| {
        Some(Record {
            uid: uid.to_owned(),
            duration: Some(at(seconds)),
            ..record(version, holder)
        })
    };
    let long = || of("u", "1", Some("other"), 60);
    let third = Some("third");
    // What the candidate reads at 110 s, and when it may write over it.
    for (reads, from) in [
        (of("u", "2", third, 15), 170),
        (of("v", "2", third, 15), 170),
        (of("v", "2", None, 1), 170),
        // The holder itself has released it.
        (of("u", "2", None, 1), 110),
        (of("u", "2", third, 1_000_000), 1_000_110),
    ] {
        let mut me = candidate();
        me.read(at(100), long());
        me.read(at(110), reads.clone());
        assert_eq!(me.step(at(from)), Step::Update, "{reads:?}");
        assert!(from == 110 || me.step(at(from) - MS) == Step::Read, "{reads:?}");
    }
    // A Lease that was deleted under its holder, also before a lost response, is claimed for that long.
    for response_is_lost in [false, true] {
        let mut me = candidate();
        me.read(at(100), long());
        me.read(at(110), None);
        let mine = of("v", "2", Some("me"), 15).unwrap();
        if response_is_lost {
            me.failed(at(113));
            me.read(at(113), Some(mine.clone()));
        } else {
            me.written(at(113), at(113), mine.clone());
        }
        me.written(at(172), at(172), mine.clone());
        assert!(!me.is_held(at(172)));
        me.written(at(173), at(173), mine);
        assert!(me.is_held(at(173)));
    }
    // A duration that somebody mistyped and has corrected is forgotten.
    let mut me = candidate();
    me.read(at(100), of("u", "1", Some("other"), 1_000_000));
    me.read(at(110), of("u", "2", Some("other"), 15));
    assert_eq!(me.step(at(110) + LONGEST_REMEMBERED), Step::Update);
}

#[test]
fn a_claim_becomes_a_term_by_a_write_after_the_wait() {
    // The response to the creation was lost.
    let mut me = candidate();
    me.read(at(100), None);
    me.failed(at(104));
    me.read(at(106), Some(record("1", Some("me"))));
    me.written(at(106), at(106), record("2", Some("me")));
    assert!(!me.is_held(at(106)));
    me.written(at(119), at(119), record("3", Some("me")));
    assert_eq!(me.step(at(120)), Step::Wait(at(121)));
    // The wait ends at 121 s, while this write is on its way.
    me.written(at(120), at(122), record("4", Some("me")));
    assert!(!me.is_held(at(122)));
    me.written(at(122), at(122), record("5", Some("me")));
    assert!(me.is_held(at(122)) && me.term().number == 1);
}

#[test]
fn a_lease_that_no_candidate_has_written_is_claimed() {
    let mut me = candidate();
    let blank = Record {
        written: false,
        duration: None,
        ..record("1", None)
    };
    me.read(at(100), Some(blank));
    assert_eq!(me.step(at(100)), Step::Update);
    me.written(at(100), at(100), record("2", Some("me")));
    assert!(!me.is_held(at(100)));
    me.written(at(115), at(115), record("3", Some("me")));
    assert!(me.is_held(at(115)));
}

#[test]
fn a_server_that_refuses_every_write_is_asked_with_pauses() {
    let mut me = candidate();
    me.read(at(100), Some(record("1", None)));
    me.rejected(at(100));
    me.read(at(100), Some(record("1", None)));
    assert_eq!(me.step(at(100)), Step::Update);
    me.rejected(at(100));
    assert_eq!(me.step(at(100)), Step::Wait(at(102)));
}
