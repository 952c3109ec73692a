//! Takes requests from the queue and runs the reconciler on each.
//!
//! Most reconciles find nothing to do and never wait. So a dispatcher polls each once itself, and only one that waits is
//! given a task of its own. Such a poll may keep its thread, and not only for moments: there is always another dispatcher
//! that can take over, on another thread.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use mcr_core::{ClusterName, ObjectKey};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::mpsc,
    task::{coop, yield_now},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    engine::Engine,
    habit::Habit,
    run::{Job, Over, Run},
};
use crate::queue::{FairQueue, Outcome};

/// How long a dispatcher works before other tasks of its thread have their turn, and on how much.
const TURN: Duration = Duration::from_micros(250);
const TURN_RUNS: usize = 64;

/// A reconcile that keeps its thread for so long is better off in a task.
const LONG: Duration = Duration::from_millis(5);

/// More dispatchers than these don't wait for work.
const SPARE: usize = 3;

/// Dispatches until the queue is closed.
pub(crate) async fn dispatch(engine: Arc<Engine>) {
    let (hire, mut hired) = mpsc::unbounded_channel();
    let crew = Arc::new(Crew::new(
        matches!(Handle::current().runtime_flavor(), RuntimeFlavor::CurrentThread),
        hire,
    ));
    crew.hire(&engine);
    let mut dispatchers = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(dispatcher) = hired.recv() => dispatchers.push(dispatcher),
            Some(ended) = dispatchers.next() => match ended {
                Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
                // Whoever was hired by it is in the channel by now.
                _ if dispatchers.is_empty() && hired.is_empty() => return,
                _ => {}
            }
        }
    }
}

type Dispatcher = AbortOnDropHandle<()>;

/// How the dispatchers of a controller stand in for each other.
struct Crew {
    /// There is one thread: while a reconcile keeps it, nobody could take over.
    alone: bool,
    /// How many wait for work.
    waiting: AtomicUsize,
    /// How many wait for a thread.
    coming: AtomicUsize,
    /// Where dispatchers are kept. They are made by those who need them: whoever keeps them may be stuck behind a reconcile.
    hired: mpsc::UnboundedSender<Dispatcher>,
}

impl Crew {
    fn new(alone: bool, hired: mpsc::UnboundedSender<Dispatcher>) -> Self {
        Self {
            alone,
            waiting: AtomicUsize::new(0),
            coming: AtomicUsize::new(0),
            hired,
        }
    }

    fn hire(self: &Arc<Self>, engine: &Arc<Engine>) {
        let dispatcher: BoxFuture<'static, ()> = Box::pin(work(engine.clone(), self.clone()));
        // Nobody keeps it any more if the controller is gone, which ends it.
        let _ = self.hired.send(AbortOnDropHandle::new(tokio::spawn(dispatcher)));
    }

    /// Whether nobody but the caller would see to what is in the queue: it is about to poll a reconcile.
    fn needs_another(&self, more: bool) -> bool {
        let waiting = self.waiting.load(Ordering::SeqCst);
        !self.alone && self.coming.load(Ordering::SeqCst) == 0 && (more || waiting == 0)
    }

    /// What to work on next, and whether there is more. None when the queue is closed, and when there is nothing to do for
    /// one more than those who wait.
    async fn next(&self, queue: &FairQueue<ClusterName, ObjectKey>) -> Option<(Job, bool)> {
        if self.waiting.load(Ordering::SeqCst) >= SPARE {
            let work = queue.exchange(None, true, Instant::now())?;
            return Some((work, queue.nudge()));
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let next = queue.next_of_several().await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        next
    }

    /// Lets those come first that were woken on this thread, where nobody could wake them while a reconcile keeps it. The
    /// caller itself is put where other threads find it. If that was `in_vain`, whoever was woken is stuck behind a
    /// dispatcher that works: one more that works here is worth more than to wait for them.
    async fn pass(&self, in_vain: bool, hire: impl FnOnce()) {
        if in_vain || self.waiting.load(Ordering::SeqCst) == 0 {
            hire();
        }
        let mut passed = false;
        let pass = std::future::poll_fn(|context| {
            if std::mem::replace(&mut passed, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        self.come(pass).await;
    }

    async fn come(&self, moment: impl Future<Output = ()>) {
        self.coming.fetch_add(1, Ordering::SeqCst);
        moment.await;
        self.coming.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A dispatcher.
async fn work(engine: Arc<Engine>, crew: Arc<Crew>) {
    let queue = &engine.core.queue;
    let mut habit = Habit::default();
    loop {
        let Some((work, mut more)) = crew.next(queue).await else {
            return;
        };
        // What is polled here is work as well, and waited for like that.
        let at_work = engine.core.tracker.token();
        let first = Run::begin(&engine, work, Instant::now());
        let mut passed = false;
        while crew.needs_another(more) {
            crew.pass(passed, || crew.hire(&engine)).await;
            more = queue.nudge();
            passed = true;
        }
        let more = turn(&engine, &mut habit, first);
        drop(at_work);
        if more {
            crew.come(yield_now()).await;
        }
    }
}

/// Works for a while, from the first on; whether there may be more to do.
fn turn(engine: &Arc<Engine>, habit: &mut Habit, first: Result<Run, Job>) -> bool {
    let queue = &engine.core.queue;
    let turn = Instant::now();
    let (mut began, mut next) = (turn, Some(first));
    let mut runs = 0;
    while let Some(run) = next {
        let over = match run {
            Ok(run) => step(run, habit, began),
            Err(work) => Some(Over {
                work,
                outcome: Outcome::Drop,
                at: began,
            }),
        };
        let now = over.as_ref().map_or_else(Instant::now, |over| over.at);
        runs += 1;
        let last = runs >= TURN_RUNS || now - turn >= TURN || !coop::has_budget_remaining();
        let done = over.as_ref().map(|over| (&over.work, over.outcome));
        let work = queue.exchange(done, !last, now);
        if last {
            return true;
        }
        next = work.map(|work| Run::begin(engine, work, now));
        began = now;
    }
    false
}

/// Takes a run as far as it gets; what comes of it if that is to its end.
fn step(run: Run, habit: &mut Habit, began: Instant) -> Option<Over> {
    let waits = habit.waits();
    // What it holds is the user's: dropping that may panic as well.
    let over = catch_unwind(AssertUnwindSafe(|| {
        if waits {
            run.in_task();
            return None;
        }
        run.here()
    }))
    .unwrap_or_default();
    if !waits {
        habit.saw(over.as_ref().is_some_and(|over| over.at - began < LONG));
    }
    over
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn who_passed_in_vain_hires_one_more() {
        let crew = Crew::new(false, mpsc::unbounded_channel().0);
        let hired = Cell::new(0);
        let hire = || hired.set(hired.get() + 1);
        crew.pass(false, hire).await;
        assert_eq!(hired.get(), 1, "nobody waits");
        crew.waiting.store(1, Ordering::SeqCst);
        crew.pass(false, hire).await;
        assert_eq!(hired.get(), 1, "one waits, and is about to come");
        crew.pass(true, hire).await;
        assert_eq!(hired.get(), 2, "it does not come");
        assert_eq!(crew.coming.load(Ordering::SeqCst), 0);
    }
}
