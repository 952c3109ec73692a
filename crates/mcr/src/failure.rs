//! Errors and panics of reconcilers and other functions that were given to the controller.

use std::error::Error;

use mcr_core::ClusterNotFound;

/// An error, as the engine needs it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The error and its causes.
    pub(crate) text: String,
    /// The name of the cluster, if `ClusterNotFound` is among the causes.
    pub(crate) cluster_not_found: Option<String>,
}

impl Failure {
    pub(crate) fn of(error: &(dyn Error + 'static)) -> Self {
        let mut text = error.to_string();
        let mut cluster_not_found = None;
        let mut next = Some(error);
        while let Some(error) = next {
            let cause = error.to_string();
            // Many errors contain the text of their cause.
            if !text.contains(&cause) {
                text.push_str(": ");
                text.push_str(&cause);
            }
            if let Some(found) = error.downcast_ref::<ClusterNotFound>() {
                cluster_not_found.get_or_insert_with(|| found.name.clone());
            }
            next = error.source();
        }
        Self {
            text,
            cluster_not_found,
        }
    }
}

/// The message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "a panic without a message"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("can't copy")]
    struct Wrapped(#[source] Box<dyn Error + Send + Sync>);

    #[test]
    fn causes_are_told_once_and_searched() {
        let not_found = ClusterNotFoundLike;
        let failure = Failure::of(&Wrapped(Box::new(not_found)));
        assert_eq!(failure.text, "can't copy: gone");
        assert_eq!(failure.cluster_not_found, None);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("gone")]
    struct ClusterNotFoundLike;

    #[tokio::test]
    async fn a_cluster_that_was_not_found_is_found_in_the_causes() {
        let fleet = mcr_core::Fleet::builder().build();
        let not_found = fleet.get("prod").unwrap_err();
        for error in [
            Box::new(Wrapped(Box::new(not_found.clone()))) as Box<dyn Error + Send + Sync>,
            anyhow::Error::from(not_found).context("can't copy").into(),
        ] {
            let failure = Failure::of(error.as_ref());
            assert_eq!(failure.cluster_not_found.as_deref(), Some("prod"));
            assert_eq!(failure.text, "can't copy: cluster prod not found");
        }
    }
}
