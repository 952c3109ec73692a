//! The flags for the kubeconfig files of clusters.

use std::{ffi::OsString, path::PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};

/// The kubeconfig files whose contexts are clusters, for the provider `mcr-provider-file`:
///
/// ```
/// use mcr::args::KubeconfigArgs;
/// use mcr_provider_file::{FileError, FileProvider};
///
/// fn provider(args: &KubeconfigArgs) -> Result<FileProvider, FileError> {
///     FileProvider::builder().files(&args.kubeconfigs).dirs(&args.kubeconfig_dirs).globs(&args.globs).build()
/// }
/// ```
///
/// Without files and folders the provider uses the files that kubectl would use, such as those in `$KUBECONFIG`. A path
/// need not exist yet. The provider ignores empty paths and globs.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(about = None, long_about = None, next_help_heading = "Clusters")]
#[non_exhaustive]
pub struct KubeconfigArgs {
    /// Kubeconfig files whose contexts are clusters; without files and folders those that kubectl would use
    #[arg(
        long,
        visible_alias = "kubeconfig",
        value_name = "PATH[,PATH]",
        value_delimiter = ',',
        value_parser = OsStringValueParser::new().try_map(file)
    )]
    pub kubeconfigs: Vec<PathBuf>,
    /// Folders with kubeconfig files
    #[arg(
        long,
        value_name = "PATH[,PATH]",
        value_delimiter = ',',
        value_parser = OsStringValueParser::new().try_map(folder)
    )]
    pub kubeconfig_dirs: Vec<PathBuf>,
    /// Which files of a folder are kubeconfigs [default: kubeconfig.yaml, *.kubeconfig and the like]
    #[arg(long, value_name = "GLOB[,GLOB]", value_delimiter = ',')]
    pub globs: Vec<String>,
}

impl KubeconfigArgs {
    /// Whether the flags name neither a file nor a folder.
    pub fn is_empty(&self) -> bool {
        let mut paths = self.kubeconfigs.iter().chain(&self.kubeconfig_dirs);
        paths.all(|path| path.as_os_str().is_empty())
    }
}

fn file(text: OsString) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        Err("this is a folder; give it with --kubeconfig-dirs")
    } else {
        Ok(path)
    }
}

fn folder(text: OsString) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_file() {
        Err("this is a file; give it with --kubeconfigs")
    } else {
        Ok(path)
    }
}
