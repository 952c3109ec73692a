//! The access providers that the operator of this program has configured: which plugin to run, and what a profile may add.

use std::{collections::HashSet, fmt, fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_core::{AllowedPlugin, CredentialPluginPolicy, PluginService, plugin_at};
use serde::Deserialize;

use crate::error::AccessProvidersError;

/// The access providers that a program knows, in the order of preference.
///
/// A ClusterProfile names the access providers through which its cluster can be reached. The first of this list that the profile
/// names is used. [`from_file`](Self::from_file) reads the provider file of the Cluster Inventory API (KEP-4322), which
/// other consumers take with `--clusterprofile-provider-file`.
///
/// ```
/// use mcr_core::AccessPolicy;
/// use mcr_provider_cluster_inventory::{AccessProviderConfig, AccessProviders, ArgsPolicy};
///
/// let providers = AccessProviders::new([
///     AccessProviderConfig::new("kubeconfig-secretreader", "/plugins/kubeconfig-secretreader")
///         .provide_cluster_info(true),
///     AccessProviderConfig::new("cloud", "/plugins/cloud-login")
///         .args(["token"])
///         .args_policy(ArgsPolicy::Append)
///         .profile_args(["--tenant", "*"]),
/// ])?;
/// // The fleet must allow the plugins too.
/// let policy = AccessPolicy::default().credential_plugins(providers.plugin_policy());
/// # Ok::<(), mcr_provider_cluster_inventory::AccessProvidersError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessProviders(pub(crate) Vec<AccessProviderConfig>);

/// One access provider: a plugin, and what a profile may add to its arguments and its environment.
#[must_use]
#[derive(Clone, PartialEq, Eq)]
pub struct AccessProviderConfig {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) api_version: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) install_hint: Option<String>,
    pub(crate) provide_cluster_info: bool,
    pub(crate) args_policy: ArgsPolicy,
    pub(crate) env_policy: EnvPolicy,
    pub(crate) profile_args: Vec<Vec<String>>,
    pub(crate) profile_env: Vec<String>,
    authority: Option<Vec<u8>>,
    service: Option<PluginService>,
}

/// Whether a profile may add arguments to the plugin, with the extension [`ARGS_EXTENSION`](crate::ARGS_EXTENSION).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgsPolicy {
    /// The arguments of the profile are ignored.
    #[default]
    Ignore,
    /// The arguments of the profile follow those of the configuration, if
    /// [`profile_args`](AccessProviderConfig::profile_args) allows them.
    Append,
}

/// Whether a profile may set environment variables of the plugin, with the extension [`ENV_EXTENSION`](crate::ENV_EXTENSION).
/// It may only set those that [`profile_env`](AccessProviderConfig::profile_env) names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EnvPolicy {
    /// The variables of the profile are ignored.
    #[default]
    Ignore,
    /// The profile adds variables. The value of the configuration counts for a variable that both have.
    AppendIfNotExists,
    /// The profile adds variables. The value of the profile counts for a variable that both have.
    Replace,
}

impl AccessProviders {
    /// These access providers, the preferred one first.
    ///
    /// # Errors
    /// [`AccessProvidersError`] if one has no name or no command, or an unknown version of the protocol, or if two have the same
    /// name.
    pub fn new(
        providers: impl IntoIterator<Item = AccessProviderConfig>,
    ) -> Result<Self, AccessProvidersError> {
        let mut providers: Vec<_> = providers.into_iter().collect();
        let mut names = HashSet::new();
        for (number, provider) in providers.iter_mut().enumerate() {
            let name = &provider.name;
            if name.is_empty() {
                return Err(AccessProvidersError::NoName(number));
            }
            if provider.command.is_empty() {
                return Err(AccessProvidersError::NoCommand(name.clone()));
            }
            if !matches!(&*provider.api_version, V1 | V1BETA1) {
                return Err(AccessProvidersError::ApiVersion(name.clone()));
            }
            if !names.insert(name.clone()) {
                return Err(AccessProvidersError::Twice(name.clone()));
            }
            if provider.service.is_none() && provider.command.contains("://") {
                let service = plugin_at(&provider.command, provider.authority.as_deref());
                let service = service.map_err(|why| AccessProvidersError::Service(name.clone(), why))?;
                provider.set_service(service);
            }
        }
        Ok(Self(providers))
    }

