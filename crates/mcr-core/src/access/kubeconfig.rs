//! From a kubeconfig to an endpoint and a source of credentials.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, LazyLock, OnceLock},
};

use super::{
    Access, AccessPolicy, Endpoint, Fingerprint, KubeconfigAccess, Trust,
    contexts::{Index, find_cluster, find_user},
    credential::CredentialSource,
    document::{Cluster, Context, Document, User},
    error::{AccessError, list, quote},
    fields::{Fields, base64, filled},
    pem, user,
};
use crate::name::is_namespace;

/// What it takes to connect.
pub(crate) enum Resolved {
    /// An address and a source of credentials.
    Link {
        endpoint: Arc<Endpoint>,
        credentials: Arc<dyn CredentialSource>,
        default_namespace: Arc<str>,
        trust: Trust,
    },
    /// A client of the user's.
    Client(kube::Client),
}

/// Finds out what it takes to connect. Reads the files that a kubeconfig names, but connects and runs nothing.
pub(crate) fn resolve(access: &Access, policy: &AccessPolicy) -> Result<Resolved, AccessError> {
    match access {
        Access::Kubeconfig(kubeconfig) => link(kubeconfig, policy, true),
        Access::Parts(parts) => Ok(Resolved::Link {
            endpoint: Arc::new(parts.endpoint.clone()),
            credentials: parts.credentials.clone(),
            default_namespace: parts.default_namespace.clone(),
            trust: Trust::Trusted,
        }),
        Access::Client(client) => Ok(Resolved::Client(client.client().clone())),
        Access::Scoped(_) => Err(AccessError::invalid(
            "access",
            "is a place in a scope where a connection is needed; give a kubeconfig, an address or a client",
        )),
    }
}

/// What it takes to connect, if it is known without looking at a kubeconfig or file.
pub(crate) fn at_hand(access: &Access, policy: &AccessPolicy) -> Option<Resolved> {
    match access {
        Access::Kubeconfig(kubeconfig) => found(kubeconfig, policy),
        Access::Parts(_) | Access::Client(_) => resolve(access, policy).ok(),
        Access::Scoped(_) => None,
    }
}

/// The namespace of requests that name none, where nothing else is said. All clusters share its text.
pub(crate) fn usual_namespace() -> Arc<str> {
    static USUAL: LazyLock<Arc<str>> = LazyLock::new(|| "default".into());
    USUAL.clone()
}

fn namespace(name: &str) -> Arc<str> {
    let usual = usual_namespace();
    if *name == *usual { usual } else { name.into() }
}

/// The namespace of requests that name none, as far as it is known without reading a kubeconfig.
pub(crate) fn default_namespace(access: &Access) -> Option<Arc<str>> {
    match access {
        Access::Kubeconfig(kubeconfig) => looked_at(kubeconfig).map(|found| found.default_namespace.clone()),
        Access::Parts(parts) => Some(parts.default_namespace.clone()),
        Access::Client(client) => Some(namespace(client.client().default_namespace())),
        // Its layout knows.
        Access::Scoped(_) => None,
    }
}

/// Whether it is a kubeconfig that nobody has read yet.
pub(crate) fn is_unread(access: &Access) -> bool {
    matches!(access, Access::Kubeconfig(kubeconfig) if looked_at(kubeconfig).is_none())
}

/// Reads a kubeconfig, but none of the files that it names. What is wrong with it is told when it is used.
pub(crate) fn look_into(access: &Access, policy: &AccessPolicy) {
    if let Access::Kubeconfig(kubeconfig) = access {
        let _ = link(kubeconfig, policy, false);
    }
}

/// What was found in a kubeconfig.
pub(super) struct Found {
    yaml: Arc<[u8]>,
    context: Option<Arc<str>>,
    default_namespace: Arc<str>,
    /// None if it names files or programs, in which something else may be found each time.
    link: Option<FoundLink>,
}

#[derive(Clone)]
struct FoundLink {
    endpoint: Arc<Endpoint>,
    credentials: Arc<dyn CredentialSource>,
}

fn looked_at(access: &KubeconfigAccess) -> Option<&Found> {
    // Its fields are there for everyone to set.
    let same = |found: &&Found| Arc::ptr_eq(&found.yaml, &access.yaml) && found.context == access.context;
    access.found.get().filter(same)
}

