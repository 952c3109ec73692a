use std::sync::{Arc, atomic::AtomicBool};

use mcr_core::{Access, ClusterName, Scope, Trust};

use crate::{
    config::{Config, ExportName},
    error::KcpError,
    labels::LabelKeys,
    layout::Layout,
    paths::Paths,
    provider::KcpProvider,
    readiness::Readiness,
    slice::Api,
};

/// The options that all providers have.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) name: Arc<str>,
    pub(crate) access: Option<Access>,
    pub(crate) name_prefix: String,
    pub(crate) label_keys: LabelKeys,
}

impl Options {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            access: None,
            name_prefix: String::new(),
            label_keys: LabelKeys::default(),
        }
    }
}

/// Builds a [`KcpProvider`]. [`KcpProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct KcpProviderBuilder {
    options: Options,
    api: Option<Api>,
    readiness: Readiness,
    allow_lossy_apply: bool,
}

impl KcpProvider {
    /// A builder. [`access`](KcpProviderBuilder::access), and [`slice`](KcpProviderBuilder::slice) or
    /// [`export`](KcpProviderBuilder::export), are required; all other options have defaults.
    pub fn builder() -> KcpProviderBuilder {
        KcpProviderBuilder {
            options: Options::new("kcp"),
            api: None,
            readiness: Readiness::default(),
            allow_lossy_apply: false,
        }
    }
}

impl KcpProviderBuilder {
    /// Sets the provider's name. Default: `kcp`. Two providers in a fleet need different names.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Sets how to reach the workspace of the endpoint slice: a trusted kubeconfig, or an address and a credential source.
    ///
    /// The address ends with `/clusters/<path or id>`. The provider connects to all endpoints with the same credentials and
    /// certificate authorities, so both must be valid for all shards.
    #[must_use]
    pub fn access(mut self, access: impl Into<Access>) -> Self {
        self.options.access = Some(access.into());
        self
    }

    /// Sets the APIExportEndpointSlice whose consumers become clusters. kcp creates one for each APIExport, with its name.
    #[must_use]
    pub fn slice(mut self, name: impl Into<Arc<str>>) -> Self {
        self.api = Some(Api::Slice(name.into()));
        self
    }

    /// Sets the APIExport whose consumers become clusters. The provider finds its endpoint slice in the workspace: the one
    /// that has the name of the export, or else the only one. This needs the right to list all endpoint slices there.
    #[must_use]
    pub fn export(mut self, name: impl Into<Arc<str>>) -> Self {
        self.api = Some(Api::Export(name.into()));
        self
    }

    /// Sets when a workspace is ready. A workspace that is not is suspended. Default: [`Readiness::Ready`].
    #[must_use]
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Sets the beginning of the names of all clusters. Default: none, so the id of the logical cluster is the name.
    ///
    /// A workspace that binds two exports has the same id in both. In a fleet with a provider for each export, give the
    /// providers different prefixes. Without them the fleet takes the workspace from the first provider only.
    #[must_use]
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.options.name_prefix = prefix.into();
        self
    }

    /// Sets the keys of the labels of an APIBinding that its cluster has, too, so that selectors select by them. Default: none.
    ///
    /// Whoever writes the binding chooses the values, which is the owner of the workspace. A value that an API server would refuse is
    /// left out. If several bindings of a workspace have a key, the one whose name is first decides.
    #[must_use]
    pub fn label_keys(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.label_keys = LabelKeys::new(keys);
        self
    }

    /// Allows server-side apply. Default: it is refused.
    ///
    /// kcp merges such a request into the object and sends the result as an update. A field that a later apply leaves out
    /// stays, and `managedFields` name no applier.
    #[must_use]
    pub fn allow_lossy_apply(mut self) -> Self {
        self.allow_lossy_apply = true;
        self
    }

    /// Builds the provider. Connects to nothing yet.
    ///
    /// # Errors
    /// [`KcpError`] if there is no workspace or API, if the access has no credentials that can be used for other addresses,
    /// or if a name or the key of a label is not valid.
    pub fn build(self) -> Result<KcpProvider, KcpError> {
        let api = self.api.ok_or(KcpError::NoApi);
        let config = configure(self.options, api, self.readiness, self.allow_lossy_apply)?;
        Ok(KcpProvider { config })
    }
}

