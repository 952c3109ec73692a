//! What a kubeconfig that someone else wrote may make this process do.

use std::{
    collections::BTreeSet,
    env, fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Component, Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// What [untrusted](crate::Trust::Untrusted) access may make this process do. Trusted access isn't restricted.
///
/// The default allows inline data only: no programs, no files, no unverified TLS, no proxies, and no addresses
/// of this machine or of a cloud's metadata service.
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
#[non_exhaustive]
pub struct AccessPolicy {
    /// Which exec credential plugins may run.
    pub credential_plugins: CredentialPluginPolicy,
    /// Folders whose files may be named instead of inline data. Links inside of them are followed.
    pub files: BTreeSet<PathBuf>,
    /// Whether `insecure-skip-tls-verify` is honoured.
    pub insecure_tls: bool,
    /// Proxies that may be named by `proxy-url`.
    pub proxies: Vec<http::Uri>,
    /// Which addresses may be connected to.
    pub addresses: AddressPolicy,
    /// How long an exec credential plugin may run, also of trusted access.
    pub plugin_deadline: Duration,
}

impl Default for AccessPolicy {
    fn default() -> Self {
        Self {
            credential_plugins: CredentialPluginPolicy::default(),
            files: BTreeSet::new(),
            insecure_tls: false,
            proxies: Vec::new(),
            addresses: AddressPolicy::default(),
            plugin_deadline: crate::exec::DEADLINE,
        }
    }
}

// An address of a proxy can hold a password.
impl fmt::Debug for AccessPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessPolicy")
            .field("credential_plugins", &self.credential_plugins)
            .field("files", &self.files)
            .field("insecure_tls", &self.insecure_tls)
            .field(
                "proxies",
                &self
                    .proxies
                    .iter()
                    .map(crate::endpoint::plain)
                    .collect::<Vec<_>>(),
            )
            .field("addresses", &self.addresses)
            .field("plugin_deadline", &self.plugin_deadline)
            .finish()
    }
}

impl AccessPolicy {
    /// Sets which exec credential plugins may run.
    #[must_use]
    pub fn credential_plugins(mut self, policy: CredentialPluginPolicy) -> Self {
        self.credential_plugins = policy;
        self
    }

    /// Allows to name files under this folder. Whoever writes kubeconfigs then chooses which of them is sent to
    /// which server, so name a folder that is made for this.
    #[must_use]
    pub fn allow_files_under(mut self, folder: impl Into<PathBuf>) -> Self {
        self.files.insert(folder.into());
        self
    }

    /// Allows `insecure-skip-tls-verify`.
    #[must_use]
    pub fn allow_insecure_tls(mut self, allow: bool) -> Self {
        self.insecure_tls = allow;
        self
    }

    /// Allows a proxy, which then resolves and checks the addresses of servers behind it.
    #[must_use]
    pub fn allow_proxy(mut self, proxy: http::Uri) -> Self {
        self.proxies.push(proxy);
        self
    }

    /// Sets which addresses may be connected to.
    #[must_use]
    pub fn addresses(mut self, addresses: AddressPolicy) -> Self {
        self.addresses = addresses;
        self
    }

    /// Sets how long an exec credential plugin may run; 30 s unless set. Holds for trusted access, too.
    #[must_use]
    pub fn plugin_deadline(mut self, deadline: Duration) -> Self {
        self.plugin_deadline = deadline;
        self
    }

    pub(crate) fn allows_file(&self, path: &Path) -> bool {
        let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
        plain && self.files.iter().any(|folder| path.starts_with(folder))
    }
}

/// Which exec credential plugins untrusted access may run; the words are those of Kubernetes'
/// `credentialPluginPolicy`.
///
/// A plugin that may run takes its arguments and environment from the kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialPluginPolicy {
    /// None.
    #[default]
    DenyAll,
    /// Any. Whoever writes a kubeconfig can then run any program with the rights of this process.
    AllowAll,
    /// These commands: paths, or names that are looked up in `PATH`. A command is allowed if it leads to the
    /// same file as one of them.
    Allowlist(BTreeSet<PathBuf>),
}

impl CredentialPluginPolicy {
    /// Allows these commands.
    pub fn allowlist<P: Into<PathBuf>>(commands: impl IntoIterator<Item = P>) -> Self {
        Self::Allowlist(commands.into_iter().map(Into::into).collect())
    }

