use std::sync::Arc;

use mcr_core::{Access, Discovery, DiscoverySettings, Provider, doctor::Doctor};
use tokio_util::sync::CancellationToken;

use crate::{
    builder::{Options, configure},
    config::Config,
    doctor::KcpDoctor,
    error::KcpError,
    labels::LabelKeys,
    lifecycle::{Initializer, Terminator},
    paths::Paths,
    provider::discover,
    readiness::Readiness,
    slice::Api,
    stage::Stage,
};

/// Builds an [`InitializingWorkspaces`] or a [`TerminatingWorkspaces`], whose `builder` creates it.
#[derive(Debug, Clone)]
pub struct LifecycleBuilder<P> {
    stage: Stage,
    options: Options,
    of_type: Option<Arc<str>>,
    make: fn(Arc<Config>) -> P,
}

impl<P> LifecycleBuilder<P> {
    fn new(stage: Stage, name: &str, make: fn(Arc<Config>) -> P) -> Self {
        Self {
            stage,
            options: Options::new(name),
            of_type: None,
            make,
        }
    }

    /// Sets the provider's name. Default: `kcp-initializing` or `kcp-terminating`. Two providers in a fleet need different
    /// names.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Sets how to reach the workspace of the WorkspaceType: a trusted kubeconfig, or an address and a credential source.
    ///
    /// The address ends with `/clusters/<path or id>`. The provider connects to all endpoints with the same credentials and
    /// certificate authorities, so both must be valid for all shards.
    #[must_use]
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.options.access = Some(access.into());
        self
    }

    /// Sets the WorkspaceType whose workspaces become clusters. Workspaces of types that extend it are among them.
    ///
    /// The name of the type needs two characters or more: kcp never initializes the workspaces of a type with a shorter name.
    #[must_use]
    pub fn workspace_type(mut self, name: impl Into<Arc<str>>) -> Self {
        self.of_type = Some(name.into());
        self
    }

    /// Sets the beginning of the names of all clusters. Default: none, so the id of the logical cluster is the name.
    ///
    /// A workspace may wait for several initializers, and it may be a consumer of an APIExport, too. It has the same id for
    /// all of them. In a fleet with several providers of kcp, give them different prefixes. Without them the fleet takes the
    /// workspace from the first provider only.
    #[must_use]
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options.name_prefix = prefix.into();
        self
    }

    /// Sets the keys of the labels of a LogicalCluster that its cluster has, too. Default: none.
    ///
    /// Whoever may write the LogicalCluster chooses the values. A value that an API server would refuse is left out.
    #[must_use]
    pub fn label_keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.label_keys = LabelKeys::new(keys);
        self
    }

    /// Builds the provider. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KcpError`] if there is no workspace or type, if the access has no credentials that can be used for other addresses,
    /// or if a name is no valid name.
    pub fn build(self) -> Result<P, KcpError> {
        let api = self.of_type.map(|of_type| Api::Type(self.stage, of_type));
        let config = configure(
            self.options,
            api.ok_or(KcpError::NoType),
            Readiness::default(),
            true,
        )?;
        Ok((self.make)(config))
    }
}

macro_rules! lifecycle_provider {
    ($(#[$doc:meta])* $name:ident, $stage:ident, $hook:ident, $get:ident, $default:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            config: Arc<Config>,
        }

        impl $name {
            /// A builder. [`access`](LifecycleBuilder::access) and
            /// [`workspace_type`](LifecycleBuilder::workspace_type) are required; all other options have defaults.
            pub fn builder() -> LifecycleBuilder<Self> {
                LifecycleBuilder::new(Stage::$stage, $default, |config| Self { config })
            }

            #[doc = concat!("The ", stringify!($get), " of the type. `None` until a discovery has read the type.")]
            ///
            /// It is known before the first cluster is. It has the id of the type's workspace, so it is another one after that
            /// workspace was deleted and created again.
            pub fn $get(&self) -> Option<$hook> {
                let name = self.config.export.lock().clone()?;
                $hook::of_name(&name)
            }

            /// The paths of its workspaces, in both directions. Take the handle before the fleet takes the provider.
            pub fn paths(&self) -> Paths {
                self.config.paths.clone()
            }
        }

        impl Provider for $name {
            fn name(&self) -> &str {
                &self.config.name
            }

            fn doctor(&self) -> Option<Arc<dyn Doctor>> {
                Some(Arc::new(KcpDoctor::new(self.config.clone())))
            }

            fn searched(&self) -> String {
                format!(
                    "workspaces of kcp that wait for the {} of {}. kcp shows none most of the time; if one waits, check that \
                     its type is this one or extends it",
                    Stage::$stage.word(),
                    self.config.api
                )
            }

            /// Starts a discovery. Poll it within a tokio runtime with an enabled time driver.
            fn discover(&self, stop: CancellationToken) -> Discovery {
                self.discover_with(stop, &DiscoverySettings::default())
            }

            fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
                discover(&self.config, stop, settings)
            }
        }
    };
}