/// Checks the options of a provider.
///
/// # Errors
/// If an option is missing or invalid.
pub(crate) fn configure(
    options: Options,
    api: Result<Api, KcpError>,
    readiness: Readiness,
    allow_apply: bool,
) -> Result<Arc<Config>, KcpError> {
    let access = options.access.ok_or(KcpError::NoWorkspace)?;
    let trust = match &access {
        Access::Kubeconfig(kubeconfig) => kubeconfig.trust,
        Access::Endpoint(access) => access.trust,
        _ => return Err(KcpError::NoCredentials),
    };
    if trust != Trust::Trusted {
        return Err(KcpError::Untrusted);
    }
    let api = api?;
    let is_name = |name: &str| {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_of_name)
    };
    if !is_name(api.name()) {
        return Err(KcpError::Name(api.name().to_owned()));
    }
    // The id of a logical cluster has at most 63 characters.
    if ClusterName::new(format!("{}{}", options.name_prefix, "x".repeat(63))).is_err() {
        return Err(KcpError::Prefix(options.name_prefix));
    }
    if let Some(key) = options.label_keys.invalid() {
        return Err(KcpError::LabelKey(key.to_owned()));
    }
    let export = ExportName::default();
    let layout = Layout::new(options.name.clone(), export.clone(), allow_apply, api.stage());
    Ok(Arc::new(Config {
        name: options.name,
        access,
        api,
        readiness,
        label_keys: options.label_keys,
        paths: Paths::new(&options.name_prefix),
        name_prefix: options.name_prefix,
        scope: Scope::new(layout),
        export,
        discovered: AtomicBool::new(false),
    }))
}

#[cfg(test)]
mod tests {
    use mcr_core::Provider;

    use super::*;

    fn builder() -> KcpProviderBuilder {
        let kubeconfig = Access::kubeconfig("secret", Trust::Trusted);
        KcpProvider::builder().access(kubeconfig).slice("mongodb")
    }

    #[test]
    fn bad_options_are_refused_with_what_to_do() {
        let error = |builder: KcpProviderBuilder| builder.build().unwrap_err();
        assert_eq!(error(KcpProvider::builder()), KcpError::NoWorkspace);
        let nameless = KcpProvider::builder().access(Access::kubeconfig("secret", Trust::Trusted));
        assert_eq!(error(nameless), KcpError::NoApi);
        assert_eq!(
            error(builder().access(Access::kubeconfig("secret", Trust::Untrusted))),
            KcpError::Untrusted
        );
        let nested = builder().build().unwrap().config.scope.place("a", "b");
        assert_eq!(error(builder().access(nested)), KcpError::NoCredentials);
        for bad in ["", "root:mongodb", "a/b", "Mongodb"] {
            assert_eq!(error(builder().export(bad)), KcpError::Name(bad.to_owned()));
        }
        assert_eq!(
            error(builder().name_prefix("a\n")),
            KcpError::Prefix("a\n".to_owned())
        );
        let long = "x".repeat(64);
        for bad in ["", "a b", "a/", "/a", "a/b/c", "A.b/c", "a..b/c", "-a", &long] {
            let error = error(builder().label_keys(["team", bad]));
            assert_eq!(error, KcpError::LabelKey(bad.to_owned()));
        }
        let good = ["team", "Team_2.x", "example.com/team", &long[1..]];
        assert!(builder().label_keys(good).build().is_ok());
        let long = "x".repeat(ClusterName::MAX_LEN - 62);
        assert_eq!(error(builder().name_prefix(&*long)), KcpError::Prefix(long));
        for error in [
            KcpError::NoWorkspace,
            KcpError::NoCredentials,
            KcpError::Untrusted,
            KcpError::NoApi,
        ] {
            let text = error.to_string();
            assert!(
                ["with `", "give a", "use a"]
                    .iter()
                    .any(|advice| text.contains(advice)),
                "{text}"
            );
        }
    }

    #[test]
    fn the_provider_reports_what_it_reads_and_shows_no_secret() {
        let provider = builder().build().unwrap();
        assert_eq!(provider.name(), "kcp");
        let searched = provider.searched();
        assert!(
            searched.contains("APIExportEndpointSlice mongodb") && searched.contains("APIBinding"),
            "{searched}"
        );
        for shown in [format!("{provider:?}"), format!("{:?}", builder())] {
            assert!(!shown.contains("secret"), "{shown}");
        }
    }
}
