//! How far a kubeconfig is trusted.

/// Who wrote a kubeconfig, and so what it may make this process do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Written by whoever runs this process (a file named on its command line): it may name files to read
    /// and programs to execute.
    Trusted,
    /// Written by someone who can only write a Secret or a custom resource: inline data only. Programs,
    /// auth providers, file paths, unverified TLS and proxies are refused unless the
    /// [`AccessPolicy`](crate::AccessPolicy) allows them.
    Untrusted,
}