lifecycle_provider! {
    /// A provider whose clusters are the new workspaces that wait for the initializer of a WorkspaceType.
    ///
    /// A controller watches `logicalclusters.core.kcp.io`, prepares the workspace with the client of its cluster, and
    /// [removes](Initializer::remove) the initializer. The workspace then leaves the fleet. It also leaves when somebody else
    /// removes the initializer, and when it is being deleted. That is no deletion of its objects.
    ///
    /// Across all workspaces kcp shows LogicalClusters only, so other kinds can't be watched. The client of a cluster reads
    /// and writes all kinds of its workspace, with server-side apply, too.
    ///
    /// ```no_run
    /// use mcr_core::{doctor::Doctor, Access, Trust};
    /// use mcr_provider_kcp::{InitializingWorkspaces, KcpError};
    ///
    /// # fn example(kubeconfig: String) -> Result<InitializingWorkspaces, KcpError> {
    /// InitializingWorkspaces::builder()
    ///     .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
    ///     .workspace_type("managed")
    ///     .build()
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// Dropping a discovery, or cancelling its token, ends its watches and closes its connections.
    InitializingWorkspaces, Initializing, Initializer, initializer, "kcp-initializing"
}

lifecycle_provider! {
    /// A provider whose clusters are the deleted workspaces that wait for the terminator of a WorkspaceType.
    ///
    /// A controller watches `logicalclusters.core.kcp.io`, cleans up, and [removes](Terminator::remove) the terminator. The
    /// workspace then leaves the fleet. That is no deletion of its objects.
    ///
    /// kcp deletes the content of the workspace at once, and nothing can be created in its namespaces, so no Kubernetes event
    /// either. Only the workspace itself waits for the terminators. Put a finalizer on the objects that a controller needs for
    /// its clean-up.
    ///
    /// Across all workspaces kcp shows LogicalClusters only, so other kinds can't be watched. The client of a cluster reads
    /// and writes all kinds of its workspace. Name the kinds: in such a workspace kcp's discovery lists `core.kcp.io` only.
    ///
    /// ```no_run
    /// use mcr_core::{doctor::Doctor, Access, Trust};
    /// use mcr_provider_kcp::{KcpError, TerminatingWorkspaces};
    ///
    /// # fn example(kubeconfig: String) -> Result<TerminatingWorkspaces, KcpError> {
    /// TerminatingWorkspaces::builder()
    ///     .access(Access::kubeconfig(kubeconfig, Trust::Trusted))
    ///     .workspace_type("managed")
    ///     .build()
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// Dropping a discovery, or cancelling its token, ends its watches and closes its connections.
    TerminatingWorkspaces, Terminating, Terminator, terminator, "kcp-terminating"
}

#[cfg(test)]
mod tests {
    use mcr_core::Trust;

    use super::*;

    fn builder() -> LifecycleBuilder<InitializingWorkspaces> {
        InitializingWorkspaces::builder().access(Access::kubeconfig("secret", Trust::Trusted))
    }

    #[test]
    fn bad_options_are_refused_with_what_to_do() {
        let error = |builder: LifecycleBuilder<InitializingWorkspaces>| builder.build().unwrap_err();
        assert_eq!(error(InitializingWorkspaces::builder()), KcpError::NoWorkspace);
        assert_eq!(error(builder()), KcpError::NoType);
        assert!(KcpError::NoType.to_string().contains("with `workspace_type`"));
        assert_eq!(
            error(builder().workspace_type("root:managed")),
            KcpError::Name("root:managed".to_owned())
        );
        let provider = builder().workspace_type("managed").build().unwrap();
        assert_eq!(
            (provider.name(), provider.initializer()),
            ("kcp-initializing", None)
        );
        let searched = provider.searched();
        assert!(
            searched.contains("the initializer of WorkspaceType managed"),
            "{searched}"
        );
        let shown = format!("{provider:?}{:?}", builder());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
