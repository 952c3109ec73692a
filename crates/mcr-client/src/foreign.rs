//! Code of users that the fleet calls: sources of credentials, clients, layouts of scopes, providers.
//!
//! It runs on tasks that look after a cluster or a provider. A panic in it must not end such a task, or nobody would look
//! after that cluster any more, so a panic is turned into an error here.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

/// Names a source of credentials in an error.
pub const SOURCE: &str = "the cluster's credential source";
/// Names a client.
pub const CLIENT: &str = "the client given for the cluster";
/// Names the layout of a scope.
pub const LAYOUT: &str = "the scope's layout";
/// Names the discovery of a provider.
pub const DISCOVERY: &str = "the provider's discovery";
/// Names credentials and clients that a provider has announced, when they are dropped.
pub const DISCOVERED: &str = "what a provider gave for a cluster";

/// Code of a user panicked. The message of the panic is left out, since it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} panicked, which is a fault in its code; what this process has written to its standard error says where"
)]
pub struct Panicked(&'static str);

/// Calls code of a user. `whose` names it in the error.
pub fn call<T>(whose: &'static str, code: impl FnOnce() -> T) -> Result<T, Panicked> {
    // After a panic the caller gives up whatever the code was at work on.
    catch_unwind(AssertUnwindSafe(code)).map_err(|_| Panicked(whose))
}

/// A future, a stream or a body of a user. It is dropped after it has panicked, and a panic when it is dropped is caught,
/// too.
pub struct Foreign<T> {
    whose: &'static str,
    /// None once it has panicked.
    made: Option<T>,
}

impl<T> Foreign<T> {
    /// `whose` names it in errors.
    pub fn new(whose: &'static str, made: T) -> Self {
        Self {
            whose,
            made: Some(made),
        }
    }

    /// Uses it. Every use after a panic is an error at once.
    pub fn with<R>(&mut self, code: impl FnOnce(&mut T) -> R) -> Result<R, Panicked> {
        let made = self.made.as_mut().ok_or(Panicked(self.whose))?;
        let result = call(self.whose, || code(made));
        if result.is_err() {
            self.let_go();
        }
        result
    }

    /// Looks at it.
    pub fn look<R>(&self, code: impl FnOnce(&T) -> R) -> Result<R, Panicked> {
        let made = self.made.as_ref().ok_or(Panicked(self.whose))?;
        call(self.whose, || code(made))
    }

    fn let_go(&mut self) {
        let made = self.made.take();
        if let Err(panicked) = call(self.whose, || drop(made)) {
            tracing::error!(error = %panicked, "code of a user panicked when it was dropped");
        }
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl<F: Future + Unpin> Future for Foreign<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.with(|future| Pin::new(future).poll(context)) {
            Ok(polled) => polled.map(Ok),
            Err(panicked) => Poll::Ready(Err(panicked)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sore;

    impl Drop for Sore {
        fn drop(&mut self) {
            panic!("canary of a drop");
        }
    }

    #[test]
    fn the_error_names_who_panicked_and_quotes_nothing() {
        let error = call("the source of a test", || panic!("canary of a call")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the source of a test panicked, "), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(call("the source of a test", || 1), Ok(1));
    }

    #[tokio::test]
    async fn a_future_that_panics_is_not_polled_again() {
        let future = Box::pin(async { panic!("canary of a future") });
        let mut future = Foreign::new("a future", future);
        assert_eq!((&mut future).await, Err::<(), _>(Panicked("a future")));
        assert_eq!((&mut future).await, Err(Panicked("a future")));
        assert_eq!(Foreign::new("a future", Box::pin(async { 1 })).await, Ok(1));
    }

    #[test]
    fn what_panics_when_it_is_dropped_takes_nobody_along() {
        let mut sore = Foreign::new("a sore one", Sore);
        assert_eq!(sore.look(|_| 1), Ok(1));
        assert_eq!(sore.with(|_| 2), Ok(2));
        drop(sore);
        // The second panic comes when it is let go of after the first.
        let mut sore = Foreign::new("a sore one", Sore);
        assert!(sore.with(|_| panic!("canary of a use")).is_err());
        assert_eq!(sore.look(|_| ()), Err(Panicked("a sore one")));
    }
}