fn found(access: &KubeconfigAccess, policy: &AccessPolicy) -> Option<Resolved> {
    let found = looked_at(access)?;
    let FoundLink {
        endpoint,
        credentials,
    } = found.link.as_ref()?;
    // All that is left to be refused; why it is refused is told by who looks at the kubeconfig again.
    let allowed = access.trust == Trust::Trusted
        || (!endpoint.insecure_skip_tls_verify
            && endpoint.proxy.is_none()
            && literal(&endpoint.server).is_none_or(|address| policy.addresses.check(address).is_ok()));
    allowed.then(|| Resolved::Link {
        endpoint: endpoint.clone(),
        credentials: credentials.clone(),
        default_namespace: found.default_namespace.clone(),
        trust: access.trust,
    })
}

/// The same access without the text of its kubeconfig, if all that there is to know has been found in it: it can be
/// longer than all else that is held of a cluster together. Only for whoever looks at it with this policy alone.
pub(crate) fn settled(access: Access, policy: &AccessPolicy) -> Access {
    let Access::Kubeconfig(kubeconfig) = &access else {
        return access;
    };
    let (Some(Resolved::Link { .. }), Some(known)) = (found(kubeconfig, policy), looked_at(kubeconfig))
    else {
        return access;
    };
    let yaml: Arc<[u8]> = Arc::default();
    Access::Kubeconfig(KubeconfigAccess {
        found: Arc::new(OnceLock::from(Found {
            yaml: yaml.clone(),
            context: known.context.clone(),
            default_namespace: known.default_namespace.clone(),
            link: known.link.clone(),
        })),
        yaml,
        trust: kubeconfig.trust,
        context: kubeconfig.context.clone(),
        base_dir: None,
    })
}

/// Checks a kubeconfig, so that a provider can announce it as [broken](crate::Change::Broken) instead of letting
/// the connection fail.
///
/// Everything in it is parsed and held against the policy. Files that a [trusted](Trust::Trusted) kubeconfig names
/// are read; nothing else is: nothing is executed and nothing connected to.
///
/// # Errors
/// Names the first field that can't be used, why, and what to do about it.
///
/// ```
/// use mcr_core::{AccessPolicy, KubeconfigAccess, Trust, check};
///
/// let access = KubeconfigAccess::new("
/// current-context: dev
/// contexts: [{name: dev, context: {cluster: dev, user: admin}}]
/// clusters: [{name: dev, cluster: {server: 'https://dev:6443'}}]
/// users: [{name: admin, user: {tokenFile: /etc/shadow}}]
/// ", Trust::Untrusted);
/// assert_eq!(
///     check(&access, &AccessPolicy::default()).map_err(|error| error.to_string()),
///     Err(r#"users[name="admin"].user.tokenFile: names a file, which untrusted kubeconfigs may not do; put the token itself into the field token, or allow its folder with AccessPolicy::allow_files_under"#.to_owned())
/// );
/// ```
pub fn check(access: &KubeconfigAccess, policy: &AccessPolicy) -> Result<(), AccessError> {
    link(access, policy, access.trust == Trust::Trusted).map(|_| ())
}

pub(crate) fn link(
    access: &KubeconfigAccess,
    policy: &AccessPolicy,
    read: bool,
) -> Result<Resolved, AccessError> {
    if let Some(found) = found(access, policy) {
        return Ok(found);
    }
    let document = Document::parse(&access.yaml)?;
    let index = Index::of(&document);
    let (name, context) = context(&document, &index, access.context.as_deref())?;
    let once = || std::iter::once(&index);
    let (_, cluster) = find_cluster(once(), |index| index, &name, &context)?;
    let user = find_user(once(), |index| index, &name, &context)?.map(|(_, user)| user);

    let named = quote(cluster.name.as_deref().unwrap_or_default());
    let place = Fields {
        at: format!("clusters[name={named}].cluster"),
        access,
        policy,
        read,
    };
    let cluster = cluster.cluster.unwrap_or_default();
    let endpoint = endpoint(&place, &cluster)?;

    let named = quote(
        user.as_ref()
            .and_then(|user| user.name.as_deref())
            .unwrap_or_default(),
    );
    let place = Fields {
        at: format!("users[name={named}].user"),
        access,
        policy,
        read,
    };
    let user: User<'_> = user.and_then(|user| user.user).unwrap_or_default();
    let stays = cluster.certificate_authority.is_none() && user.stays();
    let credentials = user::source(&place, user, &cluster, &endpoint)?;

    let endpoint = Arc::new(endpoint);
    let default_namespace = match filled(context.namespace) {
        None => usual_namespace(),
        Some(chosen) if is_namespace(&chosen) => namespace(&chosen),
        Some(_) => {
            return Err(AccessError::invalid(
                format!("contexts[name={}].context.namespace", quote(&name)),
                "is not the name of a namespace, which has at most 63 lower-case letters, digits and hyphens and begins and \
                 ends with a letter or digit; correct it",
            ));
        }
    };
    // What a clone with other fields has found stays.
    let _ = access.found.set(Found {
        yaml: access.yaml.clone(),
        context: access.context.clone(),
        default_namespace: default_namespace.clone(),
        link: stays.then(|| FoundLink {
            endpoint: endpoint.clone(),
            credentials: credentials.clone(),
        }),
    });
    Ok(Resolved::Link {
        endpoint,
        credentials,
        default_namespace,
        trust: access.trust,
    })
}

