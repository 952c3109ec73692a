//! Assigns names to clusters.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use mcr_core::{ClusterName, InvalidClusterName};

use crate::{
    config::Config,
    diff::Clusters,
    entry::{Entry, quoted, shown},
};

/// The names that are assigned so far. The first context that claims a name keeps it.
pub(crate) struct Names<'a> {
    config: &'a Config,
    owners: HashMap<ClusterName, (PathBuf, Arc<str>)>,
}

/// Why a cluster does not have the name of its context.
enum Refusal {
    /// The entry has no context, because it is broken for another reason.
    NoContext,
    NotUtf8,
    Invalid(InvalidClusterName),
    /// A context of this file has the name already.
    Taken(ClusterName, PathBuf),
}

impl<'a> Names<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        Self {
            config,
            owners: HashMap::new(),
        }
    }

    /// The name of a context. `None` if it can't have it. A context that claims its name again gets it again.
    pub(crate) fn claim(&mut self, entry: &Entry) -> Option<ClusterName> {
        self.name(entry).ok()
    }

    /// Assigns a name to every entry. An entry that can't have the name of its context becomes broken, under another
    /// name. An entry that equals the owner of its name is left out, because it is the same cluster.
    pub(crate) fn assign(config: &'a Config, entries: Vec<Entry>) -> Clusters {
        let mut names = Self::new(config);
        let (mut clusters, mut refused) = (BTreeMap::new(), Vec::new());
        for entry in entries {
            match names.name(&entry) {
                Ok(name) => drop(clusters.insert(name, entry.desired)),
                Err(refusal) => refused.push((entry, refusal)),
            }
        }
        for (entry, refusal) in refused {
            if let Refusal::Taken(name, _) = &refusal
                && clusters
                    .get(name)
                    .is_some_and(|owner| owner.is_same(&entry.desired))
            {
                continue;
            }
            let qualified = names.qualified(&entry.file.to_string_lossy(), entry.context.as_deref());
            let desired = match names.explain(&entry, &refusal) {
                Some(error) => entry.broken(&error).desired,
                None => entry.desired,
            };
            let slug = ClusterName::unchecked(&*qualified).slug();
            let free = [qualified, slug]
                .into_iter()
                .filter_map(|name| ClusterName::new(name).ok());
            match free.into_iter().find(|name| !clusters.contains_key(name)) {
                Some(name) => drop(clusters.insert(name, desired)),
                None => tracing::error!(
                    left_out = desired.place(),
                    "no name is left for this cluster; rename its context"
                ),
            }
        }
        clusters
    }

    fn name(&mut self, entry: &Entry) -> Result<ClusterName, Refusal> {
        let context = entry.context.as_ref().ok_or(Refusal::NoContext)?;
        let name = if self.config.qualified {
            let file = entry.file.to_str().ok_or(Refusal::NotUtf8)?;
            ClusterName::new(self.qualified(file, Some(context)))
        } else {
            ClusterName::new(context)
        };
        let name = name.map_err(Refusal::Invalid)?;
        match self.owners.get(&name) {
            None => {
                let owner = (entry.file.clone(), context.clone());
                self.owners.insert(name.clone(), owner);
                Ok(name)
            }
            Some((file, owner)) if *file == entry.file && owner == context => Ok(name),
            Some((file, _)) => Err(Refusal::Taken(name, file.clone())),
        }
    }

    fn qualified(&self, file: &str, context: Option<&str>) -> String {
        match context {
            Some(context) => format!("{file}{}{context}", self.config.separator),
            None => file.to_owned(),
        }
    }

    /// The error of an entry that can't have its name. `None` if the entry is already broken.
    fn explain(&self, entry: &Entry, refusal: &Refusal) -> Option<String> {
        let rename = || rename(&entry.file, entry.context.as_deref().unwrap_or_default());
        Some(match refusal {
            Refusal::NoContext => return None,
            Refusal::NotUtf8 => {
                "the path is not UTF-8, and names of clusters are made of it; rename the file".into()
            }
            Refusal::Invalid(error) if self.config.qualified => {
                format!("{error}; rename the file, or the context ({})", rename())
            }
            Refusal::Invalid(error) => format!("{error}; rename the context ({})", rename()),
            Refusal::Taken(name, owner) if self.config.qualified => format!(
                "file {} has the cluster name {name} too, and the first file in order keeps it; rename the context ({}), \
                 or choose another separator",
                shown(owner),
                rename()
            ),
            Refusal::Taken(_, owner) => format!(
                "file {} has a context of this name too, and the first file in order keeps the name; rename one of the \
                 contexts ({}), or, if the files are given with `file` or `dir`, call \
                 FileProviderBuilder::qualified_names()",
                shown(owner),
                rename()
            ),
        })
    }
}

/// The command that renames a context.
fn rename(file: &Path, context: &str) -> String {
    format!(
        "kubectl --kubeconfig {} config rename-context {} NEW_NAME",
        shown(file),
        quoted(context)
    )
}
