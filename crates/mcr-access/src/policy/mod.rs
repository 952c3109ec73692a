//! What an untrusted kubeconfig may do.

mod addresses;
mod plugins;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Component, Path, PathBuf},
    time::Duration,
};

pub use addresses::{AddressPolicy, ForbiddenAddress};
pub use plugins::{AllowedPlugin, CredentialPluginPolicy, PluginRefusal};

use crate::{endpoint::redacted_uri, exec::DEFAULT_DEADLINE};

/// What an [untrusted](crate::Trust::Untrusted) kubeconfig may make this process do. Trusted ones are not restricted.
///
/// The default allows inline data only. It allows no programs, no files, no unverified TLS, no proxies, and no
/// addresses of this machine or of a cloud's metadata service.
///
/// ```
/// use mcr_access::{AccessPolicy, AddressPolicy, CredentialPluginPolicy};
///
/// let policy = AccessPolicy::default()
///     .credential_plugins(CredentialPluginPolicy::allowlist(["/plugins/aws-iam-authenticator"]))
///     .allow_files_under("/var/run/secrets/fleet")
///     .allow_proxy("http://egress.example.com:3128".parse()?)
///     .addresses(AddressPolicy::default().allow_loopback(true));
/// # Ok::<(), http::uri::InvalidUri>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct AccessPolicy {
    /// The exec credential plugins that may run.
    pub(crate) credential_plugins: CredentialPluginPolicy,
    /// The folders whose files a kubeconfig may name instead of inline data. Links inside these folders are followed.
    pub(crate) files: BTreeSet<PathBuf>,
    /// Whether `insecure-skip-tls-verify` is allowed.
    pub(crate) insecure_tls: bool,
    /// The proxies that `proxy-url` may name.
    pub(crate) proxies: Vec<http::Uri>,
    /// The addresses that connections may use.
    pub(crate) addresses: AddressPolicy,
    /// How long an exec credential plugin may run. This also applies to trusted kubeconfigs.
    pub(crate) plugin_deadline: Duration,
}

impl Default for AccessPolicy {
    fn default() -> Self {
        Self {
            credential_plugins: CredentialPluginPolicy::default(),
            files: BTreeSet::new(),
            insecure_tls: false,
            proxies: Vec::new(),
            addresses: AddressPolicy::default(),
            plugin_deadline: DEFAULT_DEADLINE,
        }
    }
}

// Not derived: the URL of a proxy can contain a password.
impl fmt::Debug for AccessPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessPolicy")
            .field("credential_plugins", &self.credential_plugins)
            .field("files", &self.files)
            .field("insecure_tls", &self.insecure_tls)
            .field(
                "proxies",
                &self.proxies.iter().map(redacted_uri).collect::<Vec<_>>(),
            )
            .field("addresses", &self.addresses)
            .field("plugin_deadline", &self.plugin_deadline)
            .finish()
    }
}

impl AccessPolicy {
    /// Sets the exec credential plugins that may run.
    #[must_use]
    pub fn credential_plugins(mut self, policy: CredentialPluginPolicy) -> Self {
        self.credential_plugins = policy;
        self
    }

    /// Allows the files in this folder and its subfolders. The author of a kubeconfig then chooses which of these files
    /// is sent to which server, so the folder should hold nothing else.
    #[must_use]
    pub fn allow_files_under(mut self, folder: impl Into<PathBuf>) -> Self {
        self.files.insert(folder.into());
        self
    }

    /// Sets whether `insecure-skip-tls-verify` is allowed.
    #[must_use]
    pub fn allow_insecure_tls(mut self, allow: bool) -> Self {
        self.insecure_tls = allow;
        self
    }

    /// Allows a proxy. The proxy resolves host names, so [`addresses`](Self::addresses) does not apply to servers with
    /// a host name behind it: the proxy must restrict where it connects to.
    #[must_use]
    pub fn allow_proxy(mut self, proxy: http::Uri) -> Self {
        self.proxies.push(proxy);
        self
    }

    /// Whether untrusted kubeconfigs may use this proxy.
    pub fn allows_proxy(&self, proxy: &http::Uri) -> bool {
        let same = |allowed: &http::Uri| {
            allowed.scheme() == proxy.scheme()
                && allowed.host() == proxy.host()
                && allowed.port_u16() == proxy.port_u16()
        };
        self.proxies.iter().any(same)
    }

    /// Sets the addresses that connections may use.
    #[must_use]
    pub fn addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// Sets how long an exec credential plugin may run. The default is 30 s. This also applies to trusted kubeconfigs.
    #[must_use]
    pub fn plugin_deadline(mut self, deadline: Duration) -> Self {
        self.plugin_deadline = deadline;
        self
    }

    /// The addresses that connections may use.
    pub fn address_policy(&self) -> AddressPolicy {
        self.addresses
    }

    pub(crate) fn allows_file(&self, path: &Path) -> bool {
        let has_no_parent = path.components().all(|part| part != Component::ParentDir);
        path.is_absolute() && has_no_parent && self.files.iter().any(|folder| path.starts_with(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_allowed_by_folder() {
        let policy = AccessPolicy::default().allow_files_under("/fleet");
        assert!(policy.allows_file(Path::new("/fleet/a/token")));
        for path in ["/fleet/../etc/shadow", "/fleets/x", "fleet/x", "/etc/shadow", ""] {
            assert!(!policy.allows_file(Path::new(path)), "{path}");
        }
    }
}
