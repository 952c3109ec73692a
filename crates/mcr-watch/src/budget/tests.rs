//! Tests of the budget. Time is tokio's paused clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{FutureExt, join_all};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

/// A budget of so many MiB for each list and for all.
fn budget(list: usize, fleet: usize) -> Arc<ListBudget> {
    let mut settings = WatchSettings::default();
    (settings.list_bytes, settings.fleet_list_bytes) = (list * MIB, fleet * MIB);
    Arc::new(ListBudget::new(&settings))
}

/// The name of another cluster with each call.
fn new() -> ClusterName {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    ClusterName::unchecked(NEXT.fetch_add(1, Ordering::SeqCst).to_string())
}

fn free(budget: &ListBudget) -> usize {
    budget.free.available_permits()
}

#[test]
fn as_many_lists_begin_at_once_as_the_budget_has_bytes_for() {
    let default = ListBudget::new(&WatchSettings::default());
    assert_eq!((default.first, default.fleet / default.first), (16 * MIB, 32));
    for (list, fleet, first) in [
        (256, 1_024, 16),
        (256, 64, 2),
        (256, 2, 1),
        (256, 0, 1),
        (4, 512, 4),
    ] {
        assert_eq!(budget(list, fleet).first, first * MIB, "of {fleet} MiB");
    }
    let budget = budget(256, 2);
    let _two = [(); 2].map(|()| budget.begin(new()).now_or_never().unwrap());
    assert!(budget.begin(new()).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn lists_begin_first_come_first_served() {
    let budget = budget(256, 1);
    let first = budget.begin(new()).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let waiting = (0..50).map(|i| {
        let (budget, order) = (budget.clone(), order.clone());
        async move {
            let _list = budget.begin(new()).await;
            order.lock().unwrap().push(i);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let ended = tokio::time::sleep(Duration::from_secs(1)).map(|()| drop(first));
    tokio::join!(join_all(waiting), ended);
    assert_eq!(*order.lock().unwrap(), Vec::from_iter(0..50));
}

/// Otherwise a few dead clusters would keep all others out.
#[tokio::test(start_paused = true)]
async fn a_list_that_only_waits_gives_back_all_but_the_bytes_in_use() {
    let budget = budget(256, 64);
    let mut list = budget.begin(new()).await;
    list.use_bytes(5).await.unwrap();
    assert_eq!(free(&budget), 62 * MIB, "it keeps the bytes that it began with");
    let answered = list
        .hold_at_most(Duration::from_secs(2), async { "at once" })
        .await;
    assert_eq!((answered, free(&budget)), ("at once", 62 * MIB));
    let waiting = list.hold_at_most(Duration::from_secs(2), std::future::pending::<()>());
    let waited = timeout(Duration::from_millis(1_999), waiting).await;
    assert!(waited.is_err() && free(&budget) == 62 * MIB, "not yet");
    let waiting = list.hold_at_most(Duration::from_secs(2), std::future::pending::<()>());
    assert!(timeout(Duration::from_millis(2_001), waiting).await.is_err());
    assert_eq!(free(&budget), 64 * MIB - 5);
    // From now on it holds the bytes in use and no others.
    list.use_bytes(1_000).await.unwrap();
    assert_eq!(free(&budget), 64 * MIB - 1_000);
    list.use_bytes(10).await.unwrap();
    assert_eq!(free(&budget), 64 * MIB - 10);
    list.begin_again().now_or_never().unwrap();
    assert_eq!(free(&budget), 64 * MIB - 10);
    drop(list);
    assert_eq!(free(&budget), 64 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_bytes_begins_again_in_its_turn() {
    let budget = budget(256, 1);
    let mut list = budget.begin(new()).await;
    list.hold_at_most(Duration::ZERO, tokio::time::sleep(Duration::from_secs(1)))
        .await;
    let other = budget.begin(new()).now_or_never().unwrap();
    assert!(list.begin_again().now_or_never().is_none());
    drop(other);
    list.begin_again().now_or_never().unwrap();
    assert_eq!(free(&budget), 0);
}

#[tokio::test(start_paused = true)]
async fn one_list_takes_no_more_than_its_own_limit() {
    let budget = budget(16, 48);
    let mut list = budget.begin(new()).await;
    list.use_bytes(16 * MIB).await.unwrap();
    let error = list.use_bytes(16 * MIB + 1).now_or_never().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the list takes 16.1 MiB of memory, and one list may take 16.0 MiB (WatchSettings::list_bytes, and half of \
         WatchSettings::fleet_list_bytes). Watch fewer objects \
         with a selector, or raise the limit"
    );
    assert_eq!(free(&budget), 32 * MIB, "nothing was taken for it");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_needs_more_than_there_is_fails_after_a_while() {
    let budget = budget(64, 48);
    let mut others = budget.begin(new()).await;
    others.use_bytes(24 * MIB).await.unwrap();
    let mut list = budget.begin(new()).await;
    let began = Instant::now();
    let error = list.use_bytes(12 * MIB).await.unwrap_err();
    assert_eq!(began.elapsed(), WAIT_TO_GROW);
    assert_eq!(
        error.to_string(),
        "the list needs 12.0 MiB of memory, and all lists together may take 48.0 MiB (WatchSettings::fleet_list_bytes), those of \
         one cluster half of it. It is tried again when others have ended; raise the limit if this stays"
    );
    let error = list.use_bytes(25 * MIB).now_or_never().unwrap().unwrap_err();
    assert!(
        matches!(error, WatchError::ListTooLarge { limit, .. } if limit == 24 * MIB),
        "no wait and no other list can help it"
    );
    // The other one ends while the list waits.
    let ends = tokio::time::sleep(WAIT_TO_GROW / 2).map(|()| drop(others));
    let (grown, ()) = tokio::join!(list.use_bytes(24 * MIB), ends);
    grown.unwrap();
}

/// What is under way has to end, or all would begin and none would end.
#[tokio::test(start_paused = true)]
async fn no_list_begins_while_one_waits_to_grow() {
    let budget = budget(256, 6);
    let mut list = budget.begin(new()).await;
    let mut others = [(); 5].map(|()| budget.begin(new()).now_or_never());
    let begun = AtomicUsize::new(0);
    let beginners = (0..10).map(|_| async {
        let _list = budget.begin(new()).await;
        begun.fetch_add(1, Ordering::SeqCst);
    });
    let growth = async {
        let ends = async {
            for other in &mut others[..2] {
                tokio::time::sleep(Duration::from_secs(4)).await;
                drop(other.take());
            }
        };
        let (grown, ()) = tokio::join!(list.use_bytes(3 * MIB), ends);
        grown.unwrap();
        assert_eq!(begun.load(Ordering::SeqCst), 0);
        drop(list);
    };
    tokio::join!(join_all(beginners), growth);
    assert_eq!(free(&budget), 3 * MIB);
}

/// Small lists always find room. A large one has to get its turn before those that came later.
#[tokio::test(start_paused = true)]
async fn a_large_list_that_waits_to_begin_is_not_overtaken() {
    let budget = budget(256, 8);
    let small = join_all((0..8).map(|_| budget.begin(new()))).await;
    let later = AtomicUsize::new(0);
    let large = async {
        drop(budget.begin_with(new(), 4 * MIB).await);
        assert_eq!(later.load(Ordering::SeqCst), 0);
    };
    let others = (0..10).map(|_| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let _list = budget.begin(new()).await;
        later.fetch_add(1, Ordering::SeqCst);
    });
    let end = async {
        for list in small {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(list);
        }
    };
    tokio::join!(large, join_all(others), end);
}

/// All hold what others wait for. The first that gives up lets the others go on.
#[tokio::test(start_paused = true)]
async fn lists_that_all_grow_at_once_do_not_wait_for_ever() {
    const LISTS: usize = 32;
    let budget = budget(256, 64);
    let (began, failures) = (Instant::now(), AtomicUsize::new(0));
    let lists = (0..LISTS).map(|_| async {
        let mut needed = 0;
        loop {
            let mut list = budget.begin_with(new(), 2 * needed).await;
            let mut grow = async || {
                for used in 1..=20 {
                    needed = used * MIB;
                    list.use_bytes(needed).await?;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Ok::<_, WatchError>(())
            };
            if grow().await.is_ok() {
                return;
            }
            drop(list);
            failures.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    join_all(lists).await;
    println!("{failures:?} failures in {:?}", began.elapsed());
    let took = began.elapsed();
    assert!(took < 3 * WAIT_TO_GROW * LISTS as u32, "{took:?}");
    assert_eq!(free(&budget), 64 * MIB);
}

/// Clusters whose lists take what they can get, in large lists or in many, and never end.
#[tokio::test(start_paused = true)]
async fn lists_that_never_end_leave_room_for_other_clusters() {
    for (clusters, lists, left) in [(1, 2, 100), (1, 32, 100), (2, 2, 45), (3, 1, 25)] {
        let budget = budget(256, 512);
        let mut endless = tokio::task::JoinSet::new();
        for cluster in (0..clusters).map(|_| new()) {
            for list in 0..=lists {
                let (budget, cluster) = (budget.clone(), cluster.clone());
                endless.spawn(async move {
                    // The last one knows that it is large, and waits. It may keep nobody waiting.
                    let known = if list < lists { 0 } else { 256 * MIB };
                    let mut list = budget.begin_with(cluster, known).await;
                    for mib in 1..=256 {
                        if list.use_bytes(mib * MIB).await.is_err() {
                            break;
                        }
                    }
                    std::future::pending::<()>().await;
                });
            }
        }
        tokio::time::sleep(Duration::from_secs(600)).await;
        let began = Instant::now();
        let mut large = budget.begin(new()).await;
        large.use_bytes(left * MIB).await.unwrap();
        let small = budget.begin(new()).await;
        assert_eq!(
            began.elapsed(),
            Duration::ZERO,
            "{clusters} clusters with {lists} lists"
        );
        drop((large, small));
    }
}

/// A small list of a cluster whose large one waits for others.
#[tokio::test(start_paused = true)]
async fn a_list_that_waits_to_grow_keeps_no_other_of_its_cluster_waiting() {
    let budget = budget(256, 512);
    let (cluster, mut held) = (new(), budget.begin(new()).await);
    held.use_bytes(256 * MIB).await.unwrap();
    let mut large = Box::pin(budget.begin_with(cluster.clone(), 256 * MIB));
    assert!((&mut large).now_or_never().is_none());
    drop(budget.begin(cluster).now_or_never().unwrap());
    drop(held);
    drop(large.await);
    assert_eq!(free(&budget), 512 * MIB);
}

#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    BeginAgain(usize),
    Use(usize, usize),
    /// Waits for so many milliseconds, and holds what is not in use for the second number.
    Hold(usize, u64, u64),
    Drop(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let list = 0..4_usize;
    prop_oneof![
        (0..10 * MIB).prop_map(Step::Begin),
        list.clone().prop_map(Step::BeginAgain),
        (list.clone(), 0..10 * MIB).prop_map(|(list, used)| Step::Use(list, used)),
        (list.clone(), 0..3_u64, 0..3_u64).prop_map(|(list, wait, limit)| Step::Hold(list, wait, limit)),
        list.prop_map(Step::Drop),
    ]
}

proptest! {
    /// Whatever lists do, in any order, and wherever they are cancelled.
    #[test]
    fn no_byte_is_lost_and_none_in_use_is_taken_away(steps in prop::collection::vec((step(), any::<bool>()), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let budget = budget(8, 12);
        let mut lists: Vec<Reservation> = Vec::new();
        let clusters = [new(), new()];
        for (step, cancel) in steps {
            // Cancelled where it waits first.
            let limit = if cancel { Duration::ZERO } else { Duration::from_secs(20) };
            runtime.block_on(async {
                let used = lists.iter().map(|list| list.used.min(list.held)).collect::<Vec<_>>();
                match step {
                    Step::Begin(bytes) => {
                        let cluster = clusters[bytes % 2].clone();
                        lists.extend(timeout(limit, budget.begin_with(cluster, bytes)).await.ok());
                    }
                    Step::BeginAgain(at) => if let Some(list) = lists.get_mut(at) {
                        _ = timeout(limit, list.begin_again()).await;
                    },
                    Step::Use(at, bytes) => if let Some(list) = lists.get_mut(at) {
                        let used = timeout(limit, list.use_bytes(bytes)).await;
                        assert_eq!(list.used, bytes);
                        assert!(list.held >= bytes || !matches!(used, Ok(Ok(()))));
                        return;
                    },
                    Step::Hold(at, wait, hold) => if let Some(list) = lists.get_mut(at) {
                        let work = tokio::time::sleep(Duration::from_millis(wait));
                        _ = timeout(limit, list.hold_at_most(Duration::from_millis(hold), work)).await;
                    },
                    Step::Drop(at) => if at < lists.len() {
                        drop(lists.remove(at));
                        return;
                    },
                }
                for (list, used) in lists.iter().zip(used) {
                    assert!(list.held >= used, "bytes in use were taken away");
                }
            });
            let held: usize = lists.iter().map(|list| list.held).sum();
            let grown: usize = lists.iter().map(|list| list.grown).sum();
            prop_assert_eq!(free(&budget) + held, 12 * MIB);
            prop_assert_eq!(*budget.growth.lock() + grown, 9 * MIB);
            for list in &lists {
                prop_assert!(list.held <= 6 * MIB && list.kept <= list.held && list.held <= list.claimed);
                prop_assert!(list.held.saturating_sub(budget.first) <= list.grown);
                let of_cluster = lists.iter().filter(|other| Arc::ptr_eq(&other.share, &list.share));
                let (claimed, grown) = of_cluster.fold((0, 0), |(claimed, grown), list| (claimed + list.claimed, grown + list.grown));
                prop_assert_eq!(list.share.free.available_permits() + claimed, 6 * MIB);
                prop_assert_eq!(*list.share.grown.lock(), grown);
            }
        }
        lists.clear();
        prop_assert_eq!((free(&budget), *budget.growth.lock()), (12 * MIB, 9 * MIB));
    }
}