    /// Reads the JSON of a provider file. Unknown fields are ignored.
    ///
    /// # Errors
    /// [`AccessProvidersError`] if this is not the JSON of a provider file, or as [`new`](Self::new). The text holds no value of
    /// an argument or of an environment variable.
    ///
    /// ```
    /// use mcr_provider_cluster_inventory::AccessProviders;
    ///
    /// let file = r#"{"providers": [{
    ///     "name": "secretreader",
    ///     "execConfig": {
    ///         "apiVersion": "client.authentication.k8s.io/v1", "command": "/plugins/secretreader", "provideClusterInfo": true
    ///     },
    ///     "profileSourcedEnvVarsPolicy": "AppendIfNotExists"
    /// }]}"#;
    /// let providers = AccessProviders::from_json(file)?;
    /// # Ok::<(), mcr_provider_cluster_inventory::AccessProvidersError>(())
    /// ```
    pub fn from_json(json: impl AsRef<[u8]>) -> Result<Self, AccessProvidersError> {
        let file: File = serde_json::from_slice(json.as_ref())
            .map_err(|error| AccessProvidersError::Json(error.line(), error.column()))?;
        let mut providers = Vec::new();
        for provider in file.providers.unwrap_or_default() {
            let Some(exec) = provider.exec_config else {
                return Err(AccessProvidersError::NoCommand(provider.name));
            };
            let args_policy = match &*provider.args_policy {
                "" | "Ignore" => ArgsPolicy::Ignore,
                "Append" => ArgsPolicy::Append,
                _ => return Err(AccessProvidersError::ArgsPolicy(provider.name)),
            };
            let env_policy = match &*provider.env_policy {
                "" | "Ignore" => EnvPolicy::Ignore,
                "AppendIfNotExists" => EnvPolicy::AppendIfNotExists,
                "Replace" => EnvPolicy::Replace,
                _ => return Err(AccessProvidersError::EnvPolicy(provider.name)),
            };
            let authority = provider.authority.map(|data| STANDARD.decode(data)).transpose();
            let authority = authority.map_err(|_| AccessProvidersError::Authority(provider.name.clone()))?;
            let env = exec.env.into_iter().flatten();
            providers.push(AccessProviderConfig {
                name: provider.name,
                command: exec.command,
                api_version: exec.api_version,
                args: exec.args.unwrap_or_default(),
                env: env.map(|variable| (variable.name, variable.value)).collect(),
                profile_args: provider.profile_args,
                profile_env: provider.profile_env,
                authority,
                service: None,
                install_hint: exec.install_hint.filter(|hint| !hint.is_empty()),
                provide_cluster_info: exec.provide_cluster_info,
                args_policy,
                env_policy,
            });
        }
        Self::new(providers)
    }

    /// Reads a provider file. Blocks.
    ///
    /// The file is read once: a change of the file needs another provider.
    ///
    /// # Errors
    /// [`AccessProvidersError`] if the file can't be read, or as [`from_json`](Self::from_json).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, AccessProvidersError> {
        let path = path.as_ref();
        let json = fs::read(path)
            .map_err(|error| AccessProvidersError::Read(path.display().to_string(), error.kind()))?;
        Self::from_json(json)
    }

    /// Allows the plugins of these access providers and no others, with the arguments and variables of the configuration and
    /// those that a profile may add, for `FleetSettings::access_policy`.
    pub fn plugin_policy(&self) -> CredentialPluginPolicy {
        CredentialPluginPolicy::allowlist(self.0.iter().map(AccessProviderConfig::allowed))
    }
}

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