    pub(crate) fn allows(&self, command: &Path) -> bool {
        match self {
            Self::DenyAll => false,
            Self::AllowAll => true,
            // A relative path would depend on the folder that this process happens to run in.
            Self::Allowlist(allowed) => {
                (command.is_absolute() || is_bare(command))
                    && (allowed.contains(command)
                        || look_up(command).is_some_and(|file| {
                            allowed
                                .iter()
                                .any(|allowed| look_up(allowed).as_ref() == Some(&file))
                        }))
            }
        }
    }
}

fn is_bare(command: &Path) -> bool {
    command.components().count() == 1 && matches!(command.components().next(), Some(Component::Normal(_)))
}

/// The file that a command leads to.
fn look_up(command: &Path) -> Option<PathBuf> {
    if !is_bare(command) {
        return command
            .is_absolute()
            .then(|| command.canonicalize().ok())
            .flatten();
    }
    env::split_paths(&env::var_os("PATH")?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())?
        .canonicalize()
        .ok()
}

/// Which addresses untrusted access may connect to, checked after names are resolved, so that a name
/// can't lead to an address that would be refused.
///
/// By default loopback, link-local, unspecified and multicast addresses and well-known metadata services are
/// refused; private networks are allowed, since that is where most API servers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AddressPolicy {
    /// Addresses of this machine itself: `127.0.0.0/8`, `::1`.
    pub loopback: bool,
    /// `169.254.0.0/16` and `fe80::/10`, where clouds have their metadata services, and their like elsewhere.
    pub link_local: bool,
    /// `10.0.0.0/8`, `172.16.0.0/12`, `192.168.0.0/16`, `100.64.0.0/10`, `fc00::/7`.
    pub private: bool,
    /// Everything that can't be a single host: unspecified, multicast, broadcast.
    pub odd: bool,
}

impl Default for AddressPolicy {
    fn default() -> Self {
        Self {
            loopback: false,
            link_local: false,
            private: true,
            odd: false,
        }
    }
}

impl AddressPolicy {
    /// Allows every address.
    pub fn any() -> Self {
        Self {
            loopback: true,
            link_local: true,
            private: true,
            odd: true,
        }
    }

    /// Sets whether loopback addresses are allowed.
    #[must_use]
    pub fn allow_loopback(mut self, allow: bool) -> Self {
        self.loopback = allow;
        self
    }

    /// Sets whether link-local addresses and metadata services are allowed.
    #[must_use]
    pub fn allow_link_local(mut self, allow: bool) -> Self {
        self.link_local = allow;
        self
    }

    /// Sets whether private networks are allowed.
    #[must_use]
    pub fn allow_private(mut self, allow: bool) -> Self {
        self.private = allow;
        self
    }

    /// Checks an address.
    ///
    /// # Errors
    /// If the policy does not allow it.
    pub fn check(&self, address: IpAddr) -> Result<(), ForbiddenAddress> {
        let embedded = match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(v6) => embedded_v4(v6),
        };
        let kind = match (embedded, address) {
            (Some(v4), _) => kind_v4(v4),
            (None, IpAddr::V6(v6)) => kind_v6(v6),
            (None, IpAddr::V4(_)) => Kind::Odd,
        };
        let (allowed, kind) = match kind {
            Kind::Public => (true, "public"),
            Kind::Private => (self.private, "private"),
            Kind::Loopback => (self.loopback, "loopback"),
            Kind::LinkLocal => (self.link_local, "link-local or metadata"),
            Kind::Odd => (self.odd, "unspecified, multicast or broadcast"),
        };
        if allowed {
            Ok(())
        } else {
            Err(ForbiddenAddress {
                address,
                kind,
                host: None,
            })
        }
    }
}

enum Kind {
    Public,
    Private,
    Loopback,
    LinkLocal,
    Odd,
}

/// The IPv4 address that an IPv6 one stands for: mapped, compatible, NAT64 or 6to4.
fn embedded_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(v4(g, h)),
        (0, 0, 0, 0, 0, 0) if g != 0 => Some(v4(g, h)),
        (0x2002, ..) => Some(v4(b, c)),
        _ => None,
    }
}

