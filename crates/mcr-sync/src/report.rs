//! Status and condition of the source: how its sync stands, in words.

use mcr::{ClusterName, RequestKey};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    api::{Written, value},
    error::{NO_STATUS, SyncError},
    functions::{call, decode},
    plan::{Hold, HoldReason},
    record,
    related::Note,
    sight::{Holds, Sight},
    status::{Condition, status_difference},
    told::Problem,
};

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Tells how the sync of the source stands, and writes its status and condition if they differ.
    pub(crate) async fn report(&mut self, outcome: &Result<Holds, SyncError>) -> Result<(), SyncError> {
        let (wanted, failed) = match self.status_up() {
            Ok(wanted) => (wanted, None),
            Err(error) => (json!({}), Some(Err(error))),
        };
        let mut problem = self.problem(failed.as_ref().filter(|_| outcome.is_ok()).unwrap_or(outcome));
        match &mut problem {
            Some(problem) => self.tell_problem(problem).await,
            None => self.tell_synced().await,
        }
        let written = self.write_status(wanted, problem).await;
        match failed {
            Some(Err(error)) => Err(error),
            _ => written,
        }
    }

    /// The status that the function of the user makes of the targets that are known.
    fn status_up(&self) -> Result<Value, SyncError> {
        let (Some(source), Some(status), targets) = (&self.source, &self.relation.status, &self.targets)
        else {
            return Ok(json!({}));
        };
        if source.metadata.deletion_timestamp.is_some() || targets.is_empty() {
            return Ok(json!({}));
        }
        let typed: S = decode("decoding", value(source))?;
        let decoded = targets
            .iter()
            .map(|(cluster, object)| Ok((cluster.clone(), decode("decoding of a target", value(object))?)));
        let targets: Vec<(ClusterName, T)> = decoded.collect::<Result<_, SyncError>>()?;
        let function = "status";
        call(function, || status(&typed, &targets))?.map_err(|error| SyncError::function(function, error))
    }

    async fn write_status(&self, mut wanted: Value, problem: Option<Problem>) -> Result<(), SyncError> {
        let relation = self.relation;
        // A kind without the subresource has nothing to write to.
        let has_no_status = problem
            .as_ref()
            .is_some_and(|problem| problem.reason == NO_STATUS);
        let (Some(source), false) = (&self.source, has_no_status) else {
            return Ok(());
        };
        if relation.status.is_none() && relation.condition.is_none() {
            return Ok(());
        }
        let live = value(source);
        let is_synced = |typed: &S| {
            source.metadata.deletion_timestamp.is_none() && relation.selects(source, typed).unwrap_or(false)
        };
        if !record::has_finalizer(&relation.name, &source.metadata)
            && !decode("decoding", live.clone()).is_ok_and(|typed: S| is_synced(&typed))
        {
            return Ok(());
        }
        if let Some(kind) = &relation.condition {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let (is_synced, reason, message) = match problem {
                Some(problem) => (false, problem.reason, problem.message),
                None => (true, "Synced", "all targets are as they should be".to_owned()),
            };
            let condition =
                Condition::new(kind, is_synced, reason, message).observed(source.metadata.generation);
            // Those of the function come first. Without any, those of others stay.
            let live = live["status"].get("conditions");
            wanted["conditions"] = condition.among(wanted.get("conditions").or(live), live, &now);
        }
        // Nothing is chosen, so there is nothing to write, even if the source has no status at all.
        if wanted.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let Some(patch) = status_difference(live.get("status"), &wanted) else {
            return Ok(());
        };
        let version = &live["metadata"]["resourceVersion"];
        let patch = json!({"metadata": {"resourceVersion": version}, "status": patch});
        match self.own()?.patch_status(patch).await? {
            Written::Done(_) => Ok(()),
            // The source has changed, and its change leads to the next reconcile.
            Written::Outdated => Ok(()),
        }
    }

    /// Why a connected cluster can't list the targets, if somebody must change something there.
    fn unlisted(&self, place: &RequestKey) -> Option<String> {
        let cluster = self.request.fleet.get(&place.cluster).ok()?;
        let watch = self.relation.target_watch().to_string();
        let mut kinds = cluster.kinds().into_iter().filter(|kind| kind.watch == watch);
        let is_connected = cluster.state().is_ready();
        kinds.find(|kind| is_connected && kind.blocked)?.problem
    }

    /// What is wrong with the sync of the source, as its condition and its events say.
    fn problem(&self, outcome: &Result<Holds, SyncError>) -> Option<Problem> {
        let notes = self.related.notes();
        let (reason, message) = match outcome {
            Ok(holds) if holds.is_empty() && notes.is_empty() && self.troubles.is_empty() => return None,
            Ok(holds) => {
                let tell = |hold: &Hold<RequestKey>| told(hold, self.unlisted(&hold.place));
                let mut told: Vec<String> = holds.iter().map(tell).collect();
                told.extend(notes.iter().map(ToString::to_string));
                told.extend(self.troubles.iter().map(|(place, trouble)| trouble.words(place)));
                let reason = match holds.first().map(|hold| hold.reason) {
                    Some(HoldReason::Away) if self.unlisted(&holds[0].place).is_some() => "NotListed",
                    Some(HoldReason::Away) => "ClusterAway",
                    Some(HoldReason::Silent) => "NoAnswer",
                    Some(HoldReason::Deleting) => "TargetDeleting",
                    Some(HoldReason::Foreign) => "NameTaken",
                    Some(HoldReason::Claimed) => "ClaimedTwice",
                    None => {
                        let trouble = self.troubles.first().map(|(_, trouble)| trouble.reason());
                        notes.first().map(Note::reason).or(trouble).unwrap_or("Related")
                    }
                };
                (reason, told.join("; "))
            }
            Err(error) => (error.reason(), error.to_string()),
        };
        Some(Problem {
            reason,
            message,
            generation: outcome.as_ref().err().and_then(|_| self.meta().generation),
        })
    }
}

fn told(hold: &Hold<RequestKey>, unlisted: Option<String>) -> String {
    let RequestKey { cluster, object } = &hold.place;
    match (hold.reason, unlisted) {
        (HoldReason::Away, Some(problem)) => {
            format!(
                "the state of {object} in cluster {cluster} is not known, because its kind can't be listed there: {problem}"
            )
        }
        (HoldReason::Away, None) => {
            format!("cluster {cluster} is away, so the state of {object} there is not known")
        }
        (HoldReason::Silent, _) => SyncError::NoAnswer(hold.place.clone()).to_string(),
        (HoldReason::Deleting, _) => {
            format!("{object} in cluster {cluster} is being deleted and waits for its finalizers")
        }
        (HoldReason::Foreign, _) => {
            format!(
                "{object} in cluster {cluster} belongs to somebody else; rename or delete it, or allow its adoption"
            )
        }
        (HoldReason::Claimed, _) => {
            format!(
                "{object} in cluster {cluster} names this source too, and the sync has no target there; delete it, or remove its \
                 labels and annotations of sync.mcr.dev"
            )
        }
    }
}
