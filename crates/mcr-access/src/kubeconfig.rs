//! The text of a kubeconfig.

use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc};

use crate::trust::Trust;

/// A kubeconfig as text, with the context to use. [`parse`](Self::parse) makes it an [`EndpointAccess`](crate::EndpointAccess).
#[derive(Clone)]
#[non_exhaustive]
pub struct KubeconfigAccess {
    /// The text of the kubeconfig, in YAML or JSON.
    pub yaml: Arc<[u8]>,
    /// How far the kubeconfig is trusted.
    pub trust: Trust,
    /// The name of the context to use. `None`: the current context of the kubeconfig.
    pub context: Option<Arc<str>>,
    /// The folder to which relative paths in the kubeconfig refer. `None`: the working directory of this process.
    pub base_dir: Option<PathBuf>,
}

impl KubeconfigAccess {
    /// Access by the current context of a kubeconfig.
    pub fn new(yaml: impl AsRef<[u8]>, trust: Trust) -> Self {
        Self {
            yaml: Arc::from(yaml.as_ref()),
            trust,
            context: None,
            base_dir: None,
        }
    }

    /// Sets the context to use.
    #[must_use]
    pub fn context(mut self, context: impl Into<Arc<str>>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the folder to which relative paths in the kubeconfig refer.
    #[must_use]
    pub fn base_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(dir.into());
        self
    }

    /// Resolves a path in the kubeconfig against its folder.
    pub(crate) fn absolute(&self, path: &str) -> PathBuf {
        match &self.base_dir {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }
}

impl fmt::Debug for KubeconfigAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeconfigAccess")
            .field("bytes", &self.yaml.len())
            .field("trust", &self.trust)
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}

/// Returns the IP address in the URL of a server, without its zone. `None` if the URL has a host name.
pub fn literal_ip(server: &http::Uri) -> Option<IpAddr> {
    let (address, _) = split_zone(server.host()?);
    address.parse().ok()
}

/// What is wrong with a server whose host is a number.
pub(crate) const NUMBER: &str =
    "has a number as its host; write the IP address as four numbers with dots, or a name";

/// Whether the host is a number and no IP address. Some resolvers and proxies take 2130706433, 0x7f000001 or 127.1 for an address; no
/// certificate has such a name.
pub(crate) fn is_number(server: &http::Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    let digits = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits || hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    number && literal_ip(server).is_none()
}

/// Splits the host of a URL into the host without brackets and the zone of an IPv6 address: the interface of `[fe80::1%25eth0]`,
/// as RFC 6874 writes it, and of `[fe80::1%eth0]`.
pub fn split_zone(host: &str) -> (&str, Option<&str>) {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.split_once('%') {
        Some((address, zone)) if address.contains(':') => {
            let escaped = zone.strip_prefix("25").filter(|zone| !zone.is_empty());
            (address, Some(escaped.unwrap_or(zone)))
        }
        _ => (host, None),
    }
}
