//! Labels from a function of the program.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

/// The labels of a cluster.
pub(crate) type Labels = BTreeMap<String, String>;

/// A context of a kubeconfig file, for [`FileProviderBuilder::labels`](crate::FileProviderBuilder::labels).
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FileContext<'a> {
    /// The path of the file as it was given. For a file in a folder: the given path of the folder, and the name of the
    /// file.
    pub file: &'a Path,
    /// The name of the context.
    pub context: &'a str,
    /// The name of the cluster entry that the context refers to.
    pub cluster: &'a str,
    /// The labels that the file gives to the context.
    pub labels: &'a BTreeMap<String, String>,
}

/// A function that gives labels to contexts.
#[derive(Clone)]
pub(crate) struct LabelFn(Arc<dyn Fn(&FileContext<'_>) -> Labels + Send + Sync>);

impl LabelFn {
    pub(crate) fn new<L, K, V>(labels: impl Fn(&FileContext<'_>) -> L + Send + Sync + 'static) -> Self
    where
        L: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        Self(Arc::new(move |context| {
            let labels = labels(context).into_iter();
            labels.map(|(key, value)| (key.into(), value.into())).collect()
        }))
    }

    /// Calls the function. `None` if it panics, so that one context can't end the discovery of the others.
    pub(crate) fn call(&self, context: &FileContext<'_>) -> Option<Labels> {
        catch_unwind(AssertUnwindSafe(|| (self.0)(context))).ok()
    }
}

impl fmt::Debug for LabelFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LabelFn(..)")
    }
}
