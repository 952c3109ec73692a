//! The async queue, in paused time.

use mcr::queue::{FairQueue, Outcome, Priority, QueueConfig, Work};
use std::{pin::Pin, task::Poll, time::Duration};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

type Queue = FairQueue<&'static str, u32>;
use Priority::Live;

const OK: Outcome = Outcome::Success { requeue_after: None };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue(config: QueueConfig) -> Queue {
    let queue = Queue::new(config.seed(1));
    queue.engage("a", 1);
    queue
}

/// A task that waits for the next item.
fn waiter(queue: &Queue) -> JoinHandle<Option<Work<&'static str, u32>>> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.next().await })
}

async fn nothing_within(queue: &Queue, time: Duration) {
    assert!(timeout(time, queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn next_wakes_for_a_delayed_item_on_time() {
    let q = queue(QueueConfig::default());
    let start = Instant::now();
    q.add_after(&"a", 1, Live, ms(300));
    q.add_after(&"a", 2, Live, ms(100));
    assert_eq!(q.next().await.unwrap().key, 2);
    assert_eq!(start.elapsed().as_millis() / 2, 50);
    assert_eq!(q.next().await.unwrap().key, 1);
    assert_eq!(start.elapsed().as_millis() / 2, 150);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_notices_a_deadline_that_comes_earlier() {
    let q = queue(QueueConfig::default());
    q.add_after(&"a", 1, Live, Duration::from_secs(60));
    let start = Instant::now();
    let waiter = waiter(&q);
    tokio::time::sleep(ms(10)).await;
    q.add_after(&"a", 2, Live, ms(20));
    assert_eq!(waiter.await.unwrap().unwrap().key, 2);
    assert!(start.elapsed() < ms(40));
}

#[tokio::test(start_paused = true)]
async fn cancelling_next_loses_nothing() {
    let q = queue(QueueConfig::default());
    for _ in 0..20 {
        nothing_within(&q, ms(1)).await;
    }
    // The first waiter is woken, and dropped before it polls again.
    let mut woken = Box::pin(q.next());
    assert!(poll_once(woken.as_mut()).await.is_none());
    q.add(&"a", 1, Live);
    drop(woken);
    assert_eq!(timeout(ms(1), q.next()).await.unwrap().unwrap().key, 1);
}

#[tokio::test(start_paused = true)]
async fn the_wake_of_a_cancelled_waiter_goes_to_another() {
    let q = queue(QueueConfig::default());
    let mut first = Box::pin(q.next());
    assert!(poll_once(first.as_mut()).await.is_none());
    let second = waiter(&q);
    tokio::task::yield_now().await;
    q.add(&"a", 1, Live);
    drop(first);
    assert_eq!(timeout(ms(1), second).await.unwrap().unwrap().unwrap().key, 1);
}

#[tokio::test(start_paused = true)]
async fn every_waiter_keeps_the_earliest_deadline() {
    let q = queue(QueueConfig::default());
    q.add_after(&"a", 1, Live, Duration::from_secs(60));
    let mut first = Box::pin(q.next());
    assert!(poll_once(first.as_mut()).await.is_none());
    let second = waiter(&q);
    tokio::task::yield_now().await;
    q.add_after(&"a", 2, Live, ms(20));
    assert!(poll_once(first.as_mut()).await.is_none());
    drop(first);
    assert_eq!(timeout(ms(30), second).await.unwrap().unwrap().unwrap().key, 2);
}

#[tokio::test(start_paused = true)]
async fn many_waiters_share_what_becomes_ready_together() {
    let q = queue(QueueConfig::default());
    let waiters: Vec<_> = (0..10).map(|_| waiter(&q)).collect();
    tokio::task::yield_now().await;
    q.park(&"a");
    (0..10).for_each(|key| assert!(q.add(&"a", key, Live)));
    tokio::time::sleep(ms(5)).await;
    q.unpark(&"a", ms(10));
    let mut keys = Vec::new();
    for waiter in waiters {
        keys.push(timeout(ms(20), waiter).await.unwrap().unwrap().unwrap().key);
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn one_change_that_readies_many_items_wakes_as_many_waiters() {
    let q = queue(QueueConfig::default().start_gated(true));
    (0..10).for_each(|key| assert!(q.add(&"a", key, Live)));
    let waiters: Vec<_> = (0..10).map(|_| waiter(&q)).collect();
    tokio::task::yield_now().await;
    q.set_gate(&"a", true);
    for waiter in waiters {
        timeout(ms(1), waiter).await.unwrap().unwrap();
    }
    assert!(q.is_empty());
}

#[tokio::test(start_paused = true)]
async fn next_waits_at_the_limit_until_a_run_is_done() {
    let q = queue(QueueConfig::default().concurrency(1));
    q.add(&"a", 1, Live);
    q.add(&"a", 2, Live);
    q.add_after(&"a", 3, Live, ms(5));
    let work = q.next().await.unwrap();
    nothing_within(&q, ms(100)).await;
    let waiter = waiter(&q);
    tokio::task::yield_now().await;
    q.done(&work, OK);
    assert_eq!(timeout(ms(1), waiter).await.unwrap().unwrap().unwrap().key, 2);
}

#[tokio::test(start_paused = true)]
async fn close_drains_the_waiters() {
    let q = queue(QueueConfig::default());
    q.add(&"a", 1, Live);
    let running = q.next().await.unwrap();
    let waiters: Vec<_> = (0..5).map(|_| waiter(&q)).collect();
    tokio::task::yield_now().await;
    q.close();
    for waiter in waiters {
        assert_eq!(timeout(ms(1), waiter).await.unwrap().unwrap(), None);
    }
    assert!(!q.add(&"a", 2, Live));
    assert!(q.done(&running, OK), "runs are still accounted for");
    assert_eq!(q.next().await, None);
    assert!(q.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_run_each_item_exactly_once_under_cancellation() {
    let q: FairQueue<u32, u32> = FairQueue::new(QueueConfig::default().concurrency(8).cluster_concurrency(2));
    (0..10).for_each(|cluster| assert_eq!(q.engage(cluster, 1), 0));
    let workers: Vec<_> = (0..8)
        .map(|worker| {
            let q = q.clone();
            tokio::spawn(async move {
                let mut ran = 0;
                loop {
                    // Drops the future and calls `next` again, over and over.
                    match timeout(Duration::from_micros(50 * (worker + 1)), q.next()).await {
                        Ok(Some(work)) => {
                            tokio::task::yield_now().await;
                            assert!(q.done(&work, OK));
                            ran += 1;
                        }
                        Ok(None) => return ran,
                        Err(_) => {}
                    }
                }
            })
        })
        .collect();
    for item in 0..5000u32 {
        let delay = Duration::from_micros(u64::from(item % 7) * 100);
        assert!(q.add_after(&(item % 10), item, Live, delay));
        if item % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while (!q.is_empty() || q.running() > 0) && Instant::now() < deadline {
        tokio::time::sleep(ms(2)).await;
    }
    q.close();
    let mut ran = 0;
    for worker in workers {
        ran += worker.await.unwrap();
    }
    assert_eq!(ran, 5000);
}

/// Polls once; `None` if it is not ready.
async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut future).poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_in_an_earlier_epoch_is_refused() {
    let q = queue(QueueConfig::default());
    assert!(q.add_in(&"a", &1, 1, Live, Duration::ZERO));
    q.engage("a", 2);
    assert!(!q.add_in(&"a", &1, 2, Live, Duration::ZERO));
    assert!(q.add_in(&"a", &2, 3, Live, Duration::ZERO));
    assert_eq!(q.next().await.unwrap().key, 3);
    q.disengage(&"a");
    assert!(!q.add_in(&"a", &2, 4, Live, Duration::ZERO));
    assert!(q.is_empty());
}
