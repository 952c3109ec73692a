//! Where the clusters come from: flags, and the providers this was compiled with.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use mcr::{AccessPolicy, AddressPolicy, FleetSettings, Provider};

/// A provider to choose with `--provider`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProviderKind {
    /// Every context of kubeconfig files is a cluster
    #[default]
    File,
    /// One cluster, named local: the current context of one kubeconfig
    Single,
    /// Each namespace of one cluster: of the current context of one kubeconfig
    Namespace,
    /// Each Secret with a kubeconfig in one cluster: in that of the current context of one kubeconfig
    Kubeconfig,
    /// Each kind cluster in Docker, nerdctl or Podman
    Kind,
}

/// Flags that say which clusters to work on.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterArgs {
    /// Where clusters come from
    #[arg(long, value_enum, default_value_t, help_heading = "Clusters")]
    pub provider: ProviderKind,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub files: FileArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "its text would become a help text of every example")]
    pub secrets: SecretArgs,
    /// With --provider kind: only clusters whose names begin so [default: all]
    #[arg(long, value_name = "PREFIX", help_heading = "Clusters")]
    pub prefix: Option<String>,
}

/// Flags of the file provider. Empty strings in the lists are ignored.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct FileArgs {
    /// Kubeconfig files; without files and folders it is what kubectl would use
    #[arg(
        long,
        value_name = "PATH[,PATH]",
        value_delimiter = ',',
        help_heading = "Clusters"
    )]
    pub kubeconfigs: Vec<String>,
    /// Folders with kubeconfig files
    #[arg(
        long,
        value_name = "PATH[,PATH]",
        value_delimiter = ',',
        help_heading = "Clusters"
    )]
    pub kubeconfig_dirs: Vec<String>,
    /// Which files of a folder are kubeconfigs [default: kubeconfig.yaml, *.kubeconfig and the like]
    #[arg(
        long,
        value_name = "GLOB[,GLOB]",
        value_delimiter = ',',
        help_heading = "Clusters"
    )]
    pub globs: Vec<String>,
}

/// Flags of the kubeconfig provider.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SecretArgs {
    /// With --provider kubeconfig: the namespace of the Secrets [default: that of the context]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Clusters")]
    pub namespace: Option<String>,
    /// With --provider kubeconfig: the label of the Secrets, with the value true [default:
    /// sigs.k8s.io/multicluster-runtime-kubeconfig]
    #[arg(long, value_name = "LABEL", help_heading = "Clusters")]
    pub kubeconfig_label: Option<String>,
    /// With --provider kubeconfig: the key of a Secret that has its kubeconfig [default: kubeconfig]
    #[arg(long, value_name = "KEY", help_heading = "Clusters")]
    pub kubeconfig_key: Option<String>,
    /// With --provider kubeconfig: let kubeconfigs lead to this machine, as those of kind do
    #[arg(long, help_heading = "Clusters")]
    pub allow_loopback: bool,
}

impl SecretArgs {
    /// What the kubeconfigs in Secrets may do: the provider's policy, and the fleet's.
    fn policy(&self) -> AccessPolicy {
        AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(self.allow_loopback))
    }
}

impl ClusterArgs {
    /// Settings of a fleet over these clusters.
    pub fn settings(&self, settings: &mut FleetSettings) {
        settings.access_policy = self.secrets.policy();
    }

    /// The provider that was asked for.
    ///
    /// # Errors
    /// If a flag makes no sense, or the provider was not compiled in.
    pub async fn provider(&self) -> anyhow::Result<Box<dyn Provider>> {
        match self.provider {
            ProviderKind::File => self.files.provider("--kubeconfigs", "--kubeconfig-dirs"),
            ProviderKind::Single => single(&self.files).await,
            ProviderKind::Namespace => namespace(&self.files).await,
            ProviderKind::Kubeconfig => kubeconfig(&self.files, &self.secrets).await,
            ProviderKind::Kind if self.files.is_empty() => kind(self.prefix.as_deref()),
            ProviderKind::Kind => {
                bail!("--kubeconfigs and --kubeconfig-dirs make no sense with --provider kind")
            }
        }
    }
}

impl FileArgs {
    /// Whether neither files nor folders are given.
    pub fn is_empty(&self) -> bool {
        given(&self.kubeconfigs)
            .chain(given(&self.kubeconfig_dirs))
            .next()
            .is_none()
    }

    /// The file provider. The names of its flags are for errors.
    ///
    /// # Errors
    /// If a flag makes no sense, or the provider was not compiled in.
    pub fn provider(&self, files: &str, dirs: &str) -> anyhow::Result<Box<dyn Provider>> {
        for path in given(&self.kubeconfigs) {
            if Path::new(path).is_dir() {
                bail!("{files} {path}: this is a folder; give it with {dirs}");
            }
            hint_if_missing(files, path);
        }
        for path in given(&self.kubeconfig_dirs) {
            if Path::new(path).is_file() {
                bail!("{dirs} {path}: this is a file; give it with {files}");
            }
            hint_if_missing(dirs, path);
        }
        file(self)
    }
}

fn given(list: &[String]) -> impl Iterator<Item = &str> {
    list.iter().map(String::as_str).filter(|text| !text.is_empty())
}

