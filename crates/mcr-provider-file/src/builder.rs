use std::{path::PathBuf, sync::Arc, time::Duration};

use glob::Pattern;
use mcr_core::{ClusterName, Trust};

use crate::{
    config::Config,
    error::FileError,
    label::{FileContext, LabelFn},
    provider::FileProvider,
    search::Environment,
};

/// The default globs for the names of kubeconfig files in folders.
const DEFAULT_GLOBS: [&str; 5] = [
    "kubeconfig.yaml",
    "kubeconfig.yml",
    "*.kubeconfig",
    "*.kubeconfig.yaml",
    "*.kubeconfig.yml",
];

/// Builds a [`FileProvider`]. [`FileProvider::builder`] creates it.
#[derive(Debug, Clone)]
pub struct FileProviderBuilder {
    name: Arc<str>,
    /// Empty: the default globs apply.
    globs: Vec<String>,
    /// The other options. Its globs are empty until `build`.
    config: Config,
}

impl FileProvider {
    /// A builder. Without options, the provider finds the same kubeconfigs as kubectl: the files in `$KUBECONFIG`,
    /// otherwise `~/.kube/config`, otherwise kubeconfigs in the working directory.
    pub fn builder() -> FileProviderBuilder {
        FileProviderBuilder {
            name: "file".into(),
            globs: Vec::new(),
            config: Config {
                files: Vec::new(),
                dirs: Vec::new(),
                globs: Vec::new(),
                separator: "+".into(),
                qualified: false,
                labels: None,
                trust: Trust::Trusted,
                poll: Duration::from_secs(10),
                debounce: Duration::from_millis(100),
                notifications: true,
                environment: None,
            },
        }
    }
}

impl FileProviderBuilder {
    /// Sets the provider's name. Default: `file`.
    #[must_use]
    pub fn provider_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a kubeconfig file. The file may not exist yet. An empty path is ignored.
    #[must_use]
    pub fn file(self, path: impl Into<PathBuf>) -> Self {
        self.files([path])
    }

    /// Adds kubeconfig files; see [`file`](Self::file). The files are not merged: a context refers to clusters and
    /// users of its own file.
    #[must_use]
    pub fn files(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.config.files.extend(non_empty(paths));
        self
    }

    /// Adds a folder. The files in it whose names match a [glob](Self::globs) are kubeconfigs. Folders inside it are
    /// ignored. The folder may not exist yet. An empty path is ignored.
    #[must_use]
    pub fn dir(self, path: impl Into<PathBuf>) -> Self {
        self.dirs([path])
    }

    /// Adds folders; see [`dir`](Self::dir).
    #[must_use]
    pub fn dirs(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.config.dirs.extend(non_empty(paths));
        self
    }

    /// Sets the globs for the names of kubeconfig files in a folder. Default: `kubeconfig.yaml`, `kubeconfig.yml`,
    /// `*.kubeconfig`, `*.kubeconfig.yaml` and `*.kubeconfig.yml`.
    ///
    /// Empty globs are ignored. If no others are given, the default stays. A leading dot in a name is only matched by
    /// a literal dot, so hidden files of editors are ignored.
    #[must_use]
    pub fn globs(mut self, globs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.globs = globs
            .into_iter()
            .map(Into::into)
            .filter(|glob| !glob.is_empty())
            .collect();
        self
    }

    /// Names each cluster by file and context: `/etc/fleet/a.kubeconfig+dev`. Default: by context alone, `dev`.
    ///
    /// Use this for files that have the same context names for different clusters, for example `default`. It does not
    /// help with the files in `$KUBECONFIG`: they are merged as by kubectl, so a context that an earlier file also
    /// defines has no cluster of its own. Add such files with [`file`](Self::file) instead.
    ///
    /// ```
    /// use mcr_provider_file::FileProvider;
    ///
    /// let provider = FileProvider::builder().dir("/etc/fleet").qualified_names().build()?;
    /// # Ok::<(), mcr_provider_file::FileError>(())
    /// ```
    #[must_use]
    pub fn qualified_names(mut self) -> Self {
        self.config.qualified = true;
        self
    }

    /// Adds labels to clusters, so that controllers can select clusters by them.
    ///
    /// The function gets a context of a file and returns its labels. They are added to the labels in the
    /// [file](crate::LABELS_EXTENSION), and replace labels of the same name. The provider calls the function whenever
    /// it reads the file, on a thread that may block. If the function panics for a context, that context is broken.
    ///
    /// ```
    /// use mcr_provider_file::FileProvider;
    ///
    /// // prod-eu and prod-us are in production.
    /// let provider = FileProvider::builder()
    ///     .labels(|context| context.context.starts_with("prod-").then_some(("env", "prod")))
    ///     .build()?;
    /// # Ok::<(), mcr_provider_file::FileError>(())
    /// ```
    #[must_use]
    pub fn labels<L, K, V>(mut self, labels: impl Fn(&FileContext<'_>) -> L + Send + Sync + 'static) -> Self
    where
        L: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        self.config.labels = Some(LabelFn::new(labels));
        self
    }

