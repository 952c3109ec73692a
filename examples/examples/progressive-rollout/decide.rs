//! The next step of a Rollout: a function of its spec, its last status and what is known of the clusters. It has no I/O.
//!
//! The new status is written before the version is applied. So it names each cluster that is given the version, also if the
//! program ends in between, or if the store of the cluster does not have the new Deployment yet.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::core::{ParseExpressionError, Selector, SelectorExt};

use super::{
    api::{ClusterState, Phase, Rollout, RolloutStatus, Wave, WaveState, WaveStatus},
    member::Member,
    wave::{Candidate, Context, Step},
};

#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) status: RolloutStatus,
    /// The clusters to give the version to, after the status is written.
    pub(crate) apply: Vec<String>,
    /// When to decide again, even if nothing changes.
    pub(crate) again: Option<Duration>,
}

pub(crate) fn decide(rollout: &Rollout, members: &BTreeMap<String, Member>, now: Timestamp) -> Decision {
    let (spec, revision) = (&rollout.spec, rollout.spec.revision());
    let before = rollout.status.clone().unwrap_or_default();
    let generation = rollout.metadata.generation.unwrap_or_default();
    let context = Context {
        revision: &revision,
        before: &before,
        same_generation: before.observed_generation == generation,
        unreachable: spec.unreachable,
        now,
    };
    let waves = match assign(&context, &spec.waves, members) {
        Ok(waves) => waves,
        Err(error) => {
            let mut status = before.clone();
            (status.phase, status.observed_generation) = (Phase::Failed, generation);
            status.conditions = conditions(&before, Phase::Failed, &format!("spec.waves: {error}"), now);
            let (apply, again) = (Vec::new(), None);
            return Decision { status, apply, again };
        }
    };
    let named = waves.iter().flatten().filter_map(|one| one.standing.named());
    let failed = named.filter(|entry| entry.state == ClusterState::Failed);
    let failed: Vec<String> = failed
        .map(|entry| format!("{}: {}", entry.name, entry.message))
        .collect();
    // The others do not get the version because the cluster that failed has left the fleet.
    let is_failed = !failed.is_empty() || (context.same_generation && before.phase == Phase::Failed);

    let mut open = true;
    let mut steps: Vec<Step> = Vec::new();
    for (wave, clusters) in spec.waves.iter().zip(&waves) {
        let step = context.step(wave, clusters, open, !is_failed && !spec.paused);
        open &= step.status.state == WaveState::Complete;
        steps.push(step);
    }
    let phase = match () {
        () if is_failed => Phase::Failed,
        () if open => Phase::Complete,
        () if spec.paused => Phase::Paused,
        () => Phase::Progressing,
    };
    let again = steps.iter().filter_map(|step| step.again).min();
    let apply = steps
        .iter_mut()
        .flat_map(|step| std::mem::take(&mut step.apply))
        .collect();
    let clusters = steps
        .iter_mut()
        .flat_map(|step| std::mem::take(&mut step.named))
        .collect();
    let waves: Vec<WaveStatus> = steps.into_iter().map(|step| step.status).collect();
    let status = RolloutStatus {
        observed_generation: generation,
        phase,
        conditions: conditions(&before, phase, &message(phase, &failed, &waves), now),
        revision,
        waves,
        clusters,
    };
    Decision { status, apply, again }
}

/// The clusters of each wave. A cluster belongs to the first wave that selects it.
fn assign<'a>(
    context: &Context<'_>,
    waves: &[Wave],
    members: &'a BTreeMap<String, Member>,
) -> Result<Vec<Vec<Candidate<'a>>>, ParseExpressionError> {
    let selectors = waves.iter().map(|wave| wave.selector.clone().try_into());
    let selectors = selectors.collect::<Result<Vec<Selector>, _>>()?;
    let mut assigned: Vec<Vec<Candidate<'a>>> = waves.iter().map(|_| Vec::new()).collect();
    for (name, member) in members {
        if let Some(index) = selectors.iter().position(|wave| wave.matches(&member.labels)) {
            let standing = context.stand(name, &waves[index], member);
            assigned[index].push(Candidate {
                name,
                member,
                standing,
            });
        }
    }
    Ok(assigned)
}

fn message(phase: Phase, failed: &[String], waves: &[WaveStatus]) -> String {
    match (
        phase,
        failed,
        waves.iter().find(|wave| wave.state != WaveState::Complete),
    ) {
        (Phase::Failed, [], _) => "a cluster that has left had failed; change the spec to go on".to_owned(),
        (Phase::Failed, [one], _) => one.clone(),
        (Phase::Failed, [first, more @ ..], _) => format!("{first} (and {} more)", more.len()),
        (Phase::Paused, ..) => "spec.paused is true".to_owned(),
        (
            _,
            _,
            Some(WaveStatus {
                name,
                healthy,
                clusters,
                ..
            }),
        ) => {
            format!("wave {name}: {healthy} of {clusters} clusters are healthy")
        }
        (_, _, None) => {
            let healthy: i32 = waves.iter().map(|wave| wave.healthy).sum();
            let clusters: i32 = waves.iter().map(|wave| wave.clusters).sum();
            format!("{healthy} of {clusters} clusters are healthy")
        }
    }
}

fn conditions(before: &RolloutStatus, phase: Phase, message: &str, now: Timestamp) -> Vec<Condition> {
    let types = [
        ("Ready", phase == Phase::Complete),
        ("Stalled", phase == Phase::Failed),
    ];
    let condition = |(type_, holds): (&str, bool)| {
        let status = if holds { "True" } else { "False" };
        let mut last = before.conditions.iter();
        let last = last.find(|last| last.type_ == type_ && last.status == status);
        Condition {
            last_transition_time: last.map_or(Time(now), |last| last.last_transition_time.clone()),
            message: message.to_owned(),
            observed_generation: None,
            reason: format!("{phase:?}"),
            status: status.to_owned(),
            type_: type_.to_owned(),
        }
    };
    types.map(condition).into()
}