/// A path that does not exist yet is fine, but may as well be a typing error.
fn hint_if_missing(flag: &str, path: &str) {
    if !Path::new(path).exists() {
        tracing::warn!(
            path,
            "{flag}: there is nothing yet; its clusters join once there is"
        );
    }
}

#[cfg(feature = "file")]
fn file(args: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    let provider = mcr_provider_file::FileProvider::builder()
        .files(&args.kubeconfigs)
        .dirs(&args.kubeconfig_dirs)
        .globs(&args.globs)
        .build()
        .context("--globs")?;
    Ok(Box::new(provider))
}

#[cfg(not(feature = "file"))]
fn file(_: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    bail!("--provider file: compiled without the provider file: add --features file")
}

/// The one cluster that a provider works on.
#[cfg(any(feature = "single", feature = "namespace"))]
async fn only(args: &FileArgs, provider: &str) -> anyhow::Result<mcr::Access> {
    let files: Vec<&str> = given(&args.kubeconfigs).collect();
    if given(&args.kubeconfig_dirs).next().is_some() {
        bail!("--kubeconfig-dirs makes no sense with --provider {provider}");
    }
    match files[..] {
        // As kubectl finds it, or the service account of the pod this runs in.
        [] => Ok(mcr::Access::from(
            kube::Client::try_default()
                .await
                .context("can't find a cluster to connect to")?,
        )),
        [file] => access_of("--kubeconfigs", Path::new(file)),
        _ => bail!(
            "--kubeconfigs: --provider {provider} takes one file, not {}",
            files.len()
        ),
    }
}

#[cfg(feature = "single")]
async fn single(args: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    use mcr_provider_single::SingleProvider;
    let access = only(args, "single").await?;
    Ok(Box::new(SingleProvider::named(mcr::SINGLE_CLUSTER, access)?))
}

#[cfg(not(feature = "single"))]
async fn single(_: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    bail!("--provider single: compiled without the provider single: add --features single")
}

#[cfg(feature = "namespace")]
async fn namespace(args: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    let host = only(args, "namespace").await?;
    let provider = mcr_provider_namespace::NamespaceProvider::builder()
        .access(host)
        .build()?;
    Ok(Box::new(provider))
}

#[cfg(not(feature = "namespace"))]
async fn namespace(_: &FileArgs) -> anyhow::Result<Box<dyn Provider>> {
    bail!("--provider namespace: compiled without the provider namespace: add --features namespace")
}

#[cfg(feature = "kubeconfig")]
async fn kubeconfig(files: &FileArgs, secrets: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    use kube::config::{Config, KubeConfigOptions, Kubeconfig};
    use mcr_provider_kubeconfig::{KubeconfigProvider, SECRET_KEY, SECRET_LABEL};
    if given(&files.kubeconfig_dirs).next().is_some() {
        bail!("--kubeconfig-dirs makes no sense with --provider kubeconfig");
    }
    let paths: Vec<&str> = given(&files.kubeconfigs).collect();
    let hub = match paths[..] {
        [path] => {
            let named = || format!("--kubeconfigs {path}");
            let file = Kubeconfig::read_from(path).with_context(named)?;
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            kube::Client::try_from(config.with_context(named)?).with_context(named)?
        }
        [] => kube::Client::try_default()
            .await
            .context("can't find a cluster to connect to")?,
        _ => bail!(
            "--kubeconfigs: --provider kubeconfig takes one file, not {}",
            paths.len()
        ),
    };
    let mut builder = KubeconfigProvider::builder()
        .client(hub)
        .label(
            secrets.kubeconfig_label.as_deref().unwrap_or(SECRET_LABEL),
            "true",
        )
        .key(secrets.kubeconfig_key.as_deref().unwrap_or(SECRET_KEY))
        .access_policy(secrets.policy());
    if let Some(namespace) = &secrets.namespace {
        builder = builder.namespace(namespace);
    }
    Ok(Box::new(builder.build()?))
}

#[cfg(not(feature = "kubeconfig"))]
async fn kubeconfig(_: &FileArgs, _: &SecretArgs) -> anyhow::Result<Box<dyn Provider>> {
    bail!("--provider kubeconfig: compiled without the provider kubeconfig: add --features kubeconfig")
}

#[cfg(feature = "kind")]
fn kind(prefix: Option<&str>) -> anyhow::Result<Box<dyn Provider>> {
    let provider = mcr_provider_kind::KindProvider::builder()
        .prefix(prefix.unwrap_or_default())
        .build()?;
    Ok(Box::new(provider))
}

#[cfg(not(feature = "kind"))]
fn kind(_: Option<&str>) -> anyhow::Result<Box<dyn Provider>> {
    bail!("--provider kind: compiled without the provider kind: add --features kind")
}

/// Access by the current context of a kubeconfig file, which whoever runs the program has named and so trusts.
///
/// # Errors
/// If the file can't be read or used, naming the flag.
pub fn access_of(flag: &str, path: &Path) -> anyhow::Result<mcr::Access> {
    use mcr::{AccessPolicy, KubeconfigAccess, Trust, core::check};
    let yaml = std::fs::read(path).with_context(|| format!("{flag} {}: can't read it", path.display()))?;
    let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    let access = KubeconfigAccess::new(yaml, Trust::Trusted).base_dir(folder);
    // Found out now rather than in the fleet's state: this file does not change while the program runs.
    check(&access, &AccessPolicy::default()).with_context(|| format!("{flag} {}", path.display()))?;
    Ok(access.into())
}
