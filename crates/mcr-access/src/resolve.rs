//! From a kubeconfig to an endpoint and a source of credentials.

use std::sync::Arc;

use crate::{
    AccessError, AccessPolicy, KubeconfigAccess, Resolved, Trust,
    contexts::{Index, find_cluster, find_user},
    document::{Context, Document, User},
    error::{list, quote},
    fields::{Fields, filled},
    kubeconfig::{Found, FoundLink},
    namespace,
    server::endpoint,
    user,
};

/// Finds the endpoint and the credentials of a kubeconfig's context.
///
/// Reads the files that a [trusted](Trust::Trusted) kubeconfig names, on the calling thread. Connects to nothing and runs no
/// program: an exec plugin runs when its [`CredentialSource`](crate::CredentialSource) is asked.
///
/// # Errors
/// Names the first field that can't be used, why, and what to do about it.
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

/// Checks a kubeconfig, so that a provider can announce it as broken instead of letting
/// the connection fail.
///
/// Everything in it is parsed and held against the policy. Files that a [trusted](Trust::Trusted) kubeconfig names
/// are read; nothing else is: nothing is executed and nothing connected to.
///
/// # Errors
/// Names the first field that can't be used, why, and what to do about it.
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

/// [`resolve`]; with `read` false without the files that the kubeconfig names.
pub fn resolve_with(
    access: &KubeconfigAccess,
    policy: &AccessPolicy,
    read: bool,
) -> Result<Resolved, AccessError> {
    if let Some(found) = access.resolved(policy) {
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
        None => namespace::usual(),
        Some(chosen) if namespace::is_valid(&chosen) => namespace::shared(&chosen),
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
    Ok(Resolved {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trust;

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
            !access.clone().settled(&policy).yaml.is_empty(),
            "not looked at yet"
        );
        check(&access, &policy).unwrap();
        let settled = access.clone().settled(&policy);
        assert!(settled.yaml.is_empty());
        let of = |access: &KubeconfigAccess| {
            let resolved = resolve(access, &policy).unwrap();
            (
                resolved.endpoint,
                resolved.credentials.fingerprint(),
                resolved.trust,
            )
        };
        assert_eq!(of(&settled), of(&access));
    }

    #[test]
    fn the_text_stays_where_it_tells_what_is_refused_or_which_files_are_read() {
        let (lenient, strict) = (
            AccessPolicy::default().allow_insecure_tls(true),
            AccessPolicy::default(),
        );
        let refused = access(", insecure-skip-tls-verify: true", "token: t");
        check(&refused, &lenient).unwrap();
        let refused = refused.settled(&strict);
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
            assert!(!files.settled(&reads).yaml.is_empty(), "{user}");
        }
    }
}
