//! The paths of workspaces, in both directions.

use std::{
    collections::{HashMap, hash_map},
    fmt,
    sync::{Arc, Mutex},
};

use mcr_core::{ClusterName, internal::lock};

/// The paths of the workspaces that a provider has announced, in both directions. A cheap handle that follows the discovery.
///
/// The table has the workspaces that are clusters now, also those that are suspended or unreachable. It changes just before
/// the fleet sees the change, so a name that it returns may be that of a cluster that joins in a moment. A workspace that went
/// while no discovery ran is forgotten at once, although the fleet keeps its cluster for a grace period. No look-up asks kcp.
///
/// A path that is used again belongs to the newer workspace, although the older one may still be in the fleet. When the newer
/// one leaves first, the path belongs to the older one again.
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
        let id = lock(&self.table).find(path)?;
        ClusterName::new(format!("{}{id}", self.prefix)).ok()
    }

    /// The path of a cluster's workspace. `None` if the provider has no such cluster, or if kcp shows no path for it, as for
    /// the workspace `root`.
    pub fn path_of(&self, cluster: &ClusterName) -> Option<Arc<str>> {
        let id = cluster.as_str().strip_prefix(&*self.prefix)?;
        lock(&self.table).path(id)
    }

    /// A discovery starts. Returns its number.
    pub(crate) fn begin(&self) -> u32 {
        let mut table = lock(&self.table);
        table.discoveries = table.discoveries.wrapping_add(1);
        table.discoveries
    }

    /// A discovery announces a workspace.
    pub(crate) fn announced(&self, discovery: u32, id: &Arc<str>, path: Option<&Arc<str>>) {
        lock(&self.table).put(discovery, id, path);
    }

    /// A workspace leaves.
    pub(crate) fn left(&self, id: &str) {
        lock(&self.table).remove(id);
    }

    /// A discovery has announced all workspaces. Those that it has not announced left while no discovery ran.
    pub(crate) fn synced(&self, discovery: u32) {
        lock(&self.table).keep_only(discovery);
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paths")
            .field("workspaces", &lock(&self.table).workspaces.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Table {
    /// By the id of the logical cluster.
    workspaces: HashMap<Arc<str>, Workspace>,
    /// The newest workspace with each path.
    newest: HashMap<Arc<str>, Arc<str>>,
    /// The other workspaces with the same path, the oldest first. Only while a path is used twice.
    older: HashMap<Arc<str>, Vec<Arc<str>>>,
    discoveries: u32,
}

#[derive(Debug)]
struct Workspace {
    path: Option<Arc<str>>,
    /// The discovery that announced it last.
    discovery: u32,
}

impl Table {
    fn put(&mut self, discovery: u32, id: &Arc<str>, path: Option<&Arc<str>>) {
        if let Some(known) = self.workspaces.get_mut(id) {
            known.discovery = discovery;
            if known.path.as_ref() == path {
                return;
            }
            self.remove(id);
        }
        if let Some(path) = path
            && let Some(before) = self.newest.insert(path.clone(), id.clone())
        {
            self.older.entry(path.clone()).or_default().push(before);
        }
        let path = path.cloned();
        self.workspaces.insert(id.clone(), Workspace { path, discovery });
    }

    fn remove(&mut self, id: &str) {
        let Some(path) = self.workspaces.remove(id).and_then(|known| known.path) else {
            return;
        };
        let was_newest = self.newest.get(&path).is_some_and(|newest| **newest == *id);
        let hash_map::Entry::Occupied(mut older) = self.older.entry(path.clone()) else {
            self.newest.remove(&path);
            return;
        };
        if was_newest {
            if let Some(next) = older.get_mut().pop() {
                self.newest.insert(path, next);
            }
        } else {
            older.get_mut().retain(|known| **known != *id);
        }
        if older.get().is_empty() {
            older.remove();
        }
    }

    fn keep_only(&mut self, discovery: u32) {
        let workspaces = self.workspaces.iter();
        let gone = workspaces.filter(|(_, known)| known.discovery != discovery);
        let gone: Vec<Arc<str>> = gone.map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.remove(&id);
        }
    }

    fn path(&self, id: &str) -> Option<Arc<str>> {
        self.workspaces.get(id)?.path.clone()
    }

    fn find(&self, path: &str) -> Option<Arc<str>> {
        // A path of one word is an id. So is one that begins with `system:`, as a whole.
        if let Some((id, _)) = self.workspaces.get_key_value(path) {
            return Some(id.clone());
        }
        if let Some(id) = self.newest.get(path) {
            return Some(id.clone());
        }
        let colons = path.match_indices(':');
        let mut heads = colons.map(|(at, _)| path.split_at(at));
        heads.find_map(|(id, rest)| {
            let parent = self.workspaces.get(id)?.path.as_deref()?;
            self.newest.get(&*format!("{parent}{rest}")).cloned()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn put(paths: &Paths, id: &str, path: Option<&str>) {
        paths.announced(paths.begin(), &id.into(), path.map(Arc::from).as_ref());
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
        put(&paths, "system:admin", Some("top"));
        put(&paths, "id4", Some("top:c"));
        for (path, id) in [
            ("id1", Some("id1")),
            ("id1:team:a", Some("id2")),
            ("id1:team", None),
            ("id9:b", Some("id3")),
            ("id9", None),
            ("system:admin:c", Some("id4")),
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
    }

    /// A workspace may leave while no discovery runs. Nobody announces its leaving then.
    #[test]
    fn what_a_new_discovery_does_not_announce_is_forgotten_when_it_has_announced_all() {
        let paths = Paths::new("");
        put(&paths, "stays", Some("root:a"));
        put(&paths, "goes", Some("root:b"));
        let discovery = paths.begin();
        paths.announced(discovery, &"stays".into(), Some(&"root:a".into()));
        assert_eq!(at(&paths, "root:b").as_deref(), Some("goes"));
        paths.synced(discovery);
        assert_eq!(at(&paths, "root:a").as_deref(), Some("stays"));
        assert_eq!((at(&paths, "root:b"), path_of(&paths, "goes")), (None, None));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Put(usize, Option<usize>),
        Left(usize),
        /// A discovery that announces these workspaces as they are, and is complete.
        Again(Vec<bool>),
    }

    const IDS: usize = 5;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..IDS, proptest::option::weighted(0.8, 0..3_usize)).prop_map(|(id, path)| Step::Put(id, path)),
            3 => (0..IDS).prop_map(Step::Left),
            1 => proptest::collection::vec(any::<bool>(), IDS).prop_map(Step::Again),
        ]
    }

    proptest! {
        /// The model: the path of each workspace, and when the workspace got it.
        #[test]
        fn any_history_leaves_the_newest_owner_of_each_path(steps in proptest::collection::vec(step(), 0..40)) {
            let (ids, names) = (["a", "b", "c", "d", "e"], ["root:x", "root:y", "root:z"]);
            let paths = Paths::new("");
            let mut model = BTreeMap::<usize, (Option<usize>, usize)>::new();
            for (now, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Put(id, path) => {
                        put(&paths, ids[id], path.map(|path| names[path]));
                        let known = model.entry(id).or_insert((path, now));
                        if known.0 != path {
                            *known = (path, now);
                        }
                    }
                    Step::Left(id) => {
                        paths.left(ids[id]);
                        model.remove(&id);
                    }
                    Step::Again(keep) => {
                        let discovery = paths.begin();
                        model.retain(|id, _| keep[*id]);
                        for (id, (path, _)) in &model {
                            let path = path.map(|path| Arc::from(names[path]));
                            paths.announced(discovery, &ids[*id].into(), path.as_ref());
                        }
                        paths.synced(discovery);
                    }
                }
                for (number, id) in ids.into_iter().enumerate() {
                    let known = model.get(&number);
                    let path = known.and_then(|(path, _)| path.map(|path| names[path].to_owned()));
                    prop_assert_eq!(path_of(&paths, id), path);
                    prop_assert_eq!(at(&paths, id), known.map(|_| id.to_owned()));
                }
                for (number, path) in names.into_iter().enumerate() {
                    let owners = model.iter().filter(|(_, (path, _))| *path == Some(number));
                    let newest = owners.max_by_key(|(_, (_, since))| *since);
                    prop_assert_eq!(at(&paths, path), newest.map(|(id, _)| ids[*id].to_owned()));
                }
            }
            // Nothing is left of workspaces that are gone, and of paths that nobody uses twice.
            for id in ids {
                paths.left(id);
            }
            let table = lock(&paths.table);
            prop_assert!(table.workspaces.is_empty() && table.newest.is_empty() && table.older.is_empty());
        }
    }
}
