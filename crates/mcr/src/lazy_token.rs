//! The token of a request. It is made at its first use, because most reconcilers never use it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering, fence},
};

use tokio_util::sync::CancellationToken;

/// A child token that is made at the first use. Clones share the token.
#[derive(Clone)]
pub(crate) struct LazyToken(Arc<LazyTokenState>);

struct LazyTokenState {
    parent: Arc<CancellationToken>,
    own: OnceLock<CancellationToken>,
    cancelled: AtomicBool,
}

impl LazyToken {
    pub(crate) fn new(parent: Arc<CancellationToken>) -> Self {
        Self(Arc::new(LazyTokenState {
            parent,
            own: OnceLock::new(),
            cancelled: AtomicBool::new(false),
        }))
    }

    pub(crate) fn get(&self) -> &CancellationToken {
        let token = self.0.own.get_or_init(|| self.0.parent.child_token());
        // `get` stores the token and then reads the flag; `cancel` sets the flag and then reads the token. With the fences,
        // at least one of them sees the store of the other.
        fence(Ordering::SeqCst);
        if self.0.cancelled.load(Ordering::Relaxed) {
            token.cancel();
        }
        token
    }

    pub(crate) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if let Some(token) = self.0.own.get() {
            token.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_request_is_cancelled_with_its_cluster() {
        let cluster = Arc::new(CancellationToken::new());
        let (asked, not_yet) = (LazyToken::new(cluster.clone()), LazyToken::new(cluster.clone()));
        assert!(!asked.get().is_cancelled());
        cluster.cancel();
        assert!(asked.get().is_cancelled() && not_yet.get().is_cancelled());
    }

    #[test]
    fn a_reconcile_that_ends_is_told_to_those_who_ask_before_and_after_and_to_no_other() {
        let cluster = Arc::new(CancellationToken::new());
        let (lazy, other) = (LazyToken::new(cluster.clone()), LazyToken::new(cluster.clone()));
        let before = lazy.get().clone();
        lazy.cancel();
        assert!(before.is_cancelled() && lazy.get().is_cancelled());
        let late = LazyToken::new(cluster.clone());
        late.cancel();
        assert!(late.get().is_cancelled());
        assert!(!other.get().is_cancelled() && !cluster.is_cancelled());
    }

    #[test]
    fn who_asks_while_a_reconcile_ends_is_told() {
        let cluster = Arc::new(CancellationToken::new());
        for _ in 0..2_000 {
            let lazy = LazyToken::new(cluster.clone());
            let token = std::thread::scope(|scope| {
                let asks = scope.spawn(|| lazy.get().clone());
                lazy.cancel();
                asks.join().unwrap()
            });
            assert!(token.is_cancelled());
        }
    }
}
