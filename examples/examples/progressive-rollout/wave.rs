//! One wave: how far its clusters are, and which of them get the version next. No I/O.

use std::time::Duration;

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

use super::{
    api::{ClusterState, ClusterStatus, RolloutStatus, Unreachable, Wave, WaveState, WaveStatus},
    member::{Answer, Contact, Health, Member},
};

/// What all waves have in common.
pub(crate) struct Context<'a> {
    /// The version.
    pub(crate) revision: &'a String,
    /// The last status.
    pub(crate) before: &'a RolloutStatus,
    /// Whether the last status is about the same spec.
    pub(crate) same_generation: bool,
    pub(crate) unreachable: Unreachable,
    pub(crate) now: Timestamp,
}

/// Where a cluster is on its way to the version.
pub(crate) enum Standing {
    Outdated,
    Healthy,
    /// It is named in the status.
    Named(ClusterStatus),
}

pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a str,
    pub(crate) member: &'a Member,
    pub(crate) standing: Standing,
}

/// What follows for a wave.
pub(crate) struct Step {
    pub(crate) status: WaveStatus,
    /// The clusters that the status names.
    pub(crate) named: Vec<ClusterStatus>,
    /// The clusters to give the version to.
    pub(crate) apply: Vec<String>,
    /// When to look again, even if nothing changes.
    pub(crate) again: Option<Duration>,
}

impl Context<'_> {
    pub(crate) fn stand(&self, name: &str, wave: &Wave, member: &Member) -> Standing {
        let last = self.before.clusters.iter().find(|last| last.name == name);
        let failed = last.filter(|last| self.same_generation && last.state == ClusterState::Failed);
        let given = last.filter(|last| last.revision.as_ref() == Some(self.revision));
        let has = member.revision.as_ref() == Some(self.revision);
        let (state, message) = match (failed, &member.answer, &member.contact, &member.health) {
            // It stays failed until the spec changes, also if it recovers.
            (Some(failed), ..) => (ClusterState::Failed, &*failed.message),
            (_, Some(Answer::Refused(why)), ..) => (ClusterState::Failed, &**why),
            (_, _, Contact::Unreachable(why) | Contact::Unlisted(Some(why)), _) => {
                (ClusterState::Unreachable, &**why)
            }
            (_, _, Contact::Unlisted(None), _) => {
                (ClusterState::Connecting, "its Deployments are not listed yet")
            }
            (.., Health::Healthy) if has => return Standing::Healthy,
            (.., Health::Progressing(why)) if has => (ClusterState::Updating, &**why),
            (.., Health::Failed(why)) if has => (ClusterState::Failed, &**why),
            _ => match (given, &member.answer) {
                (None, _) => return Standing::Outdated,
                (_, Some(Answer::Error(why))) => (ClusterState::Updating, &**why),
                // The error of the last try stays until the Deployment is seen.
                (Some(given), _) if given.state == ClusterState::Updating => (given.state, &*given.message),
                _ => (ClusterState::Updating, APPLYING),
            },
        };
        Standing::Named(ClusterStatus {
            name: name.to_owned(),
            wave: wave.name.clone(),
            state,
            revision: given.map_or(&member.revision, |given| &given.revision).clone(),
            message: message.to_owned(),
        })
    }

    /// `open`: all earlier waves are complete. `may_apply`: the roll-out is neither paused nor failed.
    pub(crate) fn step(&self, wave: &Wave, clusters: &[Candidate<'_>], open: bool, may_apply: bool) -> Step {
        let healthy = clusters
            .iter()
            .filter(|one| matches!(one.standing, Standing::Healthy))
            .count();
        let mut named: Vec<ClusterStatus> = clusters
            .iter()
            .filter_map(|one| one.standing.named())
            .cloned()
            .collect();
        let has_it = |entry: &&ClusterStatus| entry.revision.as_ref() == Some(self.revision);
        let is_skipped = |entry: &&ClusterStatus| {
            entry.state == ClusterState::Unreachable && self.unreachable == Unreachable::Skip
        };
        let skipped = named.iter().filter(is_skipped).count();
        let busy = named
            .iter()
            .filter(|entry| has_it(entry) && !is_skipped(entry))
            .count();
        // A wave of which nothing is known is not healthy.
        let is_healthy = healthy > 0 && healthy + skipped == clusters.len();

        let soak = SignedDuration::from_secs(wave.soak_seconds.into());
        let soaked_for = |since: &Time| self.now.duration_since(since.0);
        let last = self.before.waves.iter().find(|last| last.name == wave.name);
        let since = last
            .filter(|_| self.before.revision == *self.revision)
            .and_then(|last| last.healthy_since.clone());
        let healthy_since = match since.filter(|since| is_healthy || soaked_for(since) >= soak) {
            None => is_healthy.then_some(Time(self.now)),
            since => since,
        };
        let has_soaked = healthy_since
            .as_ref()
            .is_some_and(|since| soaked_for(since) >= soak);

        let mut apply = Vec::new();
        let mut slots = match usize::try_from(wave.max_parallel) {
            Ok(limit) if open => limit.saturating_sub(busy),
            _ => 0,
        };
        for Candidate {
            name,
            member,
            standing,
        } in clusters.iter().filter(|_| may_apply)
        {
            // In a wave that is done, a cluster that joins gets the version at once: nothing runs there that could break.
            let joins = has_soaked && member.revision.is_none();
            match standing {
                Standing::Outdated if joins => {}
                Standing::Outdated if slots > 0 => slots -= 1,
                Standing::Named(entry)
                    if entry.state == ClusterState::Updating && member.revision != entry.revision =>
                {
                    apply.push((*name).to_owned());
                    continue;
                }
                _ => continue,
            }
            apply.push((*name).to_owned());
            named.push(ClusterStatus {
                name: (*name).to_owned(),
                wave: wave.name.clone(),
                state: ClusterState::Updating,
                revision: Some(self.revision.clone()),
                message: APPLYING.to_owned(),
            });
        }

        let updated = healthy + named.iter().filter(has_it).count();
        let is_complete = clusters.is_empty() || (is_healthy && has_soaked);
        let state = match () {
            () if is_complete => WaveState::Complete,
            () if is_healthy => WaveState::Soaking,
            () if open || updated > 0 => WaveState::Progressing,
            () => WaveState::Pending,
        };
        let unlisted = |one: &Candidate<'_>| matches!(one.member.contact, Contact::Unlisted(_));
        let soaking = healthy_since.as_ref().filter(|_| state == WaveState::Soaking);
        let left = soaking.and_then(|since| Duration::try_from(soak - soaked_for(since)).ok());
        named.sort_by(|a, b| a.name.cmp(&b.name));
        let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        Step {
            status: WaveStatus {
                name: wave.name.clone(),
                state,
                clusters: count(clusters.len()),
                updated: count(updated),
                healthy: count(healthy),
                healthy_since,
            },
            named,
            apply,
            again: if clusters.iter().any(unlisted) {
                Some(Duration::from_secs(1))
            } else {
                left
            },
        }
    }
}

const APPLYING: &str = "the Deployment is being applied";

impl Standing {
    pub(crate) fn named(&self) -> Option<&ClusterStatus> {
        match self {
            Self::Named(entry) => Some(entry),
            _ => None,
        }
    }
}
