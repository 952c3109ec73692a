//! Deletes the targets of source clusters that have left the fleet for good, if the user asks for that.

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{
    Resource,
    core::{ApiResource, DynamicObject},
};
use mcr::{
    Action, BoxError, BuiltController, Cluster, ClusterName, Controller, Fleet, FleetEvent, ObjectKey,
    Request, RequestKey, WatchRequest,
};
use parking_lot::{Mutex, MutexGuard};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    api::{Remote, list},
    builder::ObjectSync,
    error::{BuildError, SyncError},
    kinds,
    link::{Link, SOURCE, SYNC},
    related::is_copy,
};

/// The pause between two reads of the fleet while its providers have not announced all their clusters.
const OBSERVE_AGAIN: Duration = Duration::from_secs(15);

impl<S, T> ObjectSync<S, T>
where
    S: Resource + DeserializeOwned + Send + Sync + 'static,
    T: Resource + DeserializeOwned + Serialize + Send + Sync + 'static,
{
    /// Makes a second controller, which deletes the targets and the related copies of a source cluster that has not
    /// been in the fleet for `grace`. Without this controller, targets of a cluster that has left stay for ever. Give
    /// both controllers to the manager.
    ///
    /// The grace begins when the cluster leaves. After a start of the program, it begins when all providers have
    /// announced their clusters. A cluster that comes back within the grace loses nothing. A cluster that comes back
    /// later gets new targets. A cluster that is in the fleet keeps its targets, even if it is down or
    /// [`from`](Self::from) no longer selects it.
    ///
    /// The sync needs an [`owner`](Self::owner), and only targets of this owner are deleted. So the targets of another
    /// program whose sync has the same name stay, although its source clusters never were in this fleet. Targets from
    /// before the sync had an owner also stay, if their source cluster had left by then.
    ///
    /// **Choose a grace that is longer than the repair of a mistake takes**, for example of a kubeconfig that was
    /// deleted by accident: hours, not minutes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr::ClusterName;
    /// use mcr_sync::ObjectSync;
    ///
    /// let sync = ObjectSync::<ConfigMap, ConfigMap>::new("dbs").owner("prod-eu").to(ClusterName::new("service")?).mirror();
    /// let orphans = sync.delete_orphans_after(Duration::from_secs(24 * 3600))?;
    /// let controller = sync.build()?;
    /// // Manager::builder().controller(controller).controller(orphans)
    /// # let _ = (controller, orphans);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`BuildError`] if the name of the sync is not usable, or it has no owner or no placement.
    pub fn delete_orphans_after(&self, grace: Duration) -> Result<BuiltController, BuildError> {
        self.check_name()?;
        let relation = &self.relation;
        if !self.is_placed {
            return Err(BuildError::NoPlacement(relation.name.to_string()));
        }
        let Some(owner) = relation.owner.clone() else {
            return Err(BuildError::NoOwner(relation.name.to_string()));
        };
        let down = relation.related.iter().filter(|rule| rule.is_down());
        let orphans = Arc::new(Orphans {
            sync: relation.name.to_string(),
            owner,
            copies: down.map(|rule| rule.resource.clone()).collect(),
            target: relation.target.clone(),
            grace,
            left: Mutex::default(),
        });
        let (watch, of_fleet) = (orphans.watch(), orphans.clone());
        let controller =
            Controller::<DynamicObject>::with(format!("{}-orphans", relation.name), &relation.target)
                .clusters(relation.targets.clone())
                .watch_request(|_| watch)
                .watches_fleet(move |event, fleet| of_fleet.affected(event, fleet));
        Ok(controller.build(clean, orphans)?)
    }
}

struct Orphans {
    sync: String,
    owner: String,
    target: ApiResource,
    /// The kinds of the related copies that are beside targets.
    copies: Vec<ApiResource>,
    grace: Duration,
    /// When each missing source cluster left the fleet, as far as this program has observed it.
    left: Mutex<HashMap<ClusterName, Instant>>,
}

/// What to do with a target, by whether its source cluster has left.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    ObserveAgain(Duration),
    Delete,
}

impl Orphans {
    fn watch(&self) -> WatchRequest {
        WatchRequest::resource(&self.target).labels(format!("{SYNC}={}", self.sync))
    }

    fn link<'a>(&'a self, source: &'a RequestKey) -> Link<'a> {
        Link::of(&self.sync, Some(&self.owner), source)
    }

