//! Carries out the plan for one source, step by step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use kube::core::DynamicObject;
use mcr::{Action, BoxError, ClusterName, Request, RequestKey, RequestObject, StoreError, TerminalError};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    api::{Remote, Written, value},
    desired,
    error::SyncError,
    link::Ownership,
    plan::{Hold, HoldReason, Observed, SourceState, Step, TargetState, next_step},
    record,
    relation::{Relation, decode},
    status::{Condition, status_difference},
};

/// The most steps of one reconcile for each place, besides those for the source.
const STEPS_PER_PLACE: usize = 8;

/// The time until a place that is away or being deleted is looked at again. Events of the fleet and of targets come before.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

/// That time for a cluster that was connected less than [`LISTS_WITHIN`] ago: no event tells that its targets are listed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(1);

/// The time in which most clusters list the targets.
const LISTS_WITHIN: Duration = Duration::from_secs(30);

/// What is known about one source and its targets during one reconcile.
struct Sight<'a, S, T> {
    relation: &'a Relation<S, T>,
    request: &'a Request<DynamicObject>,
    /// `None` if the source is gone.
    source: Option<DynamicObject>,
    /// Whether `source` is an answer of the server, and not of the store.
    confirmed: bool,
    /// The targets that the server was asked for.
    live: BTreeMap<RequestKey, Option<DynamicObject>>,
}

/// The desired state of one look at the source.
struct Look {
    observed: Observed<RequestKey>,
    desired: Option<Value>,
    objects: BTreeMap<RequestKey, DynamicObject>,
}

pub(crate) async fn reconcile<S, T>(
    request: Request<DynamicObject>,
    relation: Arc<Relation<S, T>>,
) -> Result<Action, BoxError>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    let source = match &request.object {
        RequestObject::Live(source) => Some((**source).clone()),
        RequestObject::Deleted { .. } => None,
        RequestObject::LeftWatch { .. } if request.confirm_deleted_with(&relation.source).await? => None,
        // Nobody saw the source deleted. Its targets stay.
        _ => return Ok(Action::done()),
    };
    let mut sight = Sight {
        relation: &*relation,
        request: &request,
        confirmed: source.is_none(),
        source,
        live: BTreeMap::new(),
    };
    let outcome = sight.converge().await;
    let reported = sight.report(&outcome).await;
    match outcome.and_then(|done| reported.map(|()| done)) {
        Ok((holds, _)) => {
            let held = holds.iter().filter(|hold| hold.reason != HoldReason::Foreign);
            let next = held.map(|hold| look_again(&request, hold)).min();
            Ok(next.map_or_else(Action::done, Action::requeue))
        }
        Err(error) if error.is_terminal() => Err(TerminalError::new(error).into()),
        Err(error) => Err(error.into()),
    }
}

fn look_again(request: &Request<DynamicObject>, hold: &Hold<RequestKey>) -> Duration {
    let is_listing = request.fleet.get(&hold.place.cluster).is_ok_and(|cluster| {
        let since = cluster.state_since().elapsed().unwrap_or_default();
        cluster.state().is_ready() && since < LISTS_WITHIN
    });
    if is_listing { LOOK_AGAIN_SOON } else { LOOK_AGAIN }
}

