//! Carries out the plan for the copies of one source.

use std::collections::BTreeSet;

use mcr::{ClusterName, RequestKey};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    look::{Copies, Leaving},
    watch::forget_source,
};
use crate::{
    api::value,
    apply, desired,
    error::SyncError,
    owned::{differing, dropped},
    plan::{SourceState, Step as MainStep, TargetState},
    related::{
        answers::CopyKey,
        notes::{Note, Problem},
        plan::{CopyHold, Phase, Step, next},
        rule::Way,
    },
    servers::settled,
    sight::{Look, Sight},
};

impl<S, T> Sight<'_, S, T>
where
    S: DeserializeOwned + Send + Sync,
    T: DeserializeOwned + Serialize + Send + Sync,
{
    /// Brings the copies of related objects to where the step of the targets may follow. Returns that step, or another one that
    /// holds it back. `None` means that something was read or written, so the next look decides.
    pub(crate) async fn relate(
        &mut self,
        look: &Look,
        step: MainStep<RequestKey>,
    ) -> Result<Option<MainStep<RequestKey>>, SyncError> {
        self.related.set_notes(Vec::new());
        if self.relation.related.is_empty() || matches!(step, MainStep::Claim(_)) {
            return Ok(Some(step));
        }
        let observed = &look.observed;
        let nobody = BTreeSet::new();
        let is_live = observed.source == SourceState::Live;
        let wanted = if is_live { &observed.wanted } else { &nobody };
        let phase = match step {
            MainStep::Create(_) | MainStep::Adopt(_) | MainStep::Update(_) => Phase::Early,
            _ => Phase::Late,
        };
        if wanted.is_empty() {
            forget_source(self.relation, &self.request.key);
        } else {
            let copies = self.copies(look, wanted, &Leaving::Some(BTreeSet::new())).await?;
            let Some(notes) = self.carry(look, copies, phase).await? else {
                return Ok(None);
            };
            let is_held = notes.iter().any(Note::is_obstacle);
            self.related.set_notes(notes);
            // What belongs to the former place stays until the new one is complete.
            if is_held && phase == Phase::Late {
                return Ok(Some(match step {
                    MainStep::Rest(holds) => MainStep::Rest(holds),
                    _ => MainStep::Rest(Vec::new()),
                }));
            }
        }
        let leaving = self.leaving(look, &step);
        if phase == Phase::Early || leaving.clusters().is_empty() && !matches!(leaving, Leaving::All(_)) {
            return Ok(Some(step));
        }
        // Nothing is written to a source that is gone, so what the stores miss now may be found later.
        if observed.source != SourceState::Deleted {
            for (at, cluster) in self.to_list(&leaving, look) {
                if self.list_copies(at, &cluster).await? {
                    return Ok(None);
                }
            }
        }
        let copies = self.copies(look, wanted, &leaving).await?;
        let Some(notes) = self.carry(look, copies, Phase::Late).await? else {
            return Ok(None);
        };
        let is_held = !notes.is_empty();
        self.related.set_notes(notes);
        Ok(Some(if is_held { MainStep::Rest(Vec::new()) } else { step }))
    }

    /// The clusters whose places lose their targets, or their line in the record, with this step.
    fn leaving(&self, look: &Look, step: &MainStep<RequestKey>) -> Leaving {
        let observed = &look.observed;
        let clusters = |places: &mut dyn Iterator<Item = &RequestKey>| -> BTreeSet<ClusterName> {
            let wanted =
                |cluster: &ClusterName| observed.wanted.iter().any(|place| place.cluster == *cluster);
            let is_live = observed.source == SourceState::Live;
            let clusters = places.map(|place| place.cluster.clone());
            clusters.filter(|cluster| !is_live || !wanted(cluster)).collect()
        };
        match step {
            MainStep::Delete(place) => Leaving::Some(clusters(&mut std::iter::once(place))),
            MainStep::Forget(kept) => Leaving::Some(clusters(&mut observed.recorded.difference(kept))),
            MainStep::Release => Leaving::All(clusters(&mut observed.recorded.iter())),
            // The record went with the source, so nothing else follows.
            MainStep::Rest(_) if observed.source == SourceState::Deleted => {
                let is_known = |place: &&RequestKey| observed.targets.get(*place) != Some(&TargetState::Away);
                Leaving::Some(clusters(&mut observed.recorded.iter().filter(is_known)))
            }
            _ => Leaving::Some(BTreeSet::new()),
        }
    }

    /// Where copies of places that leave may be.
    fn to_list(&self, leaving: &Leaving, look: &Look) -> Vec<(usize, ClusterName)> {
        let is_given_up = |cluster: &&ClusterName| {
            let mut places = look.observed.targets.iter();
            places.any(|(place, state)| place.cluster == **cluster && *state == TargetState::Abandoned)
        };
        let mut all = Vec::new();
        for (at, rule) in self.relation.related.iter().enumerate() {
            match rule.way {
                Way::Up => all.push((at, self.request.key.cluster.clone())),
                Way::Down => {
                    let clusters = leaving.clusters().iter();
                    let reached = clusters.filter(|cluster| !is_given_up(cluster));
                    all.extend(reached.map(|cluster| (at, cluster.clone())));
                }
            }
        }
        all
    }

    /// Takes the next steps. Returns what is not as it should be, or `None` if something was read or written.
    async fn carry(
        &mut self,
        look: &Look,
        copies: Copies,
        phase: Phase,
    ) -> Result<Option<Vec<Note>>, SyncError> {
        let mut steps = match next(&copies.copies, phase) {
            Ok(steps) => steps,
            Err(holds) => {
                let mut notes = copies.notes;
                for ((at, key), hold) in holds {
                    let rule = &self.relation.related[at];
                    let problem = match hold {
                        CopyHold::Away => Problem::Unknown(format!("cluster {} is away", key.cluster)),
                        CopyHold::Deleting => Problem::Deleting,
                        CopyHold::Foreign => Problem::Foreign,
                    };
                    notes.push(Note {
                        id: rule.id.clone(),
                        kind: rule.resource.kind.clone(),
                        key,
                        problem,
                    });
                }
                return Ok(Some(notes));
            }
        };
        // A cluster that does not answer comes last.
        steps.sort_by_key(|step| self.relation.silent.since(&step.key().1.cluster).is_some());
        let (mut is_done, mut failed) = (false, None);
        for step in steps {
            let place = copies.desired.get(step.key()).map(|(_, place)| place.clone());
            if place
                .as_ref()
                .is_some_and(|place| self.failed.contains_key(place))
            {
                continue;
            }
            // The other copies must not wait for this one.
            match (self.write(look, &copies, &step).await, place) {
                (Ok(()), _) => is_done = true,
                (Err(error), Some(place)) => {
                    self.fail(Some(place), error, look).await?;
                    is_done = true;
                }
                (Err(error), None) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if !is_done => Err(error),
            _ => Ok(None),
        }
    }

    /// Carries out one step, if the servers still see what it follows from.
    async fn write(&mut self, look: &Look, copies: &Copies, step: &Step<CopyKey>) -> Result<(), SyncError> {
        let key = step.key();
        if let Some(most) = self.related.count() {
            return Err(SyncError::Unsettled(most));
        }
        if self.confirm_copy(look, copies, key).await? {
            return Ok(());
        }
        let remote = self.remote_copy(key)?;
        let desired = copies.desired.get(key).map(|(desired, _)| desired);
        let found = match (step, desired, copies.found.get(key)) {
            (Step::Create(_), Some(desired), _) => {
                let is_down = self.relation.related[key.0].way == Way::Down;
                let namespaces = self.relation.create_namespaces && is_down;
                let written = remote.create(desired::to_create(desired)?, namespaces).await?;
                let found = settled(None, &remote, desired, written).await?;
                if found
                    .as_ref()
                    .is_some_and(|found| !dropped(desired, &value(found)).is_empty())
                {
                    self.relation.related[key.0]
                        .writes
                        .note(&key.1, desired, Vec::new());
                }
                found
            }
            (Step::Update(_), Some(desired), Some(object)) => {
                let live = value(object);
                match apply::next_write(None, &self.relation.name, desired, &live)? {
                    Some(write) => {
                        let written = remote.write(write).await?;
                        let writes = &self.relation.related[key.0].writes;
                        writes.note(&key.1, desired, differing(desired, &live));
                        settled(None, &remote, desired, written).await?
                    }
                    None => remote.get().await?,
                }
            }
            (Step::Delete(_), _, Some(object)) => {
                remote.delete(object).await?;
                remote.get().await?
            }
            _ => remote.get().await?,
        };
        self.related.saw(key.clone(), found);
        Ok(())
    }

    /// Asks the servers about all that a write of this copy depends on. Returns whether anything was asked.
    async fn confirm_copy(&mut self, look: &Look, copies: &Copies, key: &CopyKey) -> Result<bool, SyncError> {
        let mut asked = false;
        let places: Vec<&RequestKey> = match copies.desired.get(key) {
            Some((_, place)) => vec![place],
            // An origin of any place may have this copy.
            None => {
                let selected = copies.selected.keys().filter(|(at, _)| *at == key.0);
                selected.map(|(_, place)| place).collect()
            }
        };
        for place in places {
            if look.observed.targets.contains_key(place) && !self.live.contains_key(place) {
                let found = self.remote(place)?.get().await?;
                self.live.insert(place.clone(), found);
                asked = true;
            }
            if let Some(selected) = copies.selected.get(&(key.0, place.clone())) {
                asked |= self.confirm_origins(key.0, place, selected).await?;
            }
        }
        if !self.related.has_asked(key) {
            let found = self.remote_copy(key)?.get().await?;
            self.related.saw(key.clone(), found);
            asked = true;
            // Before a deletion, another source may have taken the name, and this may be its copy.
            self.confirmed &= copies.desired.contains_key(key);
        }
        if !self.confirmed {
            self.source = self.refreshed().await?;
            (self.confirmed, asked) = (true, true);
        }
        Ok(asked)
    }
}
