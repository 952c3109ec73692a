//! From the text of a kubeconfig to an endpoint and a source of credentials.

mod cluster;
mod entry;
mod inline;
mod user;

use std::sync::Arc;

use crate::{
    document::{Context, Document, User},
    endpoint_access::{Asks, EndpointAccess},
    error::{AccessError, list_names, quote},
    index::{Index, find_cluster, find_user},
    kubeconfig::{KubeconfigAccess, literal_ip},
    namespace,
    trust::Trust,
};
use entry::Entry;

pub(crate) use entry::{base64, filled};
pub use inline::{InlineCertificate, InlineCredential, inline_credential};

impl KubeconfigAccess {
    /// Finds the endpoint and the credentials of the kubeconfig's context.
    ///
    /// Parses all fields that the context uses. Judges nothing: an [`AccessPolicy`](crate::AccessPolicy) does. Reads no file,
    /// opens no connection and runs no program: files are read, and an exec plugin runs, when a caller asks the
    /// [`CredentialSource`](crate::CredentialSource) for a credential. A long kubeconfig takes long, so an async caller parses
    /// it on a thread for blocking work.
    ///
    /// # Errors
    /// [`AccessError`] with the first field that can't be used.
    ///
    /// ```
    /// use mcr_access::{AccessPolicy, KubeconfigAccess, Trust};
    ///
    /// let access = KubeconfigAccess::new("
    /// current-context: dev
    /// contexts: [{name: dev, context: {cluster: dev, user: admin}}]
    /// clusters: [{name: dev, cluster: {server: 'https://dev:6443'}}]
    /// users: [{name: admin, user: {token: secret}}]
    /// ", Trust::Untrusted);
    /// let access = AccessPolicy::default().admit(&access.parse()?)?;
    /// assert_eq!(access.endpoint.server, "https://dev:6443");
    /// assert_eq!(&*access.default_namespace, "default");
    /// # Ok::<(), mcr_access::AccessError>(())
    /// ```
    pub fn parse(&self) -> Result<EndpointAccess, AccessError> {
        let document = Document::parse(&self.yaml)?;
        let index = Index::of(&document);
        let (name, context) = context(&document, &index, self.context.as_deref())?;
        let indexes = || std::iter::once(&index);
        let (_, cluster) = find_cluster(indexes(), |index| index, &name, &context)?;
        let user = find_user(indexes(), |index| index, &name, &context)?.map(|(_, user)| user);

        let quoted = quote(cluster.name.as_deref().unwrap_or_default());
        let cluster_entry = Entry {
            path: format!("clusters[name={quoted}].cluster"),
            access: self,
        };
        let cluster = cluster.cluster.unwrap_or_default();
        let (endpoint, authority) = cluster::endpoint(&cluster_entry, &cluster)?;

        let user_name = user.as_ref().and_then(|user| user.name.as_deref());
        let user_entry = Entry {
            path: format!("users[name={}].user", quote(user_name.unwrap_or_default())),
            access: self,
        };
        let user: User<'_> = user.and_then(|user| user.user).unwrap_or_default();
        let mut asks = Asks {
            authority,
            ..Asks::default()
        };
        let credentials = user::credential_source(&user_entry, user, &cluster, &endpoint, &mut asks)?;

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
        // Most kubeconfigs ask for nothing, and a fleet keeps thousands of them.
        let is_judged = self.trust == Trust::Untrusted
            && (endpoint.insecure_skip_tls_verify
                || endpoint.proxy.is_some()
                || literal_ip(&endpoint.server).is_some());
        let needs_more = asks.authority.is_some() || !asks.files.is_empty() || asks.plugin.is_some();
        let asks = (is_judged || needs_more).then(|| {
            Arc::new(Asks {
                cluster: cluster_entry.path.into(),
                user: user_entry.path.into(),
                ..asks
            })
        });
        Ok(EndpointAccess {
            endpoint: Arc::new(endpoint),
            credentials,
            default_namespace,
            trust: self.trust,
            asks,
        })
    }
}

/// Returns the name and the content of the wanted context, or of the current one.
pub(crate) fn context(
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
    use crate::AccessPolicy;

    fn admitted(access: &KubeconfigAccess, policy: &AccessPolicy) -> Result<EndpointAccess, AccessError> {
        policy.admit(&access.parse()?)
    }

    fn access(cluster: &str, user: &str) -> KubeconfigAccess {
        let yaml = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://a:6443'{cluster}}}}}]\nusers: [{{name: a, user: {{{user}}}}}]"
        );
        KubeconfigAccess::new(yaml, Trust::Untrusted)
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
                    admitted(&KubeconfigAccess::new(yaml, trust), &policy)
                };
                assert!(of("https", Trust::Untrusted).is_ok(), "{user}");
                let acting = KubeconfigAccess::new(
                    access(more, &format!("as: admin, as-groups: ['system:masters'], {user}")).yaml,
                    Trust::Untrusted,
                );
                let acting = admitted(&acting, &policy);
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
}
