//! Providers that say what a schedule tells them, and what should follow from it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{StreamExt, stream};
use mcr_core::{
    Access, BoxError, BrokenCluster, Change, ClusterName, ClusterSpec, Discovery, Epoch, Provider,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

/// What a provider can say of a cluster, in the terms of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) place: usize,
    /// Which of the addresses of the place.
    pub(crate) address: usize,
    pub(crate) declared: bool,
    pub(crate) suspended: bool,
    pub(crate) label: u8,
}

impl Facts {
    /// Nothing but a place.
    pub(crate) fn at(place: usize) -> Self {
        Self {
            place,
            address: 0,
            declared: false,
            suspended: false,
            label: 0,
        }
    }

    pub(crate) fn spec(&self, name: &str, access: &Access) -> ClusterSpec {
        let spec = ClusterSpec::new(ClusterName::new(name).unwrap(), access.clone())
            .label("label", self.label.to_string());
        let spec = if self.declared {
            spec.identity(format!("identity-{}", self.place))
        } else {
            spec
        };
        if self.suspended {
            spec.suspended("asleep")
        } else {
            spec
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Description {
    Good(Box<ClusterSpec>, Facts),
    Broken,
}

/// The epoch of the cluster that is engaged under a name.
type Current = Box<dyn Fn(&str) -> Option<Epoch> + Send>;

/// By the cluster's name, and by whether an identity is declared now.
type Unknown = Box<dyn Fn(&str, bool) -> bool + Send>;

/// What the fleet should make of what was said: the rules of discovery, said once more and in the plainest way.
#[derive(Default)]
pub(crate) struct Model {
    claims: BTreeMap<String, Vec<Claim>>,
    /// What is in force, and what was when an engagement may have begun.
    in_force: BTreeMap<String, Facts>,
    /// How many engagements of a name there may have been.
    engagements: BTreeMap<String, u64>,
    /// The last epoch that was taken back.
    ended: BTreeMap<String, Epoch>,
    pub(crate) current: Option<Current>,
    rounds: [u64; 2],
    /// Whether another address of the engaged cluster, declared or not, may be met with a new engagement though it
    /// is the same place: where nothing is known by which to tell.
    pub(crate) unknown: Option<Unknown>,
}

#[derive(Debug, Clone)]
struct Claim {
    provider: usize,
    facts: Option<Facts>,
    broken: bool,
    round: u64,
    missing: Option<Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Until(Instant),
    Held,
}

pub(crate) const GRACE: Duration = Duration::from_secs(30);

impl Model {
    /// What should be engaged, and how it should look.
    pub(crate) fn engaged(&self) -> BTreeMap<String, Facts> {
        self.in_force.clone()
    }

    pub(crate) fn engagements(&self, name: &str) -> u64 {
        self.engagements.get(name).copied().unwrap_or_default()
    }

    /// Whether this engagement should have ended, by an explicit removal.
    pub(crate) fn is_over(&self, name: &str, epoch: Epoch) -> bool {
        self.ended.get(name).is_some_and(|ended| epoch <= *ended)
    }

    pub(crate) fn is_broken(&self, name: &str) -> bool {
        self.claims.get(name).is_some_and(|claims| claims[0].broken)
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.claims
            .get(name)
            .is_some_and(|claims| claims[0].missing == Some(Missing::Held))
    }

    /// Names that are only known by a description that can't be used.
    pub(crate) fn never_good(&self) -> Vec<String> {
        self.claims
            .iter()
            .filter(|(_, claims)| claims[0].facts.is_none())
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn claim(&mut self, provider: usize, name: &str) -> &mut Claim {
        let round = self.rounds[provider];
        let claims = self.claims.entry(name.to_owned()).or_default();
        let at = claims.iter().position(|claim| claim.provider == provider);
        let at = at.unwrap_or_else(|| {
            claims.push(Claim {
                provider,
                facts: None,
                broken: false,
                round,
                missing: None,
            });
            claims.len() - 1
        });
        claims[at].round = round;
        claims[at].missing = None;
        &mut claims[at]
    }

    /// Notes what is in force now.
    fn converge(&mut self, name: &str) {
        // A description that was never usable keeps no name.
        if let Some(claims) = self.claims.get_mut(name) {
            claims.sort_by_key(|claim| claim.facts.is_none());
        }
        let now = self.claims.get(name).and_then(|claims| claims[0].facts.clone());
        let Some(now) = now else {
            self.in_force.remove(name);
            return;
        };
        let replaced = match self.in_force.get(name) {
            None => true,
            Some(before) => {
                // Of several descriptions in one moment the fleet may see the last one only, so what counts is
                // what it knows, not what was said before.
                before.place != now.place
                    || ((before.address, before.declared) != (now.address, now.declared)
                        && self
                            .unknown
                            .as_ref()
                            .is_none_or(|unknown| unknown(name, now.declared)))
            }
        };
        if replaced {
            *self.engagements.entry(name.to_owned()).or_default() += 1;
        }
        self.in_force.insert(name.to_owned(), now);
    }

    fn announced(&mut self, provider: usize, name: &str, what: &Description) {
        self.sweep();
        let claim = self.claim(provider, name);
        match what {
            Description::Good(_, facts) => {
                claim.facts = Some(facts.clone());
                claim.broken = false;
            }
            Description::Broken => claim.broken = true,
        }
        self.converge(name);
    }

    fn removed(&mut self, provider: usize, name: &str) {
        let Some(claims) = self.claims.get_mut(name) else {
            return;
        };
        let Some(at) = claims.iter().position(|claim| claim.provider == provider) else {
            return;
        };
        claims.remove(at);
        if claims.is_empty() {
            self.claims.remove(name);
        }
        if at == 0 {
            // Taken back: whoever inherits the name is another cluster.
            self.in_force.remove(name);
            self.converge(name);
        }
    }

    fn remove(&mut self, provider: usize, name: &str) {
        self.sweep();
        let in_force = self
            .claims
            .get(name)
            .is_some_and(|claims| claims[0].provider == provider);
        let current = self.current.as_ref().and_then(|current| current(name));
        if let (true, Some(epoch)) = (in_force, current) {
            self.ended.insert(name.to_owned(), epoch);
        }
        self.removed(provider, name);
    }

    /// Everything anew: what is not in it is missing.
    fn round(&mut self, provider: usize, world: &BTreeMap<String, Description>) {
        self.sweep();
        self.rounds[provider] += 1;
        for (name, what) in world {
            self.announced(provider, name, what);
        }
        let round = self.rounds[provider];
        let all = self.claims.values_mut().flatten();
        let mine: Vec<&mut Claim> = all.filter(|claim| claim.provider == provider).collect();
        let of = mine.len();
        let mut missing: Vec<&mut Claim> = mine.into_iter().filter(|claim| claim.round < round).collect();
        let most = missing.len() >= 2 && missing.len() * 2 > of;
        for claim in &mut missing {
            claim.missing = match claim.missing {
                _ if most => Some(Missing::Held),
                Some(Missing::Until(at)) => Some(Missing::Until(at)),
                // What was held is missing like any other, from now on.
                Some(Missing::Held) | None => Some(Missing::Until(Instant::now() + GRACE)),
            };
        }
    }

    /// Removes what has been missing for too long.
    pub(crate) fn sweep(&mut self) {
        let now = Instant::now();
        let due = |claim: &Claim| matches!(claim.missing, Some(Missing::Until(at)) if at <= now);
        // In the same millisecond either can come first: what is said, or the end of the grace.
        let nearly = |claim: &Claim| matches!(claim.missing, Some(Missing::Until(at)) if at <= now + Duration::from_millis(2));
        let mut gone = Vec::new();
        for (name, claims) in &self.claims {
            for claim in claims {
                if due(claim) {
                    gone.push((claim.provider, name.clone()));
                }
                if nearly(claim) {
                    *self.engagements.entry(name.clone()).or_default() += 1;
                }
            }
        }
        for (provider, name) in gone {
            self.removed(provider, &name);
        }
    }

    pub(crate) fn release_held(&mut self) {
        self.sweep();
        let held: Vec<(usize, String)> = self
            .claims
            .iter()
            .flat_map(|(name, claims)| claims.iter().map(move |claim| (name, claim)))
            .filter(|(_, claim)| claim.missing == Some(Missing::Held))
            .map(|(name, claim)| (claim.provider, name.clone()))
            .collect();
        for (provider, name) in held {
            self.removed(provider, &name);
        }
    }
}

/// A provider and the world it looks at.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Script>);

struct Script {
    id: usize,
    name: String,
    state: Mutex<State>,
    model: Arc<Mutex<Model>>,
}

#[derive(Default)]
struct State {
    world: BTreeMap<String, Description>,
    /// The discovery that runs.
    live: Option<mpsc::UnboundedSender<Result<Change, BoxError>>>,
}

impl Scripted {
    pub(crate) fn new(id: usize, model: &Arc<Mutex<Model>>) -> Self {
        Self(Arc::new(Script {
            id,
            name: format!("scripted-{id}"),
            state: Mutex::default(),
            model: model.clone(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.model.lock().unwrap()
    }

    /// The cluster looks like this now. While no discovery runs, the fleet is not told.
    pub(crate) fn set(&self, name: &str, what: Description) {
        let mut state = self.state();
        let reported = state
            .live
            .as_ref()
            .is_some_and(|live| live.send(Ok(change(name, &what))).is_ok());
        if reported {
            self.model().announced(self.0.id, name, &what);
        }
        state.world.insert(name.to_owned(), what);
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut state = self.state();
        state.world.remove(name);
        let remove = Change::Remove(ClusterName::new(name).unwrap());
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.send(Ok(remove)).is_ok())
        {
            self.model().remove(self.0.id, name);
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.state().world.keys().cloned().collect()
    }

    /// Ends the discovery that runs; the fleet will begin another one.
    pub(crate) fn interrupt(&self, error: bool) {
        if let Some(live) = self.state().live.take()
            && error
        {
            let _ = live.send(Err("the provider's own trouble".into()));
        }
    }

    /// Whether the fleet is told everything.
    pub(crate) fn is_live(&self) -> bool {
        self.state().live.is_some()
    }
}

fn change(name: &str, what: &Description) -> Change {
    match what {
        Description::Good(spec, _) => Change::Upsert(ClusterSpec::clone(spec)),
        Description::Broken => Change::Broken(BrokenCluster::new(
            ClusterName::new(name).unwrap(),
            "a file",
            "half-written",
        )),
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let (live, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        for (name, what) in &state.world {
            let _ = live.send(Ok(change(name, what)));
        }
        let _ = live.send(Ok(Change::Synced));
        self.model().round(self.0.id, &state.world);
        state.live = Some(live);
        stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}
