//! The health of a cluster, between its supervisor and its watches.

use mcr_client::{Link, internal::Observable};

/// A record that the supervisor of a cluster shares with the cluster's watches: they read its link, and count their failures.
#[derive(Debug)]
pub struct Health {
    /// While it is down, the watches send nothing.
    pub link: Link,
    /// How many requests of the watches have failed: without a response, with 401, or with the response of something else
    /// than an API server that knows the user. Each is a reason to probe.
    pub failures: Observable<u64>,
    /// Whether a supervisor probes the cluster when it is silent.
    pub(crate) is_supervised: bool,
}

impl Health {
    /// The record of a cluster with this link.
    pub fn new(link: Link) -> Self {
        Self {
            link,
            failures: Observable::default(),
            is_supervised: true,
        }
    }

    /// The record of a cluster without a supervisor.
    pub(crate) fn unsupervised(link: Link) -> Self {
        Self {
            is_supervised: false,
            ..Self::new(link)
        }
    }

    /// Counts a request that failed.
    pub fn failed(&self) {
        self.failures.change(|failures| *failures += 1);
    }
}
