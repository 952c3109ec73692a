use std::{fmt, sync::Arc};

use mcr_core::{Access, Scope};

use crate::{
    error::NamespaceError,
    layout::{Choice, ClusterScoped, Layout},
    provider::{Config, ENDPOINT, NamespaceProvider},
    shared::is_name,
};

/// Builds a [`NamespaceProvider`]. [`NamespaceProvider::builder`] creates it.
#[derive(Clone)]
pub struct NamespaceProviderBuilder {
    name: Arc<str>,
    access: Option<Access>,
    labels: Option<String>,
    choice: Choice,
}

impl NamespaceProvider {
    /// A builder. [`access`](NamespaceProviderBuilder::access) or [`client`](NamespaceProviderBuilder::client) is
    /// required; all other options have defaults.
    pub fn builder() -> NamespaceProviderBuilder {
        NamespaceProviderBuilder::new()
    }
}

impl NamespaceProviderBuilder {
    fn new() -> Self {
        Self {
            name: "namespace".into(),
            access: None,
            labels: None,
            choice: Choice::default(),
        }
    }

    /// Sets the provider's name. Default: `namespace`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the access to the host: the cluster whose namespaces become clusters.
    #[must_use]
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.access = Some(access.into());
        self
    }

    /// Sets a client of the host.
    #[must_use]
    pub fn client(self, client: kube::Client) -> Self {
        self.access(client)
    }

    /// Selects only namespaces that match a label selector, such as `team,tier!=test`. The API server applies the
    /// selector. Default: all.
    #[must_use]
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Excludes namespaces by their names. Default: none. May be called several times.
    #[must_use]
    pub fn exclude(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.choice.excluded.extend(names.into_iter().map(Into::into));
        self
    }

    /// Selects only namespaces for whose names `selects` returns `true`. The function is called for every object of
    /// the host. So it must be quick, and must always return the same result for a name. Default: all.
    #[must_use]
    pub fn filter(mut self, selects: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.choice.filter = Some(Arc::new(selects));
        self
    }

    /// Builds the provider. Does not connect yet.
    ///
    /// # Errors
    /// [`NamespaceError`] if there is no host, the label selector is empty, or an excluded name is not a valid name.
    pub fn build(self) -> Result<NamespaceProvider, NamespaceError> {
        let access = self.access.ok_or(NamespaceError::NoHost)?;
        if self
            .labels
            .as_ref()
            .is_some_and(|labels| labels.trim().is_empty())
        {
            return Err(NamespaceError::Selector);
        }
        if let Some(name) = self.choice.excluded.iter().find(|name| !is_name(name)) {
            return Err(NamespaceError::Name(name.clone()));
        }
        if matches!(access, Access::Scoped(_)) {
            return Err(NamespaceError::HostInScope);
        }
        let choice = Arc::new(self.choice);
        let cluster_scoped = ClusterScoped::default();
        let scope = Scope::new(Layout {
            name: self.name.clone(),
            choice: choice.clone(),
            cluster_scoped: cluster_scoped.clone(),
        });
        scope.set_endpoint(ENDPOINT, access.clone());
        Ok(NamespaceProvider {
            name: self.name,
            config: Arc::new(Config {
                access,
                scope,
                cluster_scoped,
                labels: self.labels,
                choice,
            }),
        })
    }
}

impl fmt::Debug for NamespaceProviderBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamespaceProviderBuilder")
            .field("name", &self.name)
            .field("access", &self.access)
            .field("labels", &self.labels)
            .field("choice", &self.choice)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use mcr_core::{Provider, Trust};

    use super::*;

    fn builder() -> NamespaceProviderBuilder {
        NamespaceProvider::builder().access(Access::kubeconfig("secret", Trust::Trusted))
    }

    #[test]
    fn bad_options_are_refused_with_what_to_do() {
        let error = |builder: NamespaceProviderBuilder| builder.build().unwrap_err().to_string();
        assert_eq!(
            error(NamespaceProvider::builder()),
            "there is no host cluster; say how to reach it with `access` or `client`"
        );
        assert_eq!(
            error(builder().labels(" ")),
            "the label selector is empty; leave `labels` out to take all namespaces"
        );
        assert_eq!(
            error(builder().exclude(["kube-*"])),
            "\"kube-*\" can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; correct \
             or remove it"
        );
        let nested = builder().build().unwrap().config.scope.place(ENDPOINT, "a");
        assert_eq!(
            error(builder().access(nested)),
            "the host cluster is itself a place in a scope; use a cluster that is reached directly"
        );
    }

    #[test]
    fn the_log_reports_which_namespaces() {
        let words = |builder: NamespaceProviderBuilder| builder.build().unwrap().searched();
        let all = words(builder());
        assert!(
            all.starts_with("namespaces of the host cluster. To add a cluster, create"),
            "{all}"
        );
        assert!(all.contains("may list and watch namespaces"), "{all}");
        let some = words(
            builder()
                .labels("team")
                .exclude(["kube-system", "kube-public"])
                .filter(|_| true),
        );
        assert!(
            some.starts_with(
                "namespaces of the host cluster with labels team, without kube-public, kube-system, whose names pass the filter \
                 function. To add"
            ),
            "{some}"
        );
    }

    #[test]
    fn the_provider_shows_no_secret() {
        let provider = builder()
            .exclude(["kube-system"])
            .filter(|name| name != "x")
            .build()
            .unwrap();
        assert_eq!(provider.name(), "namespace");
        for shown in [format!("{provider:?}"), format!("{:?}", builder())] {
            assert!(!shown.contains("secret"), "{shown}");
        }
        let choice = &provider.config.choice;
        assert!(choice.selects("a") && !choice.selects("kube-system") && !choice.selects("x"));
    }
}
