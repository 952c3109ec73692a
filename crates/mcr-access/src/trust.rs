//! How far a kubeconfig is trusted.

/// How far a kubeconfig is trusted. This depends on who can write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The operator of this process writes the kubeconfig, for example a file named on the command line. It may name
    /// files to read and programs to run.
    Trusted,
    /// Other people write the kubeconfig, for example in a Secret or a custom resource. It may hold inline data only:
    /// programs, auth providers, files, unverified TLS and proxies are refused unless the
    /// [`AccessPolicy`](crate::AccessPolicy) allows them.
    Untrusted,
}