    /// Sets the text between path and context in a [qualified name](Self::qualified_names). Default: `+`.
    #[must_use]
    pub fn separator(mut self, separator: impl Into<String>) -> Self {
        self.config.separator = separator.into();
        self
    }

    /// Sets the trust in the files. Default: [`Trust::Trusted`], so they may name programs to execute and files to
    /// read. Use [`Trust::Untrusted`] if others can write the files.
    #[must_use]
    pub fn trust(mut self, trust: Trust) -> Self {
        self.config.trust = trust;
        self
    }

    /// Sets how often the files are checked without a notification. Default: 10 s.
    ///
    /// The provider polls even if the operating system sends notifications, because notifications can be lost, and
    /// network file systems send none. A poll costs one `stat` for each file. Only files whose metadata have changed
    /// are read.
    #[must_use]
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.config.poll = interval;
        self
    }

    /// Sets how long files must be unchanged before they are read. Default: 100 ms. Files that change all the time are
    /// read after ten times as long.
    #[must_use]
    pub fn debounce(mut self, quiet: Duration) -> Self {
        self.config.debounce = quiet;
        self
    }

    /// Sets whether to use the operating system's notifications of changes. Default: yes. Without them the provider
    /// notices changes by [polling](Self::poll_interval) only.
    #[must_use]
    pub fn notifications(mut self, on: bool) -> Self {
        self.config.notifications = on;
        self
    }

    /// Sets where to search if no files and no folders are given. Default: the environment of the process, which is
    /// read when the discovery starts.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.config.environment = Some(environment);
        self
    }

    /// Builds the provider. Reads no file yet.
    ///
    /// # Errors
    /// [`FileError`] if a glob is not a valid pattern for file names, the separator is empty or not printable, or the
    /// poll interval is zero.
    pub fn build(self) -> Result<FileProvider, FileError> {
        let (globs, mut config) = (self.globs, self.config);
        config.globs = if globs.is_empty() {
            let globs = DEFAULT_GLOBS.map(str::to_owned).into_iter();
            globs.map(pattern).collect::<Result<_, _>>()?
        } else {
            globs.into_iter().map(pattern).collect::<Result<_, _>>()?
        };
        // Any text that can be a name can also be a part of a name.
        if ClusterName::new(&config.separator).is_err() {
            return Err(FileError::Separator(config.separator));
        }
        if config.poll.is_zero() {
            return Err(FileError::PollInterval);
        }
        Ok(FileProvider {
            name: self.name,
            config: Arc::new(config),
            known: Arc::default(),
            searched: Arc::default(),
        })
    }
}

fn non_empty(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> impl Iterator<Item = PathBuf> {
    // An empty option, split by commas, yields one empty path, which would mean the working directory.
    paths
        .into_iter()
        .map(Into::into)
        .filter(|path| !path.as_os_str().is_empty())
}

fn pattern(glob: String) -> Result<Pattern, FileError> {
    if glob.contains(std::path::is_separator) {
        return Err(FileError::GlobWithFolder(glob));
    }
    Pattern::new(&glob).map_err(|error| FileError::Glob {
        why: error.msg.to_owned(),
        glob,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(builder: FileProviderBuilder) -> String {
        builder.build().expect_err("must be refused").to_string()
    }

    #[test]
    fn bad_options_are_refused_with_what_to_do() {
        let builder = FileProvider::builder;
        assert_eq!(
            error(builder().globs(["***"])),
            "glob \"***\" is not a valid pattern: wildcards are either regular `*` or recursive `**`; see \
             https://docs.rs/glob for the syntax"
        );
        assert_eq!(
            error(builder().globs(["a/*.yaml"])),
            "glob \"a/*.yaml\" has a path separator, but globs are matched with file names; give the folder with \
             `dir` and only the file's pattern with `globs`"
        );
        assert_eq!(
            error(builder().separator("")),
            "separator \"\" is empty or has control or format characters; cluster names are made of path, separator and \
             context, so give one like \"+\""
        );
        assert!(error(builder().separator("\u{202e}")).starts_with(r#"separator "\u{202e}" is empty"#));
        assert_eq!(
            error(builder().poll_interval(Duration::ZERO)),
            "the poll interval is zero, which would keep a processor busy all the time; give at least a millisecond"
        );
    }
}