fn kind_v4(v4: Ipv4Addr) -> Kind {
    // Metadata services that are not link-local: Alibaba Cloud, Azure's wire server.
    const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
    let [a, b, ..] = v4.octets();
    if v4.is_loopback() {
        Kind::Loopback
    } else if v4.is_link_local() || METADATA.contains(&v4) {
        Kind::LinkLocal
    } else if a == 0 || a >= 224 {
        Kind::Odd
    } else if v4.is_private() || (a == 100 && (64..128).contains(&b)) {
        Kind::Private
    } else {
        Kind::Public
    }
}

fn kind_v6(v6: Ipv6Addr) -> Kind {
    // AWS' metadata service has a unique local address.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    if v6.is_loopback() {
        Kind::Loopback
    } else if v6.is_unicast_link_local() || v6 == METADATA {
        Kind::LinkLocal
    } else if v6.is_unspecified() || v6.is_multicast() {
        Kind::Odd
    } else if v6.is_unique_local() {
        Kind::Private
    } else {
        Kind::Public
    }
}

/// An address that the [`AddressPolicy`] does not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}{address}, and untrusted access may not use {kind} addresses; \
     allow it with AccessPolicy::addresses if it is meant",
    host.as_ref().map(|host| format!("{host} leads to ")).unwrap_or_else(|| "the server is at ".to_owned())
)]
pub struct ForbiddenAddress {
    address: IpAddr,
    kind: &'static str,
    host: Option<Arc<str>>,
}

impl ForbiddenAddress {
    /// The address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    #[doc(hidden)]
    pub fn of_host(mut self, host: &str) -> Self {
        self.host = Some(host.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordinary_addresses_are_allowed_by_default() {
        let policy = AddressPolicy::default();
        for bad in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "::127.0.0.1",
            "2002:7f00:1::",
            "100.100.100.200",
            "168.63.129.16",
            "fd00:ec2::254",
            "0.1.2.3",
            "240.0.0.1",
        ] {
            assert!(policy.check(bad.parse().unwrap()).is_err(), "{bad}");
            assert!(AddressPolicy::any().check(bad.parse().unwrap()).is_ok(), "{bad}");
        }
        for good in [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "fd00::1",
            "8.8.8.8",
            "2a00::1",
        ] {
            assert!(policy.check(good.parse().unwrap()).is_ok(), "{good}");
        }
        assert!(
            policy
                .allow_private(false)
                .check("10.0.0.1".parse().unwrap())
                .is_err()
        );
        assert!(
            policy
                .allow_loopback(true)
                .check("127.0.0.1".parse().unwrap())
                .is_ok()
        );
        assert!(
            policy
                .allow_link_local(true)
                .check("169.254.169.254".parse().unwrap())
                .is_ok()
        );
        assert_eq!(
            policy
                .check("::ffff:127.0.0.1".parse().unwrap())
                .unwrap_err()
                .of_host("evil.example")
                .to_string(),
            "evil.example leads to ::ffff:127.0.0.1, and untrusted access may not use loopback addresses; \
             allow it with AccessPolicy::addresses if it is meant"
        );
    }

    #[test]
    fn plugins_are_allowed_by_the_file_they_lead_to() {
        let policy = CredentialPluginPolicy::allowlist(["sh", "/opt/missing"]);
        assert!(policy.allows(Path::new("sh")));
        assert!(policy.allows(&look_up(Path::new("sh")).unwrap()));
        assert!(policy.allows(Path::new("/opt/missing")));
        for command in [
            "./sh",
            "bin/../sh",
            "cat",
            "/bin/cat",
            "",
            "..",
            "missing",
            "/opt/../opt/missing",
        ] {
            assert!(!policy.allows(Path::new(command)), "{command}");
        }
        assert!(!CredentialPluginPolicy::DenyAll.allows(Path::new("sh")));
        assert!(CredentialPluginPolicy::AllowAll.allows(Path::new("./anything")));
    }

    #[test]
    fn files_are_allowed_by_folder() {
        let policy = AccessPolicy::default().allow_files_under("/fleet");
        assert!(policy.allows_file(Path::new("/fleet/a/token")));
        for path in ["/fleet/../etc/shadow", "/fleets/x", "fleet/x", "/etc/shadow", ""] {
            assert!(!policy.allows_file(Path::new(path)), "{path}");
        }
    }
}
