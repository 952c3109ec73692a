//! From a kubeconfig to an endpoint and a source of credentials.

mod cluster;
mod entry;
mod inline;
mod outline;
mod user;

use std::sync::Arc;

use crate::{
    document::{Context, Document, User},
    error::{AccessError, list_names, quote},
    index::{Index, find_cluster, find_user},
    kubeconfig::{CachedEndpoint, CachedResolution, KubeconfigAccess},
    namespace,
    policy::AccessPolicy,
    resolved::Resolved,
    trust::Trust,
};
use entry::{Entry, filled};

pub use inline::{InlineCertificate, InlineCredential, inline_credential};
pub use outline::{Outline, outline};

/// Finds the endpoint and the credentials of a kubeconfig's context.
///
/// Reads the files that the kubeconfig names, if its trust and the policy allow them. This blocks the calling thread.
/// Opens no connection and runs no program: an exec plugin runs when a caller asks its
/// [`CredentialSource`](crate::CredentialSource) for a credential.
///
/// # Errors
/// [`AccessError`] with the first field that can't be used.
///
/// ```
/// use mcr_access::{AccessPolicy, KubeconfigAccess, Trust, resolve};
///
/// let access = KubeconfigAccess::new("
/// current-context: dev
/// contexts: [{name: dev, context: {cluster: dev, user: admin}}]
/// clusters: [{name: dev, cluster: {server: 'https://dev:6443'}}]
/// users: [{name: admin, user: {token: secret}}]
/// ", Trust::Untrusted);
/// let resolved = resolve(&access, &AccessPolicy::default())?;
/// assert_eq!(resolved.endpoint.server, "https://dev:6443");
/// assert_eq!(&*resolved.default_namespace, "default");
/// # Ok::<(), mcr_access::AccessError>(())
/// ```
pub fn resolve(access: &KubeconfigAccess, policy: &AccessPolicy) -> Result<Resolved, AccessError> {
    resolve_with(access, policy, true)
}

/// Checks a kubeconfig, so that a provider can announce a broken one before a connection fails.
///
/// Parses all fields that the context uses, and applies the policy to them. Reads the files that a
/// [trusted](Trust::Trusted) kubeconfig names, which blocks the calling thread. Opens no connection and runs no program.
///
/// # Errors
/// [`AccessError`] with the first field that can't be used.
///
/// ```
/// use mcr_access::{AccessPolicy, KubeconfigAccess, Trust, check};
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
    resolve_with(access, policy, access.trust == Trust::Trusted).map(|_| ())
}

/// Like [`resolve`], but reads the files that the kubeconfig names only if `read_files` is true.
pub fn resolve_with(
    access: &KubeconfigAccess,
    policy: &AccessPolicy,
    read_files: bool,
) -> Result<Resolved, AccessError> {
    if let Some(cached) = access.resolved(policy) {
        return Ok(cached);
    }
    let document = Document::parse(&access.yaml)?;
    let index = Index::of(&document);
    let (name, context) = context(&document, &index, access.context.as_deref())?;
    let indexes = || std::iter::once(&index);
    let (_, cluster) = find_cluster(indexes(), |index| index, &name, &context)?;
    let user = find_user(indexes(), |index| index, &name, &context)?.map(|(_, user)| user);
    let entry = |path: String| Entry {
        path,
        access,
        policy,
        read_files,
    };

    let quoted = quote(cluster.name.as_deref().unwrap_or_default());
    let cluster = cluster.cluster.unwrap_or_default();
    let endpoint = cluster::endpoint(&entry(format!("clusters[name={quoted}].cluster")), &cluster)?;

    let quoted = quote(
        user.as_ref()
            .and_then(|user| user.name.as_deref())
            .unwrap_or_default(),
    );
    let user: User<'_> = user.and_then(|user| user.user).unwrap_or_default();
    let is_inline = cluster.certificate_authority.is_none() && user.is_inline();
    let user_entry = entry(format!("users[name={quoted}].user"));
    let credentials = user::credential_source(&user_entry, user, &cluster, &endpoint)?;

    let endpoint = Arc::new(endpoint);
    let default_namespace = match filled(context.namespace) {
        None => namespace::default_name(),
        Some(chosen) if namespace::is_valid(&chosen) => namespace::interned(&chosen),
        Some(_) => {
            return Err(AccessError::invalid(
                format!("contexts[name={}].context.namespace", quote(&name)),
                "is not the name of a namespace, which has at most 63 lower-case letters, digits and hyphens and begins and \
                 ends with a letter or digit; correct it",
            ));
        }
    };
    // Fails if a clone with other values in its public fields has cached its result. That result stays.
    let _ = access.cached.set(CachedResolution {
        yaml: access.yaml.clone(),
        context: access.context.clone(),
        default_namespace: default_namespace.clone(),
        inline: is_inline.then(|| CachedEndpoint {
            endpoint: endpoint.clone(),
            credentials: credentials.clone(),
        }),
    });
    Ok(Resolved {
        endpoint,
        credentials,
        default_namespace,
        trust: access.trust,
    })
}

