//! Random histories over the plan: edits, deletions, restarts between any two writes, stores that lag, clusters that come and
//! go, changed placement, objects of somebody else. No API server takes part.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use mcr_sync::{Observed, SourceState, Step, TargetState, next_step};

const SOURCES: usize = 3;
const CLUSTERS: u8 = 3;

/// A deliberate mistake. The model must find each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// Steps are taken on what the stores say.
    NoConfirmation,
    /// Objects are created before the record names them.
    CreateBeforeClaim,
    /// The source is released while targets are left.
    ReleaseEarly,
    /// A place leaves the record before its target is gone.
    ForgetEarly,
    /// An object of somebody else counts as ours.
    TakesForeign,
    /// Deletes have no preconditions.
    BlindDelete,
    /// Patches have no preconditions.
    BlindPatch,
    /// A cluster that is away counts as one without the target.
    AwayIsAbsent,
    /// Former places are never cleaned up.
    NoCleanUp,
    /// Differences are not repaired.
    NoUpdate,
}

const BUGS: [Bug; 10] = [
    Bug::NoConfirmation,
    Bug::CreateBeforeClaim,
    Bug::ReleaseEarly,
    Bug::ForgetEarly,
    Bug::TakesForeign,
    Bug::BlindDelete,
    Bug::BlindPatch,
    Bug::AwayIsAbsent,
    Bug::NoCleanUp,
    Bug::NoUpdate,
];

#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uid: u64,
    version: u64,
    spec: u64,
    selected: bool,
    deleting: bool,
    finalizer: bool,
    recorded: BTreeSet<u8>,
    placement: BTreeSet<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    version: u64,
    ours: bool,
    spec: u64,
    deleting: bool,
    /// Somebody's finalizer: a deletion waits.
    blocked: bool,
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn placement(&mut self) -> BTreeSet<u8> {
        (0..CLUSTERS).filter(|_| self.below(2) == 0).collect()
    }
}

type Place = (u8, usize);

/// What one reconcile knows.
#[derive(Debug, Clone)]
struct Sight {
    source: Option<Source>,
    confirmed: bool,
    live: BTreeMap<u8, Option<Target>>,
}

#[derive(Clone, Default)]
struct Model {
    sources: BTreeMap<usize, Source>,
    targets: BTreeMap<Place, Target>,
    away: BTreeSet<u8>,
    /// What the stores show.
    seen_sources: BTreeMap<usize, Source>,
    seen_targets: BTreeMap<Place, Target>,
    running: BTreeMap<usize, Sight>,
    /// The objects of somebody else, as they were made.
    foreign: BTreeMap<Place, Target>,
    versions: u64,
    bug: Option<Bug>,
}

impl Model {
    fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    fn act(&mut self, random: &mut Random) -> Result<(), String> {
        let at = usize::try_from(random.below(SOURCES as u64)).unwrap();
        let cluster = u8::try_from(random.below(u64::from(CLUSTERS))).unwrap();
        let place = (cluster, at);
        let version = self.version();
        match random.below(34) {
            0 => {
                let placement = random.placement();
                self.sources.entry(at).or_insert(Source {
                    uid: version,
                    version,
                    spec: version,
                    selected: true,
                    deleting: false,
                    finalizer: false,
                    recorded: BTreeSet::new(),
                    placement,
                });
            }
            1 => {
                if let Some(source) = self.sources.get_mut(&at) {
                    (source.deleting, source.version) = (true, version);
                }
                self.vanish(at);
            }
            2 => {
                let placement = random.placement();
                if let Some(source) = self.sources.get_mut(&at) {
                    (source.placement, source.version) = (placement, version);
                }
            }
            3 => {
                if let Some(source) = self.sources.get_mut(&at) {
                    (source.spec, source.version) = (version, version);
                }
            }
            4 => {
                if let Some(source) = self.sources.get_mut(&at) {
                    (source.selected, source.version) = (!source.selected, version);
                }
            }
            // Others change, block and delete targets.
            5 => {
                if let Some(target) = self.targets.get_mut(&place).filter(|target| target.ours) {
                    (target.spec, target.version) = (0, version);
                }
            }
            6 => {
                if let Some(target) = self.targets.get_mut(&place).filter(|target| target.ours) {
                    (target.blocked, target.version) = (!target.blocked, version);
                }
                self.finish(place);
            }
            7 => {
                self.targets.remove(&place);
                self.foreign.remove(&place);
            }
            // Somebody takes the name, of a target too.
            8 => {
                if self.targets.get(&place).is_none_or(|target| target.ours) {
                    let target = Target {
                        version,
                        ours: false,
                        spec: version,
                        deleting: false,
                        blocked: false,
                    };
                    self.targets.insert(place, target.clone());
                    self.foreign.insert(place, target);
                }
            }
            9 => drop(self.away.insert(cluster)),
            10 | 11 => drop(self.away.remove(&cluster)),
            12 => {
                // A restart: every reconcile ends, and every store lists again.
                self.running.clear();
                self.deliver();
            }
            13 | 14 => match self.sources.get(&at).cloned() {
                Some(source) => drop(self.seen_sources.insert(at, source)),
                None => drop(self.seen_sources.remove(&at)),
            },
            15 | 16 => match self.targets.get(&place).cloned() {
                Some(target) => drop(self.seen_targets.insert(place, target)),
                None => drop(self.seen_targets.remove(&place)),
            },
            _ => drop(self.reconcile(at)),
        }
        self.check()
    }

