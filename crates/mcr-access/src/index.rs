//! The entries of a kubeconfig by name.

use std::collections::HashMap;

use crate::{
    document::{Context, Document, Named, NamedCluster, NamedContext, NamedUser},
    error::{AccessError, list_names, quote},
};

/// The entries of a kubeconfig by name. A lookup takes constant time, for files with thousands of contexts.
pub(crate) struct Index<'a> {
    pub(crate) contexts: Section<'a, NamedContext>,
    pub(crate) clusters: Section<'a, NamedCluster<'a>>,
    pub(crate) users: Section<'a, NamedUser<'a>>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(document: &'a Document<'a>) -> Self {
        Self {
            contexts: Section::of("contexts", &document.contexts),
            clusters: Section::of("clusters", &document.clusters),
            users: Section::of("users", &document.users),
        }
    }
}

/// The entries of one list: `contexts`, `clusters` or `users`.
pub(crate) struct Section<'a, T> {
    /// The key of the list.
    key: &'static str,
    all: &'a [T],
    /// `None` for a name that is defined more than once.
    by_name: HashMap<&'a str, Option<&'a T>>,
}

impl<'a, T: Named> Section<'a, T> {
    fn of(key: &'static str, all: &'a Option<Vec<T>>) -> Self {
        let all = all.as_deref().unwrap_or_default();
        let mut by_name = HashMap::with_capacity(all.len());
        for entry in all {
            if let Some(name) = entry.name() {
                by_name
                    .entry(name)
                    .and_modify(|found| *found = None)
                    .or_insert(Some(entry));
            }
        }
        Self { key, all, by_name }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a, T> {
        self.all.iter().filter_map(Named::name)
    }

    /// Returns the entry with this name.
    ///
    /// # Errors
    /// If the name is defined more than once. Kubernetes then refuses the whole file. Here only the contexts that use the
    /// name fail.
    pub(crate) fn unique(&self, name: &str) -> Result<Option<&'a T>, AccessError> {
        match self.by_name.get(name) {
            None => Ok(None),
            Some(Some(entry)) => Ok(Some(entry)),
            Some(None) => Err(AccessError::reference(
                format!("{}[name={}]", self.key, quote(name)),
                "is defined more than once in this file; remove or rename all but one",
            )),
        }
    }
}

/// Finds the cluster of a context, in the first source that defines it. `name` is the name of the context.
pub(crate) fn find_cluster<'a, S: Copy>(
    sources: impl Iterator<Item = S> + Clone,
    index: impl Fn(&S) -> &'a Index<'a>,
    name: &str,
    context: &Context,
) -> Result<(S, NamedCluster<'a>), AccessError> {
    let field = || format!("contexts[name={}].context.cluster", quote(name));
    let Some(wanted) = context.cluster.as_deref().filter(|wanted| !wanted.is_empty()) else {
        return Err(AccessError::reference(
            field(),
            "is missing; name the cluster that the context is about",
        ));
    };
    for source in sources.clone() {
        if let Some(entry) = index(&source).clusters.unique(wanted)? {
            let entry = entry.clone();
            return Ok((source, entry));
        }
    }
    let names: Vec<&str> = sources
        .flat_map(|source| index(&source).clusters.names())
        .collect();
    Err(AccessError::reference(
        field(),
        format!(
            "cluster {} is not defined ({}); define it or correct the name",
            quote(wanted),
            list_names(names.into_iter())
        ),
    ))
}

/// Finds the user of a context, in the first source that defines it. `None` if the context names no user.
pub(crate) fn find_user<'a, S: Copy>(
    sources: impl Iterator<Item = S> + Clone,
    index: impl Fn(&S) -> &'a Index<'a>,
    name: &str,
    context: &Context,
) -> Result<Option<(S, NamedUser<'a>)>, AccessError> {
    let Some(wanted) = context.user.as_deref().filter(|wanted| !wanted.is_empty()) else {
        return Ok(None);
    };
    for source in sources.clone() {
        if let Some(entry) = index(&source).users.unique(wanted)? {
            let entry = entry.clone();
            return Ok(Some((source, entry)));
        }
    }
    let names: Vec<&str> = sources.flat_map(|source| index(&source).users.names()).collect();
    Err(AccessError::reference(
        format!("contexts[name={}].context.user", quote(name)),
        format!(
            "user {} is not defined ({}); define it or correct the name",
            quote(wanted),
            list_names(names.into_iter())
        ),
    ))
}
