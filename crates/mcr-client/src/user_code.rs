//! Catches panics in user code: credential sources, clients, scope layouts and providers.
//!
//! User code runs on the tasks that manage a cluster or a provider. A panic must not end such a task, because the cluster would
//! then have no task. This module turns the panic into an error.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

/// Names a credential source in an error.
pub const CREDENTIAL_SOURCE: &str = "the cluster's credential source";
/// Names a ready client in an error.
pub const CLIENT: &str = "the client given for the cluster";
/// Names the layer over the requests of a cluster in an error.
pub const TRANSPORT_LAYER: &str = "the transport layer of the program";
/// Names a layer over a provider in an error.
pub const SPEC_LAYER: &str = "a layer of the program";
/// Names the layout of a scope in an error.
pub const LAYOUT: &str = "the scope's layout";
/// Names the discovery of a provider in an error.
pub const DISCOVERY: &str = "the provider's discovery";
/// Names a check of clusters in an error.
pub const READY_CHECK: &str = "the check of the program";
/// Names the credential sources and clients that a provider has announced. Used for the error when they panic while they are
/// dropped.
pub const ANNOUNCED: &str = "the access that a provider announced for a cluster";

/// User code panicked. The error leaves out the message of the panic, since it may hold a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} panicked, which is a fault in its code; what this process has written to its standard error says where"
)]
pub struct Panicked(&'static str);

/// Calls `code`, and returns an error that names `owner` if it panics.
pub fn catch_panic<T>(owner: &'static str, code: impl FnOnce() -> T) -> Result<T, Panicked> {
    // Unwind safe in effect: after a panic the caller drops the values that `code` has changed.
    catch_unwind(AssertUnwindSafe(code)).map_err(|_| Panicked(owner))
}

/// Wraps a future, stream or body that runs user code, and catches its panics.
///
/// The value is dropped after its first panic. A panic of its destructor is caught, too.
pub struct CatchPanic<T> {
    owner: &'static str,
    /// None after a panic.
    value: Option<T>,
}

impl<T> CatchPanic<T> {
    /// Wraps `value`. Errors name `owner`.
    pub fn new(owner: &'static str, value: T) -> Self {
        Self {
            owner,
            value: Some(value),
        }
    }

    /// Calls `code` with the value.
    ///
    /// # Errors
    ///
    /// If `code` panics, and in every call after that.
    pub fn with<R>(&mut self, code: impl FnOnce(&mut T) -> R) -> Result<R, Panicked> {
        let value = self.value.as_mut().ok_or(Panicked(self.owner))?;
        let result = catch_panic(self.owner, || code(value));
        if result.is_err() {
            self.drop_value();
        }
        result
    }

    /// Calls `code` with the value, which it can't change.
    ///
    /// # Errors
    ///
    /// If `code` panics, or the value was dropped after an earlier panic.
    pub fn inspect<R>(&self, code: impl FnOnce(&T) -> R) -> Result<R, Panicked> {
        let value = self.value.as_ref().ok_or(Panicked(self.owner))?;
        catch_panic(self.owner, || code(value))
    }

    fn drop_value(&mut self) {
        let value = self.value.take();
        if let Err(panicked) = catch_panic(self.owner, || drop(value)) {
            tracing::error!(error = %panicked, "user code panicked while it was dropped");
        }
    }
}

impl<T> Drop for CatchPanic<T> {
    fn drop(&mut self) {
        self.drop_value();
    }
}

impl<F: Future + Unpin> Future for CatchPanic<F> {
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

    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("canary of a drop");
        }
    }

    #[test]
    fn the_error_names_who_panicked_and_quotes_nothing() {
        let error = catch_panic("the source of a test", || panic!("canary of a call")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the source of a test panicked, "), "{text}");
        assert!(!text.contains("canary"), "{text}");
        assert_eq!(catch_panic("the source of a test", || 1), Ok(1));
    }

    #[tokio::test]
    async fn a_future_that_panics_is_not_polled_again() {
        let future = Box::pin(async { panic!("canary of a future") });
        let mut future = CatchPanic::new("a future", future);
        assert_eq!((&mut future).await, Err::<(), _>(Panicked("a future")));
        assert_eq!((&mut future).await, Err(Panicked("a future")));
        assert_eq!(CatchPanic::new("a future", Box::pin(async { 1 })).await, Ok(1));
    }

    #[test]
    fn what_panics_when_it_is_dropped_takes_nobody_along() {
        let mut value = CatchPanic::new("a test value", PanicsInDrop);
        assert_eq!(value.inspect(|_| 1), Ok(1));
        assert_eq!(value.with(|_| 2), Ok(2));
        drop(value);
        // After the first panic the value is dropped, which panics again.
        let mut value = CatchPanic::new("a test value", PanicsInDrop);
        assert!(value.with(|_| panic!("canary of a use")).is_err());
        assert_eq!(value.inspect(|_| ()), Err(Panicked("a test value")));
    }
}
