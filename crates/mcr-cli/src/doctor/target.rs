//! Extracts the address of a cluster's access and the properties of its credentials, without using the credentials.

use std::{
    fmt,
    net::SocketAddr,
    time::{Duration, SystemTime},
};

use http::Uri;
use mcr_core::{
    Access, AddressPolicy, Trust,
    internal::{Outline, claims, outline, outline_parsed},
};
use secrecy::ExposeSecret;

/// The address of a cluster's access, and the properties of its credentials, but not the credentials themselves.
#[derive(Clone)]
pub(crate) struct Target {
    /// Scheme, host, port and path.
    pub(crate) address: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
    pub(crate) tls: bool,
    /// The name that the certificate must have, if it is not the host.
    pub(crate) server_name: Option<String>,
    /// PEM.
    pub(crate) authority: Option<Vec<u8>>,
    pub(crate) insecure: bool,
    pub(crate) proxied: bool,
    pub(crate) trust: Trust,
    pub(crate) credential: Credential,
}

/// The properties of a credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) token_expires: Option<SystemTime>,
    pub(crate) certificate_expires: Option<SystemTime>,
    /// The name of the credential plugin.
    pub(crate) plugin: Option<String>,
    /// Whether the access has no credential.
    pub(crate) none: bool,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// The target of an access. `None` for a ready client, for a place in a scope, and for a kubeconfig that can't be read.
pub(crate) fn of(access: &Access) -> Option<Target> {
    match access {
        Access::Kubeconfig(kubeconfig) => outlined(outline(kubeconfig)?, kubeconfig.trust),
        Access::Endpoint(access) => outlined(outline_parsed(access), access.trust),
        _ => None,
    }
}

fn target_at(uri: &Uri) -> Option<Target> {
    let tls = match uri.scheme_str()? {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    // In a URL, the zone of an IPv6 address is escaped. Elsewhere it is not.
    let host = uri
        .host()?
        .trim_start_matches('[')
        .trim_end_matches(']')
        .replacen("%25", "%", 1);
    let port = uri.port_u16();
    let path = uri.path().trim_end_matches('/');
    let shown_port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(Target {
        address: format!("{}://{}{shown_port}{path}", uri.scheme_str()?, uri.host()?),
        host,
        port: port.unwrap_or(if tls { 443 } else { 80 }),
        path: path.to_owned(),
        tls,
        server_name: None,
        authority: None,
        insecure: false,
        proxied: false,
        trust: Trust::Trusted,
        credential: Credential::default(),
    })
}

fn outlined(found: Outline, trust: Trust) -> Option<Target> {
    let mut target = target_at(&found.server?.trim().parse().ok()?)?;
    target.server_name = found.tls_server_name;
    target.authority = found.authority;
    target.insecure = found.insecure;
    target.proxied = found.proxy.is_some();
    target.trust = trust;
    target.credential = Credential {
        token_expires: found
            .token
            .and_then(|token| claims::of(token.expose_secret())?.expires),
        certificate_expires: found.certificate.and_then(|der| Some(validity(&der)?.1)),
        plugin: found.plugin,
        none: found.anonymous,
    };
    Some(target)
}

/// When a certificate begins and ends to be valid.
pub(crate) fn validity(der: &[u8]) -> Option<(SystemTime, SystemTime)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    let time = |seconds: i64| {
        let seconds = Duration::from_secs(u64::try_from(seconds).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let (from, to) = (parsed.validity().not_before, parsed.validity().not_after);
    Some((
        time(from.timestamp()).unwrap_or(SystemTime::UNIX_EPOCH),
        time(to.timestamp())?,
    ))
}

/// The addresses of an untrusted access to which the policy allows connections. An error if it forbids all of them.
pub(crate) fn allowed(
    found: impl IntoIterator<Item = SocketAddr>,
    policy: &AddressPolicy,
) -> Result<Vec<SocketAddr>, String> {
    let (mut allowed, mut forbidden) = (Vec::new(), None);
    for address in found {
        match policy.check(address.ip()) {
            Ok(()) => allowed.push(address),
            Err(error) => forbidden = Some(error.to_string()),
        }
    }
    match forbidden {
        Some(forbidden) if allowed.is_empty() => Err(forbidden),
        _ => Ok(allowed),
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::KubeconfigAccess;

    use super::*;

    const YAML: &str = "
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: 'https://[::1]:6443/clusters/a/', certificate-authority: ca.pem, tls-server-name: k}}]
users: [{name: u, user: {token: e30.eyJleHAiOjYwfQ.c2ln}}]
";

    /// The target of a text and of what it is parsed into.
    fn of_both(access: &KubeconfigAccess) -> [Target; 2] {
        let parsed = access.parse().unwrap();
        [access.clone().into(), parsed.into()].map(|access| of(&access).unwrap())
    }

    #[test]
    fn an_address_and_an_expiry_and_nothing_secret() {
        for target in of_both(&KubeconfigAccess::new(YAML, Trust::Untrusted)) {
            assert_eq!(target.address, "https://[::1]:6443/clusters/a");
            assert_eq!(
                (target.host.as_str(), target.port, target.tls),
                ("::1", 6443, true)
            );
            assert_eq!(target.server_name.as_deref(), Some("k"));
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(60);
            assert_eq!(target.credential.token_expires, Some(at));
            assert!(!target.credential.none && target.trust == Trust::Untrusted);
            assert!(!format!("{target:?}").contains("e30"));
        }
    }

    #[test]
    fn of_the_addresses_of_a_name_those_that_are_allowed_are_dialled() {
        let policy = AddressPolicy::default();
        let [bad, good, other] =
            ["127.0.0.1:1", "10.0.0.1:1", "[2a00::1]:1"].map(|address| address.parse().unwrap());
        assert_eq!(allowed([good, bad, other], &policy), Ok(vec![good, other]));
        assert!(allowed([bad], &policy).unwrap_err().contains("loopback"));
    }

    #[test]
    fn only_trusted_kubeconfigs_name_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), "authority").unwrap();
        let authority = |trust| {
            let access = KubeconfigAccess::new(YAML, trust).base_dir(dir.path());
            let [of_text, parsed] = of_both(&access).map(|target| target.authority);
            assert_eq!(of_text, parsed);
            parsed
        };
        assert_eq!(
            authority(Trust::Trusted).as_deref(),
            Some(b"authority".as_slice())
        );
        assert_eq!(authority(Trust::Untrusted), None);
    }

    #[test]
    fn what_the_fleet_accepts_is_read_and_a_pipe_is_not() {
        // `kube::config::Kubeconfig` reads neither numbers as names nor as tokens, and the current context need not be
        // the first.
        let yaml = "current-context: 1.10\nusers: [{name: 7, user: {token: 12345, client-certificate: pipe}}]\n\
                    contexts: [{name: a, context: {cluster: a}}, {name: 1.10, context: {cluster: 8, user: 7}}]\n\
                    clusters: [{name: a, cluster: {server: 'https://a'}}, {name: 8, cluster: {server: 'https://b'}}]\n";
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(dir.path().join("pipe"))
            .status();
        assert!(made.unwrap().success());
        let access = KubeconfigAccess::new(yaml, Trust::Trusted).base_dir(dir.path());
        let target = of(&access.into()).unwrap();
        assert_eq!(target.address, "https://b");
        assert_eq!(target.credential, Credential::default());
    }
}