    fn deliver(&mut self) {
        self.seen_sources = self.sources.clone();
        let away = self.away.clone();
        self.seen_targets.retain(|place, _| away.contains(&place.0));
        let listed = self.targets.iter().filter(|(place, _)| !away.contains(&place.0));
        self.seen_targets
            .extend(listed.map(|(place, target)| (*place, target.clone())));
    }

    fn vanish(&mut self, at: usize) {
        if self
            .sources
            .get(&at)
            .is_some_and(|source| source.deleting && !source.finalizer)
        {
            self.sources.remove(&at);
        }
    }

    fn finish(&mut self, place: Place) {
        if self
            .targets
            .get(&place)
            .is_some_and(|target| target.deleting && !target.blocked)
        {
            self.targets.remove(&place);
        }
    }

    /// What must hold after every request.
    fn check(&self) -> Result<(), String> {
        for (place, target) in self.targets.iter().filter(|(_, target)| target.ours) {
            let is_recorded = self
                .sources
                .get(&place.1)
                .is_some_and(|source| source.finalizer && source.recorded.contains(&place.0));
            if !is_recorded {
                return Err(format!("an orphan at {place:?}: {target:?}"));
            }
        }
        for (place, made) in &self.foreign {
            if self.targets.get(place) != Some(made) {
                return Err(format!("the object of somebody else at {place:?} was changed"));
            }
        }
        Ok(())
    }

    fn look(&self, at: usize, sight: &Sight) -> Observed<u8> {
        let source = sight.source.clone();
        let recorded = source
            .as_ref()
            .map(|source| source.recorded.clone())
            .unwrap_or_default();
        let is_live = source
            .as_ref()
            .is_some_and(|source| source.selected && !source.deleting);
        let wanted = source
            .as_ref()
            .filter(|_| is_live)
            .map(|source| source.placement.clone())
            .unwrap_or_default();
        let spec = source.as_ref().map_or(0, |source| source.spec);
        let state = |&cluster: &u8| {
            let found = match sight.live.get(&cluster) {
                Some(live) => live.clone(),
                None if self.away.contains(&cluster) && self.has(Bug::AwayIsAbsent) => None,
                None if self.away.contains(&cluster) => return (cluster, TargetState::Away),
                None => self.seen_targets.get(&(cluster, at)).cloned(),
            };
            let state = match found {
                None => TargetState::Absent,
                Some(target) if target.ours || self.has(Bug::TakesForeign) => TargetState::Ours {
                    differs: target.spec != spec && !self.has(Bug::NoUpdate),
                    deleting: target.deleting,
                },
                Some(_) => TargetState::Foreign { adoptable: false },
            };
            (cluster, state)
        };
        Observed {
            source: match &source {
                None => SourceState::Deleted,
                Some(_) if is_live => SourceState::Live,
                Some(_) => SourceState::Ending,
            },
            finalizer: source.is_some_and(|source| source.finalizer),
            targets: recorded.union(&wanted).map(state).collect(),
            recorded,
            wanted,
        }
    }