/// Returns the name and the content of the wanted context, or of the current one.
fn context(
    document: &Document<'_>,
    index: &Index<'_>,
    wanted: Option<&str>,
) -> Result<(String, Context), AccessError> {
    let defined = || list_names(index.contexts.names());
    let chosen = wanted
        .map(str::to_owned)
        .or_else(|| filled(document.current_context.clone()));
    let Some(name) = chosen else {
        return Err(AccessError::reference(
            "current-context",
            format!(
                "is missing and no context was chosen ({}); set one of the two",
                defined()
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
                defined()
            ),
        ));
    };
    Ok((name, entry.context.clone().unwrap_or_default()))
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

    #[test]
    fn once_all_is_found_in_a_kubeconfig_its_text_is_not_needed() {
        let policy = AccessPolicy::default();
        let access = access("", "token: t");
        assert!(
            !access.clone().without_text(&policy).yaml.is_empty(),
            "not resolved yet"
        );
        check(&access, &policy).unwrap();
        let without_text = access.clone().without_text(&policy);
        assert!(without_text.yaml.is_empty());
        let of = |access: &KubeconfigAccess| {
            let resolved = resolve(access, &policy).unwrap();
            (
                resolved.endpoint,
                resolved.credentials.fingerprint(),
                resolved.trust,
            )
        };
        assert_eq!(of(&without_text), of(&access));
    }

    #[test]
    fn a_credential_that_is_not_the_writers_own_goes_over_https_only() {
        let policy = AccessPolicy::default()
            .allow_files_under("/nowhere")
            .allow_proxy("http://proxy:3128".parse().unwrap())
            .credential_plugins(crate::CredentialPluginPolicy::AllowAll);
        let exec =
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}";
        for (user, own) in [
            ("token: t", true),
            ("username: u, password: p", true),
            (&format!("token: t, {exec}"), true),
            ("tokenFile: /nowhere/t", false),
            ("token: t, tokenFile: /nowhere/t", false),
            ("client-certificate: /nowhere/c, client-key: /nowhere/k", false),
            (exec, false),
        ] {
            for more in ["", ", proxy-url: 'http://proxy:3128'"] {
                let of = |scheme: &str, trust| {
                    let yaml = access(more, user).yaml;
                    let yaml = std::str::from_utf8(&yaml)
                        .unwrap()
                        .replace("https://a", &format!("{scheme}://a"));
                    resolve_with(&KubeconfigAccess::new(yaml, trust), &policy, false)
                };
                assert!(of("https", Trust::Untrusted).is_ok(), "{user}");
                let acting = KubeconfigAccess::new(
                    access(more, &format!("as: admin, as-groups: ['system:masters'], {user}")).yaml,
                    Trust::Untrusted,
                );
                let acting = resolve_with(&acting, &policy, false);
                assert!(own == acting.is_ok(), "{user}");
                assert!(
                    own || acting.err().unwrap().to_string().contains("act as another user"),
                    "{user}"
                );
                assert!(of("http", Trust::Trusted).is_ok(), "{user}");
                let untrusted = of("http", Trust::Untrusted)
                    .map(drop)
                    .map_err(|error| error.to_string());
                assert!(own == untrusted.is_ok(), "{user}");
                assert!(own || untrusted.unwrap_err().contains("unencrypted"), "{user}");
            }
        }
    }

    #[test]
    fn the_text_stays_where_it_tells_what_is_refused_or_which_files_are_read() {
        let (lenient, strict) = (
            AccessPolicy::default().allow_insecure_tls(true),
            AccessPolicy::default(),
        );
        let refused = access(", insecure-skip-tls-verify: true", "token: t");
        check(&refused, &lenient).unwrap();
        let refused = refused.without_text(&strict);
        let error = resolve(&refused, &strict).err().unwrap().to_string();
        assert!(error.contains("insecure-skip-tls-verify"), "{error}");

        let reads = lenient
            .allow_files_under("/nowhere")
            .credential_plugins(crate::CredentialPluginPolicy::AllowAll);
        for user in [
            "tokenFile: /nowhere/t",
            "client-certificate: /nowhere/c, client-key: /nowhere/k",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}",
        ] {
            let files = access("", user);
            check(&files, &reads).unwrap();
            assert!(!files.without_text(&reads).yaml.is_empty(), "{user}");
        }
    }
}