fn context(
    document: &Document<'_>,
    index: &Index<'_>,
    wanted: Option<&str>,
) -> Result<(String, Context), AccessError> {
    let there = || list(index.contexts.names());
    let chosen = wanted
        .map(str::to_owned)
        .or_else(|| filled(document.current_context.clone()));
    let Some(name) = chosen else {
        return Err(AccessError::reference(
            "current-context",
            format!(
                "is missing and no context was chosen ({}); set one of the two",
                there()
            ),
        ));
    };
    let entry = index.contexts.unique(&name)?;
    let Some(entry) = entry else {
        let field = if wanted.is_some() {
            format!("contexts[name={}]", quote(&name))
        } else {
            "current-context".to_owned()
        };
        return Err(AccessError::reference(
            field,
            format!(
                "context {} is not defined ({}); define it or correct the name",
                quote(&name),
                there()
            ),
        ));
    };
    Ok((name, entry.context.clone().unwrap_or_default()))
}

fn endpoint(at: &Fields<'_>, cluster: &Cluster<'_>) -> Result<Endpoint, AccessError> {
    let Some(server) = filled(cluster.server.clone()) else {
        return Err(at.invalid(
            "server",
            "is missing; write the address of the API server, https://host:port",
        ));
    };
    let mut endpoint = Endpoint::new(server_url(at, &server)?);
    endpoint.insecure_skip_tls_verify = cluster.insecure_skip_tls_verify == Some(true);
    if endpoint.insecure_skip_tls_verify && at.is_untrusted() && !at.policy.insecure_tls {
        return Err(at.refused(
            "insecure-skip-tls-verify",
            "is set, which untrusted kubeconfigs may not do; give certificate-authority-data instead, or allow it \
             with AccessPolicy::allow_insecure_tls",
        ));
    }
    if let Some(data) = filled(cluster.certificate_authority_data.clone()) {
        let field = "certificate-authority-data";
        let problem = |problem| at.invalid(field, problem);
        let pem = pem::authority(
            Fingerprint::of(&(field, &*data)),
            || base64(&data).map_err(problem),
            problem,
        )?;
        endpoint.certificate_authority = Some(pem);
    } else if let Some(path) = filled(cluster.certificate_authority.clone()) {
        let path = at.file(
            "certificate-authority",
            &path,
            "put the certificates into certificate-authority-data",
        )?;
        if at.read {
            let field = "certificate-authority";
            let pem = at.read(field, &path)?;
            let problem = |problem| at.invalid(field, problem);
            let pem = pem::authority(Fingerprint::of(&(field, &pem)), || Ok(pem), problem)?;
            endpoint.certificate_authority = Some(pem);
        }
    }
    if endpoint.insecure_skip_tls_verify && endpoint.certificate_authority.is_some() {
        return Err(at.invalid(
            "insecure-skip-tls-verify",
            "is set together with a certificate authority; remove one of the two",
        ));
    }
    if let Some(name) = filled(cluster.tls_server_name.clone()) {
        if rustls_pki_types::ServerName::try_from(name.as_str()).is_err() {
            return Err(at.invalid(
                "tls-server-name",
                "is neither a DNS name nor an IP address; correct it",
            ));
        }
        endpoint.tls_server_name = Some(name.into());
    }
    endpoint.proxy = match filled(cluster.proxy_url.clone()) {
        Some(url) => Some(proxy_url(at, &url)?),
        None => None,
    };
    Ok(endpoint)
}