    fn planned(&self, observed: &Observed<u8>) -> Step<u8> {
        let step = next_step(observed);
        match (&step, self.bug) {
            (Step::Claim(_), Some(Bug::CreateBeforeClaim)) => {
                let absent = |place: &&u8| observed.targets.get(place) == Some(&TargetState::Absent);
                let early = observed.wanted.iter().find(absent);
                early.map_or(step, |place| Step::Create(*place))
            }
            (Step::Delete(_), Some(Bug::ReleaseEarly)) if observed.wanted.is_empty() => Step::Release,
            (Step::Delete(place), Some(Bug::ForgetEarly)) => Step::Forget(
                observed
                    .recorded
                    .iter()
                    .copied()
                    .filter(|other| other != place)
                    .collect(),
            ),
            (Step::Delete(_), Some(Bug::NoCleanUp)) => Step::Rest(Vec::new()),
            _ => step,
        }
    }

    /// One request of a reconcile: a confirmation, or a write. Returns whether there was something to do.
    fn reconcile(&mut self, at: usize) -> bool {
        let Some(mut sight) = self.running.remove(&at).or_else(|| {
            let source = Some(self.seen_sources.get(&at)?.clone());
            Some(Sight {
                source,
                confirmed: false,
                live: BTreeMap::new(),
            })
        }) else {
            return false;
        };
        let observed = self.look(at, &sight);
        let step = self.planned(&observed);
        if matches!(step, Step::Rest(_)) {
            return false;
        }
        let places: Vec<u8> = match &step {
            Step::Create(place) | Step::Adopt(place) | Step::Update(place) | Step::Delete(place) => {
                vec![*place]
            }
            Step::Forget(kept) => observed.recorded.difference(kept).copied().collect(),
            Step::Release => observed.recorded.iter().copied().collect(),
            _ => Vec::new(),
        };
        // A request to a cluster that is away fails, and the reconcile with it.
        let asks_away = places.iter().any(|place| self.away.contains(place));
        if asks_away && !self.has(Bug::AwayIsAbsent) {
            return true;
        }
        let unasked: Vec<u8> = places
            .iter()
            .copied()
            .filter(|place| !sight.live.contains_key(place))
            .collect();
        if (!sight.confirmed || !unasked.is_empty()) && !self.has(Bug::NoConfirmation) {
            if !sight.confirmed {
                let uid = sight.source.as_ref().map(|source| source.uid);
                sight.source = self
                    .sources
                    .get(&at)
                    .filter(|found| Some(found.uid) == uid)
                    .cloned();
                sight.confirmed = true;
            }
            for place in unasked {
                let found = self
                    .targets
                    .get(&(place, at))
                    .cloned()
                    .filter(|_| !self.away.contains(&place));
                sight.live.insert(place, found);
            }
        } else if !asks_away || matches!(step, Step::Forget(_) | Step::Release) {
            self.take(at, step, &mut sight);
        }
        self.running.insert(at, sight);
        true
    }

    fn take(&mut self, at: usize, step: Step<u8>, sight: &mut Sight) {
        let version = self.version();
        let spec = sight.source.as_ref().map_or(0, |source| source.spec);
        let fresh = Target {
            version,
            ours: true,
            spec,
            deleting: false,
            blocked: false,
        };
        match step {
            Step::Claim(places) | Step::Forget(places) => self.write_record(at, sight, Some(places)),
            Step::Release => self.write_record(at, sight, None),
            Step::Create(place) => {
                let stored = self.targets.entry((place, at)).or_insert(fresh);
                sight.live.insert(place, Some(stored.clone()));
            }
            Step::Adopt(place) | Step::Update(place) => {
                let known = sight
                    .live
                    .get(&place)
                    .cloned()
                    .flatten()
                    .map(|target| target.version);
                let blind = self.has(Bug::BlindPatch);
                if let Some(stored) = self.targets.get_mut(&(place, at))
                    && (Some(stored.version) == known || blind)
                {
                    let (deleting, blocked) = (stored.deleting, stored.blocked);
                    *stored = Target {
                        deleting,
                        blocked,
                        ..fresh
                    };
                }
                sight.live.insert(place, self.targets.get(&(place, at)).cloned());
            }
            Step::Delete(place) => {
                let known = sight
                    .live
                    .get(&place)
                    .cloned()
                    .flatten()
                    .map(|target| target.version);
                let blind = self.has(Bug::BlindDelete);
                if let Some(stored) = self.targets.get_mut(&(place, at))
                    && (Some(stored.version) == known || blind)
                {
                    (stored.deleting, stored.version) = (true, version);
                }
                self.finish((place, at));
                sight.live.insert(place, self.targets.get(&(place, at)).cloned());
            }
            _ => {}
        }
    }

