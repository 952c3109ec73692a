//! The status and the condition of the source, which report the state of its sync.

use std::collections::BTreeMap;

use mcr::{ClusterName, RequestKey, WatchRequest};
use serde_json::{Value, json};

use crate::{
    api::value,
    error::{NO_STATUS, SyncError},
    functions::{call, decode},
    memory::Problem,
    pass::Pass,
    placement::Placement,
    plan::{Hold, HoldReason},
    reconcile::{Outcome, Targets},
    record,
    relation::{SourceKind, TargetKind},
    status::{Condition, status_difference},
};

/// The most problems in one message. A server refuses a condition whose message has more than 32,768 characters.
const MOST_PROBLEMS: usize = 16;

/// The reason of a source that its owner has paused.
pub(crate) const PAUSED: &str = "Paused";

impl<S: SourceKind, T: TargetKind> Pass<'_, S, T> {
    /// Reports the state of the sync, and writes status and condition of the source if they differ.
    pub(crate) async fn report(&mut self, outcome: &Outcome) -> Result<(), SyncError> {
        if outcome.is_pending {
            return Ok(());
        }
        let (status, failed) = match self.status_of(&outcome.targets) {
            Ok(status) => (status, None),
            Err(error) => (json!({}), Some(error)),
        };
        let mut problem = match outcome.error.as_ref().or(failed.as_ref()) {
            Some(error) => {
                let (message, generation) = (error.to_string(), self.meta().generation);
                Some(Problem {
                    reason: error.reason(),
                    message,
                    generation,
                })
            }
            None => self.problem(outcome),
        };
        let is_synced = problem.is_none();
        self.report_problem(&mut problem).await;
        let written = self.write_status(status, problem).await;
        self.count(outcome, (is_synced || outcome.is_paused) && written.is_ok());
        failed.map_or(written, Err)
    }

    fn count(&self, outcome: &Outcome, is_synced: bool) {
        let (key, memory, mut counts) = (&self.request.key, &self.relation.memory, BTreeMap::new());
        for hold in &outcome.holds {
            let state = match hold.reason {
                HoldReason::Away => "away",
                HoldReason::Silent => "silent",
                HoldReason::Deleting => "deleting",
                HoldReason::Foreign | HoldReason::Claimed => "taken",
            };
            *counts.entry(state).or_insert(0) += 1;
        }
        if outcome.failed > 0 {
            counts.insert("failed", outcome.failed);
        }
        memory.note_counts(key, outcome.synced, counts, is_synced);
    }

    /// The status that the function of the user makes of the known targets.
    fn status_of(&mut self, targets: &Targets) -> Result<Value, SyncError> {
        let status = self.relation.status.clone();
        let is_ending = self.meta().deletion_timestamp.is_some();
        let (Some(status), false) = (status, is_ending || targets.is_empty()) else {
            return Ok(json!({}));
        };
        let Some(source) = self.decoded()? else {
            return Ok(json!({}));
        };
        let decoded = targets
            .iter()
            .map(|(cluster, object)| Ok((cluster.clone(), decode("decoding of a target", value(object))?)));
        let targets: Vec<(ClusterName, T)> = decoded.collect::<Result<_, SyncError>>()?;
        let function = "status";
        call(function, || status(&source.typed, &targets))?
            .map_err(|error| SyncError::function(function, error))
    }

    async fn write_status(&mut self, mut wanted: Value, problem: Option<Problem>) -> Result<(), SyncError> {
        let relation = self.relation;
        // If the kind has no status subresource, nothing can be written.
        let has_no_status = problem
            .as_ref()
            .is_some_and(|problem| problem.reason == NO_STATUS);
        let is_written = relation.status.is_some() || relation.condition.is_some();
        let meta = self.meta();
        if self.source.is_none() || has_no_status || !is_written {
            return Ok(());
        }
        if !record::has_finalizer(&relation.name, &meta) {
            let typed = self.decoded().ok().flatten().map(|decoded| &decoded.typed);
            let is_selected = typed.is_some_and(|typed| relation.selects(&meta, typed).unwrap_or(false));
            if relation.must_delete_targets(&meta) || !is_selected {
                return Ok(());
            }
        }
        let live = self.source.as_ref().and_then(|source| source.data.get("status"));
        if let Some(kind) = &relation.condition {
            let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let (is_synced, reason, message) = match problem {
                Some(problem) => (false, problem.reason, problem.message),
                None => (true, "Synced", "all targets are as they should be".to_owned()),
            };
            let condition = Condition {
                kind,
                status: is_synced,
                reason,
                message: &message,
                observed_generation: meta.generation,
            };
            // If the function returned no conditions, the live conditions of other controllers stay.
            let live = live.and_then(|live| live.get("conditions"));
            wanted["conditions"] = condition.insert_into(wanted.get("conditions").or(live), live, &now);
        }
        // The user has chosen no status and no condition, so there is nothing to write.
        if wanted.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok(());
        }
        let Some(patch) = status_difference(live, &wanted) else {
            return Ok(());
        };
        let patch = json!({"metadata": {"resourceVersion": meta.resource_version}, "status": patch});
        // If the source has changed meanwhile, that change leads to the next reconcile.
        self.source_remote()?.patch_status(patch).await.map(drop)
    }

    /// The problem of the source, as its condition and its events report it.
    fn problem(&self, outcome: &Outcome) -> Option<Problem> {
        let mut all: Vec<(&'static str, String)> = Vec::new();
        if outcome.is_paused {
            let message = format!(
                "the annotation {} pauses the sync of this source; remove it to go on",
                record::PAUSED
            );
            all.push((PAUSED, message));
        }
        let (targets, copies): (Vec<_>, Vec<_>) =
            outcome.holds.iter().partition(|hold| hold.object.rule.is_none());
        all.extend(targets.iter().map(|hold| self.held_target(hold)));
        for note in &outcome.notes {
            let what = if note.is_unknown() {
                self.describe_origins(note.rule, &note.key.cluster)
            } else {
                self.describe_related(note.rule, &note.key)
            };
            all.push((note.problem.reason(), note.problem.message(&what)));
        }
        all.extend(copies.iter().map(|hold| self.held_copy(hold)));
        let troubles = self.troubles.iter();
        all.extend(troubles.map(|(object, trouble)| (trouble.reason(), trouble.message(&object.at))));
        let reason = all.first()?.0;
        let more = all.len().saturating_sub(MOST_PROBLEMS);
        all.truncate(MOST_PROBLEMS);
        if more > 0 {
            all.push((reason, format!("and {more} more")));
        }
        let messages: Vec<String> = all.into_iter().map(|(_, message)| message).collect();
        let message = messages.join("; ");
        Some(Problem {
            reason,
            message,
            generation: None,
        })
    }

    /// Why a connected cluster can't list the objects of a watch. `None` if it lists them, or may do so later without
    /// help.
    pub(crate) fn unlisted(&self, cluster: &ClusterName, watch: &WatchRequest) -> Option<String> {
        let cluster = self.named(cluster)?;
        let watch = watch.to_string();
        let mut kinds = cluster.kinds().into_iter().filter(|kind| kind.watch == watch);
        let is_connected = cluster.state().is_ready();
        kinds.find(|kind| is_connected && kind.blocked)?.problem
    }

    /// The reason and the message for a target that the sync leaves as it is.
    fn held_target(&self, hold: &Hold<Placement>) -> (&'static str, String) {
        let RequestKey { cluster, object } = &hold.object.at;
        match (hold.reason, self.unlisted(cluster, &self.watch(&hold.object))) {
            (HoldReason::Away, Some(problem)) => (
                "NotListed",
                format!(
                    "the state of {object} in cluster {cluster} is not known, because its kind can't be listed there: {problem}"
                ),
            ),
            (HoldReason::Away, None) => (
                "ClusterAway",
                format!("cluster {cluster} is away, so the state of {object} there is not known"),
            ),
            (HoldReason::Silent, _) => (
                "NoAnswer",
                SyncError::NoAnswer(hold.object.at.clone()).to_string(),
            ),
            (HoldReason::Deleting, _) => (
                "TargetDeleting",
                format!("{object} in cluster {cluster} is being deleted and waits for its finalizers"),
            ),
            (HoldReason::Foreign, _) => (
                "NameTaken",
                format!(
                    "{object} in cluster {cluster} belongs to somebody else; rename or delete it, or allow its adoption"
                ),
            ),
            (HoldReason::Claimed, _) => (
                "ClaimedTwice",
                format!(
                    "{object} in cluster {cluster} names this source too, and the sync has no target there; delete it, or remove its \
                     labels and annotations of sync.mcr.dev"
                ),
            ),
        }
    }

    fn describe_origins(&self, rule: usize, cluster: &ClusterName) -> String {
        let rule = &self.relation.related[rule];
        format!(
            "each {} in cluster {cluster}, related by {:?},",
            rule.resource.kind, rule.id
        )
    }

    fn describe_related(&self, rule: usize, key: &RequestKey) -> String {
        let rule = &self.relation.related[rule];
        let RequestKey { cluster, object } = key;
        format!(
            "{} {object} in cluster {cluster}, related by {:?},",
            rule.resource.kind, rule.id
        )
    }

    /// The reason and the message for a copy that the sync leaves as it is.
    fn held_copy(&self, hold: &Hold<Placement>) -> (&'static str, String) {
        let at = &hold.object.at;
        let what = self.describe_related(hold.object.rule.unwrap_or_default(), at);
        match hold.reason {
            HoldReason::Deleting => (
                "CopyDeleting",
                format!("{what} is being deleted and waits for its finalizers"),
            ),
            HoldReason::Foreign | HoldReason::Claimed => (
                "NameTaken",
                format!("{what} belongs to somebody else, so no copy is made; rename or delete it"),
            ),
            HoldReason::Silent => ("NoAnswer", SyncError::NoAnswer(at.clone()).to_string()),
            HoldReason::Away => {
                let problem = self.unlisted(&at.cluster, &self.watch(&hold.object));
                let why = problem.unwrap_or_else(|| format!("cluster {} is away", at.cluster));
                ("RelatedUnknown", format!("{what} is not known: {why}"))
            }
        }
    }
}
