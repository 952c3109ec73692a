//! Status and condition of the source: how its sync stands, in words.

use kube::core::DynamicObject;
use mcr::{ClusterName, RequestKey};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    api::{Written, value},
    error::SyncError,
    plan::{Hold, HoldReason},
    record,
    related::Note,
    relation::{call, decode},
    sight::{Holds, Sight, Targets},
    status::{Condition, status_difference},
};

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Writes status and condition of the source, if they differ.
    pub(crate) async fn report(
        &mut self,
        outcome: &Result<(Holds, Targets), SyncError>,
    ) -> Result<(), SyncError> {
        let relation = self.relation;
        let Some(source) = &self.source else { return Ok(()) };
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
        let (mut wanted, failed) = match self.status_up(source, outcome) {
            Ok(wanted) => (wanted, None),
            Err(error) => (json!({}), Some(Err(error))),
        };
        let outcome = failed.as_ref().unwrap_or(outcome);
        if let Some(kind) = &relation.condition {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let unlisted = |place: &RequestKey| self.unlisted(place);
            let condition =
                condition(kind, outcome, self.related.notes(), unlisted).observed(source.metadata.generation);
            wanted["conditions"] = condition.among(live["status"].get("conditions"), &now);
        }
        let written = self.write_status(&live, &wanted).await;
        match failed {
            Some(Err(error)) => Err(error),
            _ => written,
        }
    }

    /// The status that the function of the user makes.
    fn status_up(
        &self,
        source: &DynamicObject,
        outcome: &Result<(Holds, Targets), SyncError>,
    ) -> Result<Value, SyncError> {
        let (Some(status), Ok((_, targets))) = (&self.relation.status, outcome) else {
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
        let failed = |source| SyncError::Function { function, source };
        call(function, || status(&typed, &targets))?.map_err(failed)
    }

    async fn write_status(&self, live: &Value, wanted: &Value) -> Result<(), SyncError> {
        // Nothing is chosen, so there is nothing to write, even if the source has no status at all.
        if wanted.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let Some(patch) = status_difference(live.get("status"), wanted) else {
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

    /// Why a connected cluster can't list the targets, if somebody must change something there.
    fn unlisted(&self, place: &RequestKey) -> Option<String> {
        let cluster = self.request.fleet.get(&place.cluster).ok()?;
        let watch = self.relation.target_watch().to_string();
        let mut kinds = cluster.kinds().into_iter().filter(|kind| kind.watch == watch);
        let is_connected = cluster.state().is_ready();
        kinds.find(|kind| is_connected && kind.blocked)?.problem
    }
}

fn condition(
    kind: &str,
    outcome: &Result<(Holds, Targets), SyncError>,
    notes: &[Note],
    unlisted: impl Fn(&RequestKey) -> Option<String>,
) -> Condition {
    match outcome {
        Ok((holds, _)) if holds.is_empty() && notes.is_empty() => {
            Condition::new(kind, true, "Synced", "all targets are as they should be")
        }
        Ok((holds, _)) => {
            let tell = |hold: &Hold<RequestKey>| told(hold, unlisted(&hold.place));
            let mut told: Vec<String> = holds.iter().map(tell).collect();
            told.extend(notes.iter().map(ToString::to_string));
            let reason = match holds.first().map(|hold| hold.reason) {
                Some(HoldReason::Away) if unlisted(&holds[0].place).is_some() => "NotListed",
                Some(HoldReason::Away) => "ClusterAway",
                Some(HoldReason::Deleting) => "TargetDeleting",
                Some(HoldReason::Foreign) => "NameTaken",
                None => notes.first().map_or("Related", Note::reason),
            };
            Condition::new(kind, false, reason, told.join("; "))
        }
        Err(error) => Condition::new(kind, false, error.reason(), error.to_string()),
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
        (HoldReason::Deleting, _) => {
            format!("{object} in cluster {cluster} is being deleted and waits for its finalizers")
        }
        (HoldReason::Foreign, _) => {
            format!(
                "{object} in cluster {cluster} belongs to somebody else; rename or delete it, or allow its adoption"
            )
        }
    }
}