    fn write_record(&mut self, at: usize, sight: &mut Sight, places: Option<BTreeSet<u8>>) {
        let version = self.version();
        let (uid, known) = match &sight.source {
            Some(source) => (source.uid, source.version),
            None => return,
        };
        if let Some(source) = self.sources.get_mut(&at)
            && (source.uid, source.version) == (uid, known)
        {
            source.version = version;
            source.finalizer = places.is_some();
            source.recorded = places.unwrap_or_default();
        }
        self.vanish(at);
        sight.source = self.sources.get(&at).filter(|found| found.uid == uid).cloned();
    }

    /// Lets everything come to rest, and compares.
    fn settle(mut self) -> Result<(), String> {
        self.away.clear();
        for target in self.targets.values_mut() {
            target.blocked = false;
        }
        for place in Vec::from_iter(self.targets.keys().copied()) {
            self.finish(place);
        }
        for _ in 0..200 {
            self.deliver();
            // The end of a reconcile that began before the last change is not the last one.
            let acted: Vec<bool> = (0..SOURCES)
                .map(|at| self.running.contains_key(&at) | self.reconcile(at))
                .collect();
            self.check()?;
            if !acted.contains(&true) {
                return self.agree();
            }
        }
        Err("it does not come to rest".to_owned())
    }

    fn agree(&self) -> Result<(), String> {
        for at in 0..SOURCES {
            let source = self.sources.get(&at);
            if source.is_some_and(|source| source.deleting) {
                return Err(format!("source {at} is held for ever: {source:?}"));
            }
            let live = source.filter(|source| source.selected);
            let is_taken = |cluster: u8| self.foreign.contains_key(&(cluster, at));
            // A name that is taken keeps the former target in its place.
            let is_held =
                live.is_some_and(|source| source.placement.iter().any(|cluster| is_taken(*cluster)));
            for cluster in (0..CLUSTERS).filter(|cluster| !is_taken(*cluster)) {
                let found = self.targets.get(&(cluster, at));
                let wanted = live.filter(|source| source.placement.contains(&cluster));
                match (wanted, found) {
                    (Some(source), Some(target)) if target.spec == source.spec => {}
                    (None, None) => {}
                    (None, Some(_)) if is_held => {}
                    _ => return Err(format!("source {at} in cluster {cluster}: {source:?}, {found:?}")),
                }
            }
        }
        Ok(())
    }
}

/// Plays histories until one shows a fault, or `steps` are played. Returns the fault.
fn play(bug: Option<Bug>, steps: u64) -> Option<String> {
    const LENGTH: u64 = 250;
    for seed in 0..steps / LENGTH {
        let mut random = Random(seed);
        let mut model = Model {
            bug,
            ..Model::default()
        };
        let history = (0..LENGTH).try_for_each(|_| model.act(&mut random));
        if let Err(fault) = history.and_then(|()| model.settle()) {
            return Some(format!("history {seed}: {fault}"));
        }
    }
    None
}

#[test]
fn sync_model_ends_in_agreement_and_never_leaves_an_orphan_or_touches_the_objects_of_others() {
    assert_eq!(play(None, 2_000_000), None);
}

#[test]
fn sync_model_finds_each_planted_bug() {
    let missed: Vec<Bug> = BUGS
        .into_iter()
        .filter(|bug| play(Some(*bug), 50_000).is_none())
        .collect();
    assert!(missed.is_empty(), "{missed:?}");
}