type Holds = Vec<Hold<RequestKey>>;
type Targets = Vec<(ClusterName, DynamicObject)>;

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Takes steps until there is nothing to write. Returns what is held up, and the targets in their wanted places.
    async fn converge(&mut self) -> Result<(Holds, Targets), SyncError> {
        let mut steps = 0;
        loop {
            let look = self.look().await?;
            let step = next_step(&look.observed);
            if let Step::Rest(holds) = step {
                let wanted = look.observed.wanted.into_iter();
                let mut objects = look.objects;
                let is_foreign = |place: &RequestKey| {
                    let mut holds = holds.iter();
                    holds.any(|hold| hold.place == *place && hold.reason == HoldReason::Foreign)
                };
                let targets = wanted
                    .filter(|place| !is_foreign(place))
                    .filter_map(|place| objects.remove(&place).map(|object| (place.cluster, object)))
                    .collect();
                return Ok((holds, targets));
            }
            let most = 16 + STEPS_PER_PLACE * look.observed.targets.len();
            steps += 1;
            if steps > most {
                return Err(SyncError::Unsettled(most));
            }
            // The stores may be older than the clusters. Before each write the servers are asked, and the step is chosen again.
            if !self.confirm(&step, &look.observed).await? {
                self.take(step, look).await?;
            }
        }
    }

    fn meta(&self) -> kube::core::ObjectMeta {
        self.source
            .as_ref()
            .map(|source| source.metadata.clone())
            .unwrap_or_default()
    }

    /// Looks at the source and at all its places.
    async fn look(&self) -> Result<Look, SyncError> {
        let (relation, meta) = (self.relation, self.meta());
        let mut recorded = record::places(&relation.name, &meta);
        let (mut wanted, mut desired) = (BTreeSet::new(), None);
        let mut state = SourceState::Deleted;
        if let Some(source) = &self.source {
            let typed: S = decode("decoding", value(source))?;
            state = SourceState::Ending;
            if meta.deletion_timestamp.is_none() && relation.selects(source, &typed) {
                state = SourceState::Live;
                let (cluster, fleet) = (&self.request.cluster, &self.request.fleet);
                wanted = relation.wanted(&self.request.key, &typed, cluster, fleet)?;
                if !wanted.is_empty() {
                    let link = relation.link(&self.request.key);
                    desired = Some(desired::compose(relation.projected(&typed)?, &link));
                }
            }
        } else if let Some(last) = self.request.object.last_known() {
            recorded = record::places(&relation.name, &last.metadata);
        }
        let (mut targets, mut objects) = (BTreeMap::new(), BTreeMap::new());
        for place in recorded.union(&wanted) {
            let found = self.find(place).await?;
            let is_wanted = wanted.contains(place);
            targets.insert(
                place.clone(),
                self.state_of(place, found.as_ref(), is_wanted, desired.as_ref())?,
            );
            if let Some(Some(object)) = found {
                objects.insert(place.clone(), object);
            }
        }
        let observed = Observed {
            source: state,
            finalizer: record::has_finalizer(&relation.name, &meta),
            recorded,
            wanted,
            targets,
        };
        Ok(Look {
            observed,
            desired,
            objects,
        })
    }

    /// The object at a place. `None` if the cluster is away.
    async fn find(&self, place: &RequestKey) -> Result<Option<Option<DynamicObject>>, SyncError> {
        if let Some(live) = self.live.get(place) {
            return Ok(Some(live.clone()));
        }
        let Ok(cluster) = self.request.fleet.get(&place.cluster) else {
            return Ok(None);
        };
        if !cluster.state().is_ready() {
            return Ok(None);
        }
        let store = cluster.store_of::<DynamicObject>(&self.relation.target_watch());
        match store.and_then(|store| store.get(&place.object)) {
            Ok(found) => Ok(Some(found.map(|object| (*object).clone()))),
            // The cluster is no longer one of the targets' clusters, so nobody watches there.
            Err(StoreError::NotWatched { .. }) => self.remote(place)?.get().await.map(Some),
            Err(_) => Ok(None),
        }
    }

    fn state_of(
        &self,
        place: &RequestKey,
        found: Option<&Option<DynamicObject>>,
        is_wanted: bool,
        desired: Option<&Value>,
    ) -> Result<TargetState, SyncError> {
        let object = match found {
            None if !is_wanted && self.is_abandoned(place) => return Ok(TargetState::Abandoned),
            None => return Ok(TargetState::Away),
            Some(None) => return Ok(TargetState::Absent),
            Some(Some(object)) => object,
        };
        let live = value(object);
        if desired::ownership(&live, &self.relation.link(&self.request.key)) == Ownership::Foreign {
            let adoptable = match &self.relation.adopt {
                Some(adopt) => adopt(&decode("rule for adoption", live)?),
                None => false,
            };
            return Ok(TargetState::Foreign { adoptable });
        }
        let differs = match desired {
            Some(desired) if is_wanted => desired::to_patch(desired, &live)?.is_some(),
            _ => false,
        };
        let deleting = object.metadata.deletion_timestamp.is_some();
        Ok(TargetState::Ours { differs, deleting })
    }

    fn is_abandoned(&self, place: &RequestKey) -> bool {
        let meta = self.meta();
        let since = meta.deletion_timestamp.map(|at| SystemTime::from(at.0));
        let waited = since.and_then(|since| SystemTime::now().duration_since(since).ok());
        let is_over = waited
            .zip(self.relation.abandon_after)
            .is_some_and(|(waited, limit)| waited >= limit);
        is_over
            || self
                .source
                .as_ref()
                .is_some_and(|source| record::is_abandoned(&source.metadata, &place.cluster))
    }

    /// Asks the servers about all that the step depends on. Returns whether anything was asked.
    async fn confirm(
        &mut self,
        step: &Step<RequestKey>,
        observed: &Observed<RequestKey>,
    ) -> Result<bool, SyncError> {
        let mut asked = false;
        if !self.confirmed {
            self.source = self.refreshed().await?;
            (self.confirmed, asked) = (true, true);
        }
        let places: Vec<&RequestKey> = match step {
            Step::Create(place) | Step::Adopt(place) | Step::Update(place) | Step::Delete(place) => {
                vec![place]
            }
            Step::Forget(kept) => observed.recorded.difference(kept).collect(),
            Step::Release => observed.recorded.iter().collect(),
            Step::Claim(_) | Step::Rest(_) => Vec::new(),
        };
        for place in places {
            let is_abandoned = observed.targets.get(place) == Some(&TargetState::Abandoned);
            if !is_abandoned && !self.live.contains_key(place) {
                let found = self.remote(place)?.get().await?;
                self.live.insert(place.clone(), found);
                asked = true;
            }
        }
        Ok(asked)
    }

    /// The source as the server has it. Another object of its name is not this source.
    async fn refreshed(&self) -> Result<Option<DynamicObject>, SyncError> {
        let known = self.meta().uid;
        let found = self.own().get().await?;
        Ok(found.filter(|found| found.metadata.uid == known))
    }

    fn own(&self) -> Remote {
        Remote::new(
            &self.request.cluster,
            &self.relation.source,
            &self.request.key.object,
        )
    }

    fn remote(&self, place: &RequestKey) -> Result<Remote, SyncError> {
        let cluster = self.request.fleet.get(&place.cluster)?;
        Ok(Remote::new(&cluster, &self.relation.target, &place.object))
    }

    /// Carries out one step. What it has written is seen by the next look.
    async fn take(&mut self, step: Step<RequestKey>, look: Look) -> Result<(), SyncError> {
        match step {
            Step::Claim(places) | Step::Forget(places) => self.write_record(Some(&places)).await,
            Step::Release => self.write_record(None).await,
            Step::Create(place) => {
                let Some(desired) = &look.desired else {
                    return Ok(());
                };
                let remote = self.remote(&place)?;
                let written = remote
                    .create(desired::to_create(desired)?, self.relation.create_namespaces)
                    .await?;
                self.settle(place, remote, desired, written).await
            }
            Step::Adopt(place) | Step::Update(place) => {
                let (Some(desired), Some(object)) = (&look.desired, look.objects.get(&place)) else {
                    return Ok(());
                };
                let Some(patch) = desired::to_patch(desired, &value(object))? else {
                    return Ok(());
                };
                let remote = self.remote(&place)?;
                let written = remote.patch(patch).await?;
                self.settle(place, remote, desired, written).await
            }
            Step::Delete(place) => {
                let Some(object) = look.objects.get(&place) else {
                    return Ok(());
                };
                let remote = self.remote(&place)?;
                remote.delete(object).await?;
                self.live.insert(place, remote.get().await?);
                Ok(())
            }
            Step::Rest(_) => Ok(()),
        }
    }

    /// Notes what the server stored in place of what it was sent.
    async fn settle(
        &mut self,
        place: RequestKey,
        remote: Remote,
        desired: &Value,
        mut written: Written,
    ) -> Result<(), SyncError> {
        if let Written::Done(stored) = &written
            && let Some(patch) = desired::to_settle(desired, &value(stored))?
        {
            written = remote.patch(patch).await?;
        }
        let found = match written {
            Written::Done(object) => Some(*object),
            Written::Outdated => remote.get().await?,
        };
        self.live.insert(place, found);
        Ok(())
    }

    async fn write_record(&mut self, places: Option<&BTreeSet<RequestKey>>) -> Result<(), SyncError> {
        let Some(source) = &self.source else { return Ok(()) };
        let patch = record::patch(&self.relation.name, source, places);
        self.source = match self.own().patch(patch).await? {
            // The last finalizer is gone, and the source with it.
            Written::Done(source) if places.is_none() && source.metadata.deletion_timestamp.is_some() => None,
            Written::Done(source) => Some(*source),
            Written::Outdated => self.refreshed().await?,
        };
        Ok(())
    }

    /// Writes status and condition of the source, if they differ.
    async fn report(&mut self, outcome: &Result<(Holds, Targets), SyncError>) -> Result<(), SyncError> {
        let relation = self.relation;
        let Some(source) = &self.source else { return Ok(()) };
        if relation.status.is_none() && relation.condition.is_none() {
            return Ok(());
        }
        let live = value(source);
        let is_synced =
            |typed: &S| source.metadata.deletion_timestamp.is_none() && relation.selects(source, typed);
        if !record::has_finalizer(&relation.name, &source.metadata)
            && !decode("decoding", live.clone()).is_ok_and(|typed: S| is_synced(&typed))
        {
            return Ok(());
        }
        let mut wanted = json!({});
        if let (Some(status), Ok((_, targets))) = (&relation.status, outcome)
            && source.metadata.deletion_timestamp.is_none()
            && !targets.is_empty()
        {
            let typed: S = decode("decoding", live.clone())?;
            let decoded = targets.iter().map(|(cluster, object)| {
                Ok((cluster.clone(), decode("decoding of a target", value(object))?))
            });
            let targets: Vec<(ClusterName, T)> = decoded.collect::<Result<_, SyncError>>()?;
            let function = "status";
            wanted = status(&typed, &targets).map_err(|source| SyncError::Function { function, source })?;
        }
        if let Some(kind) = &relation.condition {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let condition = condition(kind, outcome).observed(source.metadata.generation);
            wanted["conditions"] = condition.among(live["status"].get("conditions"), &now);
        }
        let Some(patch) = status_difference(live.get("status"), &wanted) else {
            return Ok(());
        };
        let version = &live["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": patch});
        match self.own().patch_status(patch).await? {
            Written::Done(_) => Ok(()),
            // The source has changed, and its change leads to the next reconcile.
            Written::Outdated => Ok(()),
        }
    }
}

fn condition(kind: &str, outcome: &Result<(Holds, Targets), SyncError>) -> Condition {
    match outcome {
        Ok((holds, _)) if holds.is_empty() => {
            Condition::new(kind, true, "Synced", "all targets are as they should be")
        }
        Ok((holds, _)) => {
            let told: Vec<String> = holds.iter().map(told).collect();
            let reason = match holds[0].reason {
                HoldReason::Away => "ClusterAway",
                HoldReason::Deleting => "TargetDeleting",
                HoldReason::Foreign => "NameTaken",
            };
            Condition::new(kind, false, reason, told.join("; "))
        }
        Err(error) => Condition::new(kind, false, error.reason(), error.to_string()),
    }
}

fn told(hold: &Hold<RequestKey>) -> String {
    let RequestKey { cluster, object } = &hold.place;
    match hold.reason {
        HoldReason::Away => format!("cluster {cluster} is away, so the state of {object} there is not known"),
        HoldReason::Deleting => {
            format!("{object} in cluster {cluster} is being deleted and waits for its finalizers")
        }
        HoldReason::Foreign => {
            format!(
                "{object} in cluster {cluster} belongs to somebody else; rename or delete it, or allow its adoption"
            )
        }
    }
}
