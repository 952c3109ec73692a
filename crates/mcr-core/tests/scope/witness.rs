//! One who is told every change of a cluster's ConfigMaps and holds what it was told against what there is.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_core::{ChangeSink, Cluster, Object, ObjectChange, WatchHandle, WatchRequest};

use mcr_doubles::shard::{Seen, Shard};

use crate::harness::*;

/// What is watched, and what was told of it.
pub(crate) struct Witness {
    pub(crate) cluster: Cluster,
    pub(crate) watch: WatchHandle,
    reported: Arc<Reported>,
}

#[derive(Default)]
struct Reported {
    state: Mutex<State>,
    /// Where nothing may be that is told to be deleted.
    shards: Vec<Shard>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Seen>,
    lines: Vec<String>,
    faults: Vec<String>,
}

fn seen(object: &Object) -> Seen {
    let map: ConfigMap = object.decode().unwrap();
    let value = map.data.and_then(|data| data.get("value").cloned());
    let uid = map.metadata.uid.unwrap_or_default();
    (
        uid,
        object.resource_version().to_owned(),
        value.unwrap_or_default(),
    )
}

impl ChangeSink for Reported {
    fn changed(&self, change: &ObjectChange) {
        let key = change.key().unwrap().to_string();
        let mut state = self.state.lock().unwrap();
        let (sign, before) = match (&change.old, &change.new) {
            (None, Some(new)) => ('+', state.objects.insert(key.clone(), seen(new)).is_some()),
            (_, Some(new)) => ('~', state.objects.insert(key.clone(), seen(new)).is_none()),
            (old, None) => {
                let uid = old.as_deref().map(seen).unwrap_or_default().0;
                if self.shards.iter().any(|shard| shard.surely_has(&uid)) {
                    state
                        .faults
                        .push(format!("{key} is told deleted, but it is there"));
                }
                ('-', state.objects.remove(&key).is_none())
            }
        };
        let line = format!("{sign}{key}");
        if before {
            state
                .faults
                .push(format!("{line} contradicts what was told before"));
        }
        state.lines.push(line);
    }
}

impl Witness {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self::watchful(cluster, Vec::new())
    }

    /// One that looks, at every delete it is told, whether the object is really on none of these shards.
    pub(crate) fn watchful(cluster: &Cluster, shards: Vec<Shard>) -> Self {
        let reported = Arc::new(Reported {
            shards,
            ..Reported::default()
        });
        let watch = cluster
            .watch(WatchRequest::of::<ConfigMap>(), Some(reported.clone()))
            .or_fail();
        Self {
            cluster: cluster.clone(),
            watch,
            reported,
        }
    }

    /// What was told, in the order of the objects and for each in the order it was told.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.reported.state.lock().unwrap().lines.clone();
        lines.sort_by(|a, b| a[1..].cmp(&b[1..]));
        lines
    }

    pub(crate) fn forget_lines(&self) {
        self.reported.state.lock().unwrap().lines.clear();
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.lines().iter().any(|known| known == line)
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.reported.state.lock().unwrap().faults.clone()
    }

    /// What the store holds; none if the cluster is gone.
    pub(crate) fn store(&self) -> Option<BTreeMap<String, Seen>> {
        let store = self.cluster.store::<ConfigMap>().ok()?;
        let keys = store.keys().ok()?;
        let objects = keys
            .iter()
            .filter_map(|key| Some((key.to_string(), seen(&*store.raw(key).ok()??))));
        Some(objects.collect())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.store().unwrap_or_default().into_keys().collect()
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.watch
            .status()
            .problem
            .map(|problem| problem.error.to_string())
    }

    /// What differs between the store, what was told, and the shard.
    pub(crate) fn difference(&self, shard: &Shard) -> Option<String> {
        let (store, there) = (self.store(), shard.has(self.cluster.name().as_str()));
        let reported = self.reported.state.lock().unwrap();
        if !reported.faults.is_empty() {
            return Some(format!("{}: {:?}", self.cluster.name(), reported.faults));
        }
        if store.as_ref() == Some(&there) && reported.objects == there {
            return None;
        }
        Some(format!(
            "{}: store {store:?}\n  told {:?}\n  shard {there:?}",
            self.cluster.name(),
            reported.objects
        ))
    }

    /// Waits until the store, what was told, and the shard are the same.
    #[track_caller]
    pub(crate) fn equals(&self, shard: &Shard) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let started = tokio::time::Instant::now();
            while let Some(difference) = self.difference(shard) {
                let problem = self.problem();
                let late = started.elapsed() >= SOON;
                assert!(!late, "not soon ({caller}): {difference}\nproblem {problem:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