/// The address itself is not shown: some put a password into it.
fn server_url(at: &Fields<'_>, url: &str) -> Result<http::Uri, AccessError> {
    let problem = |problem: &str| at.invalid("server", problem);
    let url = url.trim();
    let Ok(uri) = url.parse::<http::Uri>() else {
        return Err(problem("is not an address; write https://host:port"));
    };
    match uri.scheme_str() {
        Some("https" | "http") => {}
        Some(_) => {
            return Err(problem(
                "must begin with https:// (or http://); correct the scheme",
            ));
        }
        None => return Err(problem("has no scheme; write https://host:port")),
    }
    let authority = uri
        .authority()
        .ok_or_else(|| problem("has no host; write https://host:port"))?;
    if authority.as_str().contains('@') {
        return Err(problem(
            "holds a user name or password; put it into the user's username and password",
        ));
    }
    if authority.host().is_empty()
        || (authority.as_str() != authority.host() && authority.port_u16().is_none())
    {
        return Err(problem("has no host or a bad port; write https://host:port"));
    }
    if uri.query().is_some() || url.contains('#') {
        return Err(problem(
            "has a query or fragment; write https://host:port and at most a path",
        ));
    }
    if let Some(address) = literal(&uri)
        && at.is_untrusted()
        && let Err(error) = at.policy.addresses.check(address)
    {
        return Err(at.refused("server", error.to_string()));
    }
    Ok(uri)
}

/// The address itself, if no name is to be resolved.
fn literal(server: &http::Uri) -> Option<IpAddr> {
    let host = server.host()?.trim_start_matches('[').trim_end_matches(']');
    host.parse().ok()
}

fn proxy_url(at: &Fields<'_>, url: &str) -> Result<http::Uri, AccessError> {
    let Ok(uri) = url.trim().parse::<http::Uri>() else {
        return Err(at.invalid(
            "proxy-url",
            "is not an address; write http://host:port, https:// or socks5://",
        ));
    };
    let known = matches!(uri.scheme_str(), Some("http" | "https" | "socks5" | "socks5h"));
    if !known || uri.host().is_none_or(str::is_empty) {
        return Err(at.invalid(
            "proxy-url",
            "must begin with http://, https:// or socks5:// and name a host; correct it",
        ));
    }
    let same = |allowed: &http::Uri| {
        allowed.scheme() == uri.scheme()
            && allowed.host() == uri.host()
            && allowed.port_u16() == uri.port_u16()
    };
    if at.is_untrusted() && !at.policy.proxies.iter().any(same) {
        return Err(at.refused(
            "proxy-url",
            "names a proxy, which untrusted kubeconfigs may not do; remove it, or allow the proxy with \
             AccessPolicy::allow_proxy",
        ));
    }
    Ok(uri)
}

/// A path in a kubeconfig starts from the folder of the kubeconfig.
pub(super) fn absolute(access: &KubeconfigAccess, path: &str) -> PathBuf {
    match &access.base_dir {
        Some(dir) => dir.join(path),
        None => PathBuf::from(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(cluster: &str, user: &str) -> KubeconfigAccess {
        let yaml = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://a:6443'{cluster}}}}}]\nusers: [{{name: a, user: {{{user}}}}}]"
        );
        KubeconfigAccess::new(yaml, Trust::Untrusted)
    }

    fn text_of(access: &Access) -> &[u8] {
        match access {
            Access::Kubeconfig(kubeconfig) => &kubeconfig.yaml,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn once_all_is_found_in_a_kubeconfig_its_text_is_not_needed() {
        let policy = AccessPolicy::default();
        let access = access("", "token: t");
        assert!(
            !text_of(&settled(access.clone().into(), &policy)).is_empty(),
            "not looked at yet"
        );
        check(&access, &policy).unwrap();
        let settled = settled(access.clone().into(), &policy);
        assert!(text_of(&settled).is_empty());
        let of = |access: &Access| match resolve(access, &policy).unwrap() {
            Resolved::Link {
                endpoint,
                credentials,
                trust,
                ..
            } => (endpoint, credentials.fingerprint(), trust),
            Resolved::Client(_) => panic!("it is a kubeconfig"),
        };
        assert_eq!(of(&settled), of(&access.into()));
    }

    #[test]
    fn the_text_stays_where_it_tells_what_is_refused_or_which_files_are_read() {
        let (lenient, strict) = (
            AccessPolicy::default().allow_insecure_tls(true),
            AccessPolicy::default(),
        );
        let refused = access(", insecure-skip-tls-verify: true", "token: t");
        check(&refused, &lenient).unwrap();
        let refused = settled(refused.into(), &strict);
        let error = resolve(&refused, &strict).err().unwrap().to_string();
        assert!(error.contains("insecure-skip-tls-verify"), "{error}");

        let reads = lenient
            .allow_files_under("/nowhere")
            .credential_plugins(super::super::CredentialPluginPolicy::AllowAll);
        for user in [
            "tokenFile: /nowhere/t",
            "client-certificate: /nowhere/c, client-key: /nowhere/k",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}",
        ] {
            let files = access("", user);
            check(&files, &reads).unwrap();
            assert!(!text_of(&settled(files.into(), &reads)).is_empty(), "{user}");
        }
    }
}