    fn left(&self) -> MutexGuard<'_, HashMap<ClusterName, Instant>> {
        self.left.lock()
    }

    /// Decides about the targets of one source cluster.
    fn verdict(&self, cluster: &ClusterName, is_in_fleet: bool, is_discovered: bool) -> Verdict {
        let mut left = self.left();
        if is_in_fleet {
            left.remove(cluster);
            return Verdict::Keep;
        }
        // Until a provider has announced all its clusters, a missing cluster proves nothing.
        if !is_discovered {
            return Verdict::ObserveAgain(OBSERVE_AGAIN);
        }
        let now = Instant::now();
        let since = *left.entry(cluster.clone()).or_insert(now);
        match self.grace.saturating_sub(now - since) {
            Duration::ZERO => Verdict::Delete,
            rest => Verdict::ObserveAgain(rest),
        }
    }

    /// The targets whose source cluster has left with this event. Notes which clusters are in the fleet.
    fn affected(&self, event: &FleetEvent, fleet: &Fleet) -> Vec<RequestKey> {
        match event {
            FleetEvent::Engaged(cluster) => {
                self.left().remove(cluster.name());
                Vec::new()
            }
            FleetEvent::Disengaged { name, .. } if fleet.get(name).is_err() => {
                let clusters = fleet.clusters().into_iter();
                let targets: Vec<_> = clusters
                    .flat_map(|cluster| self.targets_of(name, &cluster))
                    .collect();
                // Only clusters with targets are noted: clusters come and go under new names, and most have none.
                if !targets.is_empty() {
                    self.left().insert(name.clone(), Instant::now());
                }
                targets
            }
            _ => Vec::new(),
        }
    }

    fn targets_of(&self, source: &ClusterName, cluster: &Cluster) -> Vec<RequestKey> {
        let Ok(store) = cluster.store_of::<DynamicObject>(&self.watch()) else {
            return Vec::new();
        };
        let is_of_source = |key: &ObjectKey| {
            let object = store.get(key).ok().flatten();
            let named = object.and_then(|object| self.source(&object));
            named.is_some_and(|named| named.cluster == *source)
        };
        let keys = store.keys_unsynced().unwrap_or_default().into_iter();
        keys.filter(is_of_source)
            .map(|key| RequestKey::new(cluster.name().clone(), key))
            .collect()
    }

    /// The source in the link of a target, if the link is of this sync and this owner.
    fn source(&self, object: &DynamicObject) -> Option<RequestKey> {
        let meta = &object.metadata;
        let link = Link::read(meta.labels.as_ref()?, meta.annotations.as_ref()?)?;
        let is_target = (link.sync, link.owner) == (&*self.sync, Some(&*self.owner)) && !is_copy(meta);
        link.source_key().filter(|_| is_target)
    }
}

/// Deletes one target and its copies, if its source cluster has been away for longer than the grace.
async fn clean(request: Request<DynamicObject>, orphans: Arc<Orphans>) -> Result<Action, BoxError> {
    let Some(target) = request.live() else {
        return Ok(Action::done());
    };
    let Some(source) = orphans.source(target) else {
        return Ok(Action::done());
    };
    let (is_in_fleet, is_discovered) = (
        request.fleet.get(&source.cluster).is_ok(),
        request.fleet.is_discovered(),
    );
    match orphans.verdict(&source.cluster, is_in_fleet, is_discovered) {
        Verdict::Keep => Ok(Action::done()),
        Verdict::ObserveAgain(after) => Ok(Action::requeue(after)),
        Verdict::Delete => {
            if !orphans.copies_are_gone(&request, &source).await? {
                return Ok(Action::requeue(OBSERVE_AGAIN));
            }
            let remote = Remote::new(&request.cluster, &orphans.target, &request.key.object)?;
            if let Some(target) = remote.get().await?
                && orphans.delete(&request, &source, &remote, &target).await?
            {
                tracing::info!(sync = orphans.sync, target = %request.key, %source, "deleted a target: the cluster of its source has left the fleet");
            }
            Ok(Action::done())
        }
    }
}

impl Orphans {
    /// Deletes the related copies. Returns whether none are left: the target must stay until then, because only it
    /// leads to its copies.
    async fn copies_are_gone(
        &self,
        request: &Request<DynamicObject>,
        source: &RequestKey,
    ) -> Result<bool, SyncError> {
        let link = self.link(source);
        let mut are_gone = true;
        let cluster = &request.cluster;
        let namespace = request.key.object.namespace.as_deref();
        let labels = format!("{SYNC}={},{SOURCE}={}", self.sync, link.source.hash());
        for kind in &self.copies {
            let copies = list(cluster, kind, namespace, Some(&labels)).await;
            for copy in kinds::or_none(copies, cluster, kind).await? {
                if is_copy(&copy.metadata)
                    && link.owns(&copy.metadata)
                    && let Some(key) = ObjectKey::of(&*copy)
                {
                    let remote = Remote::new(cluster, kind, &key)?;
                    self.delete(request, source, &remote, &copy).await?;
                    are_gone &= remote.get().await?.is_none();
                }
            }
        }
        Ok(are_gone)
    }

    /// Deletes an object of this source in the state that was read. Returns whether it has done so. If the cluster of
    /// the source is back by now, the object stays, because its source is alive.
    async fn delete(
        &self,
        request: &Request<DynamicObject>,
        source: &RequestKey,
        remote: &Remote,
        object: &DynamicObject,
    ) -> Result<bool, SyncError> {
        let is_ours = self.link(source).owns(&object.metadata);
        let is_gone = request.fleet.get(&source.cluster).is_err();
        let deletes = is_ours && is_gone && object.metadata.deletion_timestamp.is_none();
        Ok(deletes && remote.delete(object).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_goes_after_the_grace_of_a_cluster_that_is_certainly_not_in_the_fleet() {
        let hour = Duration::from_secs(3600);
        let orphans = Orphans {
            sync: "dbs".into(),
            owner: "eu".into(),
            target: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
            copies: Vec::new(),
            grace: hour,
            left: Mutex::default(),
        };
        let cluster = ClusterName::new("team-a").unwrap();
        let verdict = |is_in_fleet, is_discovered| orphans.verdict(&cluster, is_in_fleet, is_discovered);
        assert_eq!(verdict(false, false), Verdict::ObserveAgain(OBSERVE_AGAIN));
        tokio::time::advance(2 * hour).await;
        assert_eq!(
            verdict(false, true),
            Verdict::ObserveAgain(hour),
            "the grace begins now"
        );
        tokio::time::advance(hour).await;
        assert_eq!(verdict(false, false), Verdict::ObserveAgain(OBSERVE_AGAIN));
        assert_eq!(verdict(false, true), Verdict::Delete);
    }
}