impl AccessProviderConfig {
    /// An access provider of this name, which runs this command: an absolute path, or a name to look up in `PATH`. The plugin
    /// speaks `client.authentication.k8s.io/v1`, and gets nothing from profiles.
    ///
    /// With `unix:///path/of/a/socket` or `https://host:port/path` it asks this service instead; see [`plugin_at`]. A service gets
    /// neither arguments nor variables.
    pub fn new(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            api_version: V1.into(),
            args: Vec::new(),
            env: Vec::new(),
            install_hint: None,
            provide_cluster_info: false,
            args_policy: ArgsPolicy::Ignore,
            env_policy: EnvPolicy::Ignore,
            profile_args: Vec::new(),
            profile_env: Vec::new(),
            authority: None,
            service: None,
        }
    }

    /// Lets this service answer instead of a program.
    ///
    /// ```
    /// use mcr_core::PluginService;
    /// use mcr_provider_cluster_inventory::AccessProviderConfig;
    ///
    /// # fn example(secret_reader: PluginService) {
    /// // Such as `mcr_exec_secretreader::service(secrets_only)`.
    /// let config = AccessProviderConfig::new("kubeconfig-secretreader", "")
    ///     .service(secret_reader)
    ///     .provide_cluster_info(true);
    /// # }
    /// ```
    pub fn service(mut self, service: PluginService) -> Self {
        self.set_service(service);
        self
    }

    /// No program and no other service has the command then. Names are no keys: two hubs may have access providers of one name, and one
    /// policy for both.
    fn set_service(&mut self, service: PluginService) {
        self.command = format!("service:{}#{}", self.name, service.number());
        self.service = Some(service);
    }

    /// Sets the authority that has signed the certificate of a service at an https address, in PEM. Default: those of this machine.
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// What this access provider lets a profile ask for.
    pub(crate) fn allowed(&self) -> AllowedPlugin {
        let own = self.env.iter();
        let own = own.fold(AllowedPlugin::new(&self.command), |plugin, (name, value)| {
            plugin.env_value(name, value)
        });
        let own = match &self.service {
            Some(service) => own.service(service.clone()),
            None => own,
        };
        let plugin = own
            .cluster_info(self.provide_cluster_info)
            .args_after(&self.args, [""; 0])
            .env(self.profile_env.iter().filter(|name| self.lets_set(name)));
        match self.args_policy {
            ArgsPolicy::Ignore => plugin,
            ArgsPolicy::Append => self
                .profile_args
                .iter()
                .fold(plugin, |plugin, more| plugin.args_after(&self.args, more)),
        }
    }

    /// Whether the policy for variables gives a profile this one, if it is listed.
    fn lets_set(&self, name: &str) -> bool {
        match self.env_policy {
            EnvPolicy::Ignore => false,
            EnvPolicy::AppendIfNotExists => self.env.iter().all(|(own, _)| own != name),
            EnvPolicy::Replace => true,
        }
    }

    /// Sets the version of the protocol: `client.authentication.k8s.io/v1` or `client.authentication.k8s.io/v1beta1`.
    pub fn api_version(mut self, version: impl Into<String>) -> Self {
        self.api_version = version.into();
        self
    }

    /// Adds arguments of the plugin.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds an environment variable of the plugin. The plugin also gets the environment of this process.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Sets the advice in the error text if the plugin does not exist.
    pub fn install_hint(mut self, hint: impl Into<String>) -> Self {
        self.install_hint = Some(hint.into());
        self
    }

    /// Sets whether the plugin gets the cluster in `KUBERNETES_EXEC_INFO`, with the extension
    /// [`EXEC_EXTENSION`](crate::EXEC_EXTENSION) of the profile as its configuration. Default: no.
    pub fn provide_cluster_info(mut self, on: bool) -> Self {
        self.provide_cluster_info = on;
        self
    }

    /// Sets whether a profile may add arguments. Default: it may not. The arguments are those of
    /// [`profile_args`](Self::profile_args).
    pub fn args_policy(mut self, policy: ArgsPolicy) -> Self {
        self.args_policy = policy;
        self
    }

    /// Sets whether a profile may set environment variables. Default: it may not. The variables are those of
    /// [`profile_env`](Self::profile_env).
    pub fn env_policy(mut self, policy: EnvPolicy) -> Self {
        self.env_policy = policy;
        self
    }

    /// Lets a profile add this list of arguments, whole and in this order. `*` stands for one argument that the profile
    /// chooses, which must not be empty and not begin with `-`. May be called several times, for several lists. Default: none.
    pub fn profile_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.profile_args.push(args.into_iter().map(Into::into).collect());
        self
    }

    /// Lets a profile set these environment variables, but never `PATH`, `LD_*` and `DYLD_*`. Default: none.
    pub fn profile_env<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.profile_env.extend(names.into_iter().map(Into::into));
        self
    }
}

// Arguments and environment can contain secrets.
impl fmt::Debug for AccessProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessProviderConfig")
            .field("name", &self.name)
            .field("command", &self.command)
            .field("args_policy", &self.args_policy)
            .field("env_policy", &self.env_policy)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    providers: Option<Vec<Provider>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    #[serde(default)]
    name: String,
    #[serde(default)]
    exec_config: Option<Exec>,
    #[serde(default, rename = "profileSourcedCLIArgsPolicy")]
    args_policy: String,
    #[serde(default, rename = "profileSourcedEnvVarsPolicy")]
    env_policy: String,
    #[serde(default, rename = "mcr.dev/profileSourcedCLIArgs")]
    profile_args: Vec<Vec<String>>,
    #[serde(default, rename = "mcr.dev/profileSourcedEnvVars")]
    profile_env: Vec<String>,
    #[serde(default, rename = "mcr.dev/certificateAuthorityData")]
    authority: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Exec {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    #[serde(default)]
    install_hint: Option<String>,
    #[serde(default)]
    provide_cluster_info: bool,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    #[serde(default)]
    value: String,
}

#[cfg(test)]
mod tests;
