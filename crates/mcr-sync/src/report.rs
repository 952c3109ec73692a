//! Status and condition of the source: how its sync stands, in words.

use mcr::{ClusterName, RequestKey};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    api::{Written, value},
    error::SyncError,
    plan::{Hold, HoldReason},
    record,
    related::Note,
    relation::decode,
    sight::{Holds, Sight, Targets},
    status::{Condition, status_difference},
};

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Tells how the sync of the source stands, and writes its status and condition if they differ.
    pub(crate) async fn report(
        &mut self,
        outcome: &Result<(Holds, Targets), SyncError>,
    ) -> Result<(), SyncError> {
        let relation = self.relation;
        let stand = stand(outcome, self.related.notes());
        let problem = (!stand.is_synced).then_some((stand.reason, &*stand.message));
        self.tell_problem(problem).await;
        let Some(source) = &self.source else { return Ok(()) };
        // Without the subresource there is nothing to write to.
        let has_no_status = matches!(outcome, Err(SyncError::NoStatus(_)));
        if has_no_status || relation.status.is_none() && relation.condition.is_none() {
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
            let condition = Condition::new(kind, stand.is_synced, stand.reason, stand.message)
                .observed(source.metadata.generation);
            wanted["conditions"] = condition.among(live["status"].get("conditions"), &now);
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
        match self.own().patch_status(patch).await? {
            Written::Done(_) => Ok(()),
            // The source has changed, and its change leads to the next reconcile.
            Written::Outdated => Ok(()),
        }
    }
}

/// How the sync of a source stands.
struct Stand {
    is_synced: bool,
    reason: &'static str,
    message: String,
}

fn stand(outcome: &Result<(Holds, Targets), SyncError>, notes: &[Note]) -> Stand {
    let (reason, message) = match outcome {
        Ok((holds, _)) if holds.is_empty() && notes.is_empty() => {
            return Stand {
                is_synced: true,
                reason: "Synced",
                message: "all targets are as they should be".to_owned(),
            };
        }
        Ok((holds, _)) => {
            let mut told: Vec<String> = holds.iter().map(told).collect();
            told.extend(notes.iter().map(ToString::to_string));
            let reason = match holds.first().map(|hold| hold.reason) {
                Some(HoldReason::Away) => "ClusterAway",
                Some(HoldReason::Deleting) => "TargetDeleting",
                Some(HoldReason::Foreign) => "NameTaken",
                Some(HoldReason::Claimed) => "ClaimedTwice",
                None => notes.first().map_or("Related", Note::reason),
            };
            (reason, told.join("; "))
        }
        Err(error) => (error.reason(), error.to_string()),
    };
    Stand {
        is_synced: false,
        reason,
        message,
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
        HoldReason::Claimed => {
            format!(
                "{object} in cluster {cluster} names this source too, and the sync has no target there; delete it, or remove its \
                 labels and annotations of sync.mcr.dev"
            )
        }
    }
}
