//! The contexts of the kubeconfig files that kubectl would use.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use mcr_core::{ContextAccess, KubeconfigAccess, KubeconfigFile};

use crate::output::printable;

/// The contexts of some kubeconfig files.
#[derive(Debug)]
pub(crate) struct Contexts {
    found: Vec<ContextAccess>,
    from: String,
}

impl Contexts {
    /// Reads a file, or the files that kubectl would use.
    pub(crate) fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let paths = match file {
            Some(file) => vec![file.to_owned()],
            None => default_paths(),
        };
        let from = match paths.as_slice() {
            [] => "no file".to_owned(),
            some => some
                .iter()
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
                .join(", "),
        };
        let mut files = Vec::new();
        let by_variable = file.is_none() && variable_paths().is_some();
        for path in paths {
            match std::fs::read(&path) {
                Ok(bytes) => files.push(KubeconfigFile::new(path, bytes)),
                // As in kubectl: if several files are named, some may be missing.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && file.is_none() => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("can't read kubeconfig {}", path.display()));
                }
            }
        }
        if by_variable && files.is_empty() {
            bail!("{from} does not exist ($KUBECONFIG names it)");
        }
        let found = mcr_core::contexts(&files);
        if let Some(broken) = found.iter().find(|entry| entry.context.is_none())
            && let Err(error) = &broken.access
        {
            bail!("{}: {error}", broken.file.display());
        }
        Ok(Self { found, from })
    }

    /// A context by its name.
    pub(crate) fn named(&self, flag: &str, name: &str) -> anyhow::Result<(String, KubeconfigAccess)> {
        let found = self
            .found
            .iter()
            .find(|entry| entry.context.as_deref() == Some(name));
        let Some(found) = found else {
            bail!(
                "{flag} {name}: there is no such context in {} ({})",
                self.from,
                self.list()
            );
        };
        Self::usable(flag, found)
    }

    /// The current context.
    pub(crate) fn current(&self, flag: &str) -> anyhow::Result<(String, KubeconfigAccess)> {
        match self.found.iter().find(|entry| entry.current) {
            Some(found) => Self::usable(flag, found),
            None => bail!(
                "{} has no current context; choose one with {flag} ({})",
                self.from,
                self.list()
            ),
        }
    }

    /// Whether the files have no contexts.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    fn usable(flag: &str, entry: &ContextAccess) -> anyhow::Result<(String, KubeconfigAccess)> {
        let name = entry.context.as_deref().unwrap_or_default();
        let place = || format!("{flag} {name} ({})", entry.file.display());
        let access = entry.access.clone().with_context(place)?;
        let parsed = access.parse().with_context(place)?;
        parsed.check_files().with_context(place)?;
        Ok((name.to_owned(), access))
    }

    fn list(&self) -> String {
        let names: Vec<&str> = self
            .found
            .iter()
            .filter_map(|entry| entry.context.as_deref())
            .collect();
        match names.as_slice() {
            [] => "there are none".to_owned(),
            names => printable(&format!("there are {}", names.join(", "))),
        }
    }
}

/// The files that kubectl would use.
fn default_paths() -> Vec<PathBuf> {
    variable_paths().unwrap_or_else(|| {
        let home = env::home_dir().map(|home| home.join(".kube").join("config"));
        home.into_iter().collect()
    })
}

/// The files that `$KUBECONFIG` names. `None` if the variable is not set or empty.
pub(crate) fn variable_paths() -> Option<Vec<PathBuf>> {
    let list = env::var_os("KUBECONFIG").filter(|list| !list.is_empty())?;
    let paths = env::split_paths(&list).filter(|path| !path.as_os_str().is_empty());
    Some(paths.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_is_not_there_is_answered_with_those_that_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let yaml = "contexts:\n- {name: kind-a, context: {cluster: c, user: u}}\n- {name: kind-b, context: {cluster: c, user: u}}\n\
                    clusters: [{name: c, cluster: {server: 'https://c.example'}}]\nusers: [{name: u, user: {token: CANARY}}]\n";
        std::fs::write(&path, yaml).unwrap();
        let contexts = Contexts::read(Some(&path)).unwrap();
        assert_eq!(contexts.named("--context", "kind-b").unwrap().0, "kind-b");
        // `kubeconfig-secret create` writes there, so the end of a name is not enough.
        assert!(contexts.named("--context", "b").is_err() && contexts.named("--context", "-b").is_err());
        let error = contexts.named("--context", "kind-c").unwrap_err().to_string();
        assert!(
            error.contains("kind-c") && error.ends_with("(there are kind-a, kind-b)"),
            "{error}"
        );
        let error = contexts.current("--hub-context").unwrap_err().to_string();
        assert!(
            error.contains("no current context") && error.contains("--hub-context"),
            "{error}"
        );

        std::fs::write(&path, "users: [{name: u, user: {token: CANARY").unwrap();
        let error = format!("{:#}", Contexts::read(Some(&path)).unwrap_err());
        assert!(error.contains("line ") && !error.contains("CANARY"), "{error}");
        let error = format!(
            "{:#}",
            Contexts::read(Some(&dir.path().join("none"))).unwrap_err()
        );
        assert!(error.contains("can't read kubeconfig"), "{error}");
    }
}
