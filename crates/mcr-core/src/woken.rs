//! What rarely happens is looked at when it has.
//!
//! A task that waits for several things polls all of them whenever one has happened. A watch has an event all the time, and
//! beside it waits for what comes once in its life: its end, another address, newer credentials. Each such look takes locks
//! in memory that nothing else has touched lately, and together they cost more than the event's own way through TLS.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// Knows whether what was polled with its waker has asked to be polled again.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// None before the first look.
    bell: Option<Arc<Bell>>,
    /// Whom the bell wakes.
    task: Option<Waker>,
}

#[derive(Debug)]
struct Bell {
    rung: AtomicBool,
    task: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // First: a task that another waker has replaced meanwhile finds it when it looks after that.
        self.rung.store(true, Ordering::SeqCst);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        task.wake();
    }
}

impl Woken {
    /// The waker to poll with, the first time and whenever one of those before was woken. Until then there is nothing to be
    /// polled for, and the task will be woken.
    pub(crate) fn look(&mut self, context: &Context<'_>) -> Option<Waker> {
        let waker = context.waker();
        let bell = self.bell.get_or_insert_with(|| {
            Arc::new(Bell {
                rung: AtomicBool::new(true),
                task: Mutex::new(waker.clone()),
            })
        });
        if !self.task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            self.task = Some(waker.clone());
            *bell.task.lock().unwrap_or_else(PoisonError::into_inner) = waker.clone();
        }
        // Nearly always not: a look alone leaves the memory to those who share it.
        let rung = bell.rung.load(Ordering::SeqCst) && bell.rung.swap(false, Ordering::SeqCst);
        rung.then(|| bell.clone().into())
    }

    /// Waits for what rarely happens.
    pub(crate) async fn wait<F: Future>(&mut self, mut rare: Pin<&mut F>) -> F::Output {
        poll_fn(|context| match self.look(context) {
            Some(waker) => rare.as_mut().poll(&mut Context::from_waker(&waker)),
            None => Poll::Pending,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::atomic::AtomicUsize};

    use tokio::sync::Notify;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Count {
        fn so_far(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn it_is_polled_once_and_then_when_it_was_woken() {
        let (told, polls) = (Notify::new(), AtomicUsize::new(0));
        let rare = async {
            let mut told = pin!(told.notified());
            poll_fn(|context| {
                polls.fetch_add(1, Ordering::SeqCst);
                told.as_mut().poll(context)
            })
            .await;
        };
        let mut rare = pin!(rare);
        let mut woken = Woken::default();
        let mut wait = pin!(woken.wait(rare.as_mut()));
        let task = Arc::new(Count::default());
        let waker = Waker::from(task.clone());
        for _ in 0..5 {
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!((polls.load(Ordering::SeqCst), task.so_far()), (1, 0));
        told.notify_one();
        assert_eq!(task.so_far(), 1);
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn the_task_that_looked_last_is_woken_each_time() {
        let mut woken = Woken::default();
        let tasks = [Arc::new(Count::default()), Arc::new(Count::default())];
        let mut look = |task: &Arc<Count>| woken.look(&Context::from_waker(&task.clone().into()));
        let waker = look(&tasks[0]).unwrap();
        assert!(look(&tasks[0]).is_none());
        // Another task has it now: not woken, it has nothing to look at.
        assert!(look(&tasks[1]).is_none());
        for times in 1..4 {
            waker.wake_by_ref();
            assert_eq!((tasks[0].so_far(), tasks[1].so_far()), (0, times));
            assert!(look(&tasks[1]).is_some());
            assert!(look(&tasks[1]).is_none());
        }
        waker.wake_by_ref();
        // It was another's to look, who took it over.
        assert!(look(&tasks[0]).is_some());
    }

    #[test]
    fn who_is_woken_while_looking_looks_again() {
        for _ in 0..300 {
            let mut woken = Woken::default();
            let task = Arc::new(Count::default());
            let waker = Waker::from(task.clone());
            let bell = woken.look(&Context::from_waker(&waker)).unwrap();
            let happened = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        happened.fetch_add(1, Ordering::SeqCst);
                        bell.wake_by_ref();
                    }
                });
                let (mut seen, mut wakes) = (0, 0);
                while seen < 20 {
                    // Polled only when woken, as a task is.
                    let now = task.so_far();
                    if now == wakes {
                        std::hint::spin_loop();
                        continue;
                    }
                    wakes = now;
                    if woken.look(&Context::from_waker(&waker)).is_some() {
                        seen = happened.load(Ordering::SeqCst);
                    }
                }
            });
        }
    }
}
