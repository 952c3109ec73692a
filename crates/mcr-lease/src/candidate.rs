//! The settings of a candidate.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Duration,
};

use crate::{clock, decision::Durations, election::Election};

/// Why the settings of a candidate are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("leader election: {field} {problem}")]
#[non_exhaustive]
pub struct InvalidCandidate {
    /// The setting, by the name of its method.
    pub field: &'static str,
    /// The reason, and what is valid.
    pub problem: String,
}

/// A candidate for a Lease.
///
/// All candidates of a Lease should have equal durations. A candidate waits for the longest duration that it has read
/// in the Lease, but not more than an hour. That holds even after the Lease was deleted, or somebody has written a
/// shorter duration. A candidate can't wait for a duration that it has never read.
///
/// ```no_run
/// use mcr_lease::Candidate;
/// use tokio_util::sync::CancellationToken;
///
/// # async fn example(client: kube::Client) -> Result<(), mcr_lease::InvalidCandidate> {
/// let election = Candidate::new("my-controller").namespace("my-namespace").build()?;
/// let leadership = election.leadership();
/// let stop = CancellationToken::new();
/// let running = tokio::spawn(election.run(client, stop.clone()));
///
/// let term = leadership.acquired().await;
/// while term.is_held() {
///     // ... a piece of work ...
/// }
/// // Stop the work first, and then release the Lease.
/// stop.cancel();
/// let _ = running.await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a candidate does nothing until it is built and its election is run"]
pub struct Candidate {
    name: String,
    namespace: Option<String>,
    identity: Option<String>,
    durations: Durations,
}

impl Candidate {
    /// A candidate for the Lease of this name, with the durations of client-go: the lease lasts 15 s, its holder stops
    /// 10 s after its last successful renewal, and it renews every 2 s.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: None,
            identity: None,
            durations: Durations {
                lease: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
            },
        }
    }

    /// Sets the namespace of the Lease. Default: the default namespace of the client. In a Pod, that is the namespace
    /// of the Pod.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the first part of the name under which this process holds the Lease. Default: the environment variable
    /// `POD_NAME` or `HOSTNAME`, which is the name of the Pod.
    ///
    /// A random part follows, so that two processes never have the same identity.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = Some(identity.into());
        self
    }

    /// Sets how long other candidates wait after a renewal before they take the Lease. Default 15 seconds. The Lease
    /// stores whole seconds, so others round the duration up.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.durations.lease = duration;
        self
    }

    /// Sets how long this process leads after it has sent its last successful renewal. Must be shorter than the lease
    /// duration. Default 10 seconds.
    ///
    /// Running work must end in the time between this deadline and the end of the lease duration. That time also
    /// compensates for clocks that run at different rates.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.durations.renew_deadline = deadline;
        self
    }

    /// Sets the time between renewals, and between attempts to take the Lease. Default 2 seconds.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.durations.retry_period = period;
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// [`InvalidCandidate`] names the first setting that is not valid.
    pub fn validate(&self) -> Result<(), InvalidCandidate> {
        let invalid = |field, problem: String| Err(InvalidCandidate { field, problem });
        let Durations {
            lease,
            renew_deadline,
            retry_period,
        } = self.durations;
        if !is_name(&self.name, 253, true) {
            return invalid("name", not_a_name(&self.name));
        }
        if let Some(namespace) = self.namespace.as_deref().filter(|name| !is_name(name, 63, false)) {
            return invalid("namespace", not_a_name(namespace));
        }
        if self
            .identity
            .as_deref()
            .is_some_and(|identity| identity.trim().is_empty())
        {
            return invalid(
                "identity",
                "is empty. Leave it out to use the name of the Pod".to_owned(),
            );
        }
        if retry_period.is_zero() {
            return invalid(
                "retry_period",
                "is zero. Set it to 2 seconds, for example".to_owned(),
            );
        }
        // After a failed renewal there must be time for another one.
        if renew_deadline < retry_period * 2 {
            return invalid(
                "renew_deadline",
                format!(
                    "is {renew_deadline:?}, which is shorter than two retry periods of {retry_period:?}. Set it to five retry periods, for example"
                ),
            );
        }
        if lease < Duration::from_secs(1) || i32::try_from(lease.as_secs()).is_err() {
            return invalid(
                "lease_duration",
                format!("is {lease:?}. A Lease lasts at least 1 second and at most 68 years"),
            );
        }
        if lease <= renew_deadline {
            return invalid(
                "lease_duration",
                format!(
                    "is {lease:?}, which is not longer than the renew deadline of {renew_deadline:?}. Set it to one and a half times the renew deadline, for example"
                ),
            );
        }
        Ok(())
    }

    /// Checks the settings and makes the election.
    ///
    /// # Errors
    /// As [`validate`](Self::validate).
    pub fn build(self) -> Result<Election, InvalidCandidate> {
        self.validate()?;
        let identity = unique(&self.identity.unwrap_or_else(host));
        Ok(Election::new(self.namespace, self.name, identity, self.durations))
    }
}

fn is_name(name: &str, most: usize, dots: bool) -> bool {
    let edge = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let valid = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-') || (dots && letter == '.');
    name.len() <= most && name.chars().all(valid) && edge(name.chars().next()) && edge(name.chars().last())
}

fn not_a_name(name: &str) -> String {
    format!("is {name:?}, which is not a name in Kubernetes. Use lower-case letters, digits and '-'")
}

/// The name of the Pod or of this machine.
fn host() -> String {
    let variable = |name| {
        std::env::var(name)
            .ok()
            .filter(|value: &String| !value.trim().is_empty())
    };
    let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = variable("POD_NAME")
        .or_else(|| variable("HOSTNAME"))
        .or_else(machine);
    name.map_or_else(|| "candidate".to_owned(), |name| name.trim().to_owned())
}

/// Appends a random part that no other process has.
fn unique(identity: &str) -> String {
    // The keys of the hasher are random, and differ between calls.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u128(clock::now().as_nanos());
    format!("{identity}_{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_could_not_work_are_refused_with_the_name_of_the_field() {
        let second = Duration::from_secs(1);
        let lease = || Candidate::new("a");
        let refused = [
            (Candidate::new(""), "name", "not a name"),
            (Candidate::new("My_Lease"), "name", "My_Lease"),
            (lease().namespace("a.b"), "namespace", "a.b"),
            (lease().identity(" "), "identity", "name of the Pod"),
            (lease().retry_period(Duration::ZERO), "retry_period", "zero"),
            (
                lease().retry_period(second * 6),
                "renew_deadline",
                "two retry periods",
            ),
            (
                lease().lease_duration(second * 10),
                "lease_duration",
                "not longer",
            ),
            (
                lease().lease_duration(Duration::ZERO),
                "lease_duration",
                "at least 1 second",
            ),
            (lease().lease_duration(Duration::MAX), "lease_duration", "at most"),
        ];
        for (candidate, field, text) in refused {
            let error = candidate.validate().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        let fine = Candidate::new("a.b-1").namespace("ns").identity("pod");
        assert_eq!(fine.validate(), Ok(()));
    }

    #[test]
    fn two_candidates_of_one_identity_differ() {
        assert_ne!(unique("pod"), unique("pod"));
        assert!(unique("pod").starts_with("pod_"));
        assert!(!host().is_empty());
    }
}
