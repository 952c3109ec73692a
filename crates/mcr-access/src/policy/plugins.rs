//! Which programs an untrusted kubeconfig may run.

use std::{
    collections::BTreeSet,
    env,
    path::{Component, Path, PathBuf},
};

/// The exec credential plugins that an untrusted kubeconfig may run. The variants have the names of
/// `credentialPluginPolicy` in Kubernetes.
///
/// An allowed plugin gets its arguments and environment from the kubeconfig.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialPluginPolicy {
    /// No plugin.
    #[default]
    DenyAll,
    /// Every plugin. The author of a kubeconfig can then run any program with the rights of this process.
    AllowAll,
    /// These commands: paths, or names to look up in `PATH`. A command of a kubeconfig is allowed if it leads to the same
    /// file as one of them.
    Allowlist(BTreeSet<PathBuf>),
}

impl CredentialPluginPolicy {
    /// Allows these commands; see [`Allowlist`](Self::Allowlist).
    pub fn allowlist<P: Into<PathBuf>>(commands: impl IntoIterator<Item = P>) -> Self {
        Self::Allowlist(commands.into_iter().map(Into::into).collect())
    }

    pub(crate) fn allows(&self, command: &Path) -> bool {
        match self {
            Self::DenyAll => false,
            Self::AllowAll => true,
            // A relative path would depend on the working directory of this process.
            Self::Allowlist(allowed) => {
                (command.is_absolute() || is_bare(command))
                    && (allowed.contains(command)
                        || look_up(command).is_some_and(|file| {
                            allowed
                                .iter()
                                .any(|allowed| look_up(allowed).as_ref() == Some(&file))
                        }))
            }
        }
    }
}

fn is_bare(command: &Path) -> bool {
    command.components().count() == 1 && matches!(command.components().next(), Some(Component::Normal(_)))
}

/// Finds the file of a command, with all links resolved.
fn look_up(command: &Path) -> Option<PathBuf> {
    if !is_bare(command) {
        return command
            .is_absolute()
            .then(|| command.canonicalize().ok())
            .flatten();
    }
    env::split_paths(&env::var_os("PATH")?)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|file| file.is_file())?
        .canonicalize()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_allowed_by_the_file_they_lead_to() {
        let policy = CredentialPluginPolicy::allowlist(["sh", "/opt/missing"]);
        assert!(policy.allows(Path::new("sh")));
        assert!(policy.allows(&look_up(Path::new("sh")).unwrap()));
        assert!(policy.allows(Path::new("/opt/missing")));
        for command in [
            "./sh",
            "bin/../sh",
            "cat",
            "/bin/cat",
            "",
            "..",
            "missing",
            "/opt/../opt/missing",
        ] {
            assert!(!policy.allows(Path::new(command)), "{command}");
        }
        assert!(!CredentialPluginPolicy::DenyAll.allows(Path::new("sh")));
        assert!(CredentialPluginPolicy::AllowAll.allows(Path::new("./anything")));
    }
}
