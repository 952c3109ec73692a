//! The paths of workspaces, in both directions.

use std::{collections::HashMap, fmt, sync::Arc};

use mcr_core::ClusterName;
use parking_lot::Mutex;

/// The paths of the workspaces that a provider has announced, in both directions. A cheap handle that follows the discovery.
///
/// The table has the workspaces that are clusters now, also those that are suspended or unreachable. It changes just before
/// the fleet sees the change, so a name that it returns may be that of a cluster that joins in a moment. A workspace that went
/// while no discovery ran is forgotten at once, although the fleet keeps its cluster for a grace period. No look-up asks kcp.
///
/// A path that is used again belongs to the newer workspace, although the older one may still be in the fleet.
///
/// ```
/// use mcr_core::{Cluster, Fleet};
/// use mcr_provider_kcp::Paths;
///
/// fn workspace(fleet: &Fleet, paths: &Paths, path: &str) -> Option<Cluster> {
///     fleet.get(paths.cluster_at(path)?.as_str()).ok()
/// }
/// ```
#[derive(Clone)]
pub struct Paths {
    /// The beginning of the names of all clusters.
    prefix: Arc<str>,
    table: Arc<Mutex<Table>>,
}

impl Paths {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
            table: Arc::default(),
        }
    }

    /// The cluster of the workspace at a path such as `root:org:team`. `None` if no workspace with this path is a cluster.
    ///
    /// The path may begin with the id of a workspace that is a cluster, as in `344qdshnqz45fjlp:child`, and may be an id.
    pub fn cluster_at(&self, path: &str) -> Option<ClusterName> {
        let id = self.table.lock().find(path)?;
        ClusterName::new(format!("{}{id}", self.prefix)).ok()
    }

    /// The path of a cluster's workspace. `None` if the provider has no such cluster, or if kcp shows no path for it, as for
    /// the workspace `root`.
    pub fn path_of(&self, cluster: &ClusterName) -> Option<Arc<str>> {
        let id = cluster.as_str().strip_prefix(&*self.prefix)?;
        self.table.lock().paths.get(id)?.clone()
    }

    /// A discovery announces a workspace.
    pub(crate) fn announced(&self, id: &Arc<str>, path: Option<&Arc<str>>) {
        self.table.lock().put(id, path);
    }

    /// A workspace leaves.
    pub(crate) fn left(&self, id: &str) {
        self.table.lock().remove(id);
    }

    /// A discovery has announced all workspaces. The others left while no discovery ran.
    pub(crate) fn keep(&self, is_announced: impl Fn(&str) -> bool) {
        let mut table = self.table.lock();
        let gone: Vec<Arc<str>> = table
            .paths
            .keys()
            .filter(|id| !is_announced(id))
            .cloned()
            .collect();
        for id in gone {
            table.remove(&id);
        }
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("workspaces", &self.table.lock().paths.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By the id of the logical cluster.
    paths: HashMap<Arc<str>, Option<Arc<str>>>,
    /// The newest workspace with each path.
    ids: HashMap<Arc<str>, Arc<str>>,
}

impl Table {
    fn put(&mut self, id: &Arc<str>, path: Option<&Arc<str>>) {
        // A change of an older workspace does not take its path back.
        if self.paths.get(id).is_some_and(|known| known.as_ref() == path) {
            return;
        }
        self.remove(id);
        self.paths.insert(id.clone(), path.cloned());
        if let Some(path) = path {
            self.ids.insert(path.clone(), id.clone());
        }
    }

    fn remove(&mut self, id: &str) {
        if let Some(path) = self.paths.remove(id).flatten()
            && self.ids.get(&path).is_some_and(|newest| **newest == *id)
        {
            self.ids.remove(&path);
        }
    }

    fn find(&self, path: &str) -> Option<Arc<str>> {
        // A path of one word is an id. So is one that begins with `system:`, as a whole.
        if let Some((id, _)) = self.paths.get_key_value(path) {
            return Some(id.clone());
        }
        let below_id = || {
            let (id, rest) = path.split_once(':')?;
            let parent = self.paths.get(id)?.as_deref()?;
            self.ids.get(&*format!("{parent}:{rest}"))
        };
        self.ids.get(path).or_else(below_id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(paths: &Paths, id: &str, path: Option<&str>) {
        paths.announced(&id.into(), path.map(Arc::from).as_ref());
    }

    fn at(paths: &Paths, path: &str) -> Option<String> {
        paths.cluster_at(path).map(|name| name.to_string())
    }

    fn path_of(paths: &Paths, name: &str) -> Option<String> {
        let path = paths.path_of(&ClusterName::new(name).unwrap());
        path.map(|path| path.to_string())
    }

    #[test]
    fn both_directions_use_the_names_of_the_fleet() {
        let paths = Paths::new("widgets.");
        put(&paths, "id1", Some("root:a"));
        put(&paths, "root", None);
        assert_eq!(at(&paths, "root:a").as_deref(), Some("widgets.id1"));
        assert_eq!(path_of(&paths, "widgets.id1").as_deref(), Some("root:a"));
        // kcp shows no path for it, and its id is its path.
        assert_eq!(at(&paths, "root").as_deref(), Some("widgets.root"));
        assert_eq!(path_of(&paths, "widgets.root"), None);
        for other in ["id1", "other.id1"] {
            assert_eq!(path_of(&paths, other), None, "{other}");
        }
        assert_eq!(at(&paths, "root:b"), None);
        paths.left("id1");
        assert_eq!(
            (at(&paths, "root:a"), path_of(&paths, "widgets.id1")),
            (None, None)
        );
    }

    #[test]
    fn a_path_may_begin_with_an_id() {
        let paths = Paths::new("");
        put(&paths, "id1", Some("root:org"));
        put(&paths, "id2", Some("root:org:team:a"));
        // kcp shows such a path for a workspace below one without a path.
        put(&paths, "id3", Some("id9:b"));
        for (path, id) in [
            ("id1", Some("id1")),
            ("id1:team:a", Some("id2")),
            ("id1:team", None),
            ("id9:b", Some("id3")),
            ("id9", None),
            ("id1:", None),
            (":", None),
            ("", None),
        ] {
            assert_eq!(at(&paths, path).as_deref(), id, "{path}");
        }
    }

    #[test]
    fn a_path_that_is_used_again_belongs_to_the_newer_workspace() {
        let paths = Paths::new("");
        put(&paths, "old", Some("root:a"));
        put(&paths, "new", Some("root:a"));
        // A change of the older one, such as that it is being deleted, does not take the path back.
        put(&paths, "old", Some("root:a"));
        assert_eq!(at(&paths, "root:a").as_deref(), Some("new"));
        assert_eq!(path_of(&paths, "old").as_deref(), Some("root:a"));
        paths.left("old");
        assert_eq!(at(&paths, "root:a").as_deref(), Some("new"));
        assert_eq!(path_of(&paths, "old"), None);
        put(&paths, "new", Some("root:b"));
        assert_eq!(at(&paths, "root:b").as_deref(), Some("new"));
        assert_eq!(at(&paths, "root:a"), None);
    }

    /// A workspace may leave while no discovery runs. Nobody announces its leaving then.
    #[test]
    fn what_a_new_discovery_does_not_announce_is_forgotten_when_it_has_announced_all() {
        let paths = Paths::new("");
        put(&paths, "stays", Some("root:a"));
        put(&paths, "goes", Some("root:b"));
        paths.keep(|id| id == "stays");
        assert_eq!(at(&paths, "root:a").as_deref(), Some("stays"));
        assert_eq!((at(&paths, "root:b"), path_of(&paths, "goes")), (None, None));
    }
}
