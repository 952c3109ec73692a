//! A provider over a map, right or wrong in a way of one's choice.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use mcr_core::{
    Access, BoxError, BrokenCluster, Change, ClusterName, ClusterSpec, Discovery, Provider, Trust,
};
use mcr_testkit::conformance::Draft;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

macro_rules! flaws {
    ($($flaw:ident)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Flaw { $($flaw),* }

        impl Flaw {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$flaw),*];
        }
    };
}

flaws! {
    None SyncedTwice SyncedFirst NeverSynced NeverRemoves BrokenRemoves BrokenLeaks BrokenEnds BrokenIsSilent
    IgnoresStop LeaksTasks LeaksThreads RepeatsAll SameIdentity IdentityByToken ForgetsRotations
    ForgetsSuspension RemovesTheDeleting RemembersItsRounds LongName RemovesLate SuspendedIsRemoved LosesSome TearsDown
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Good,
    Broken,
    Suspended,
    Deleting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) draft: Draft,
    pub(crate) state: State,
    pub(crate) good: Option<Draft>,
}

type Clusters = BTreeMap<String, Entry>;

#[derive(Clone)]
pub(crate) struct World(Arc<watch::Sender<Clusters>>);

impl Default for World {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::default()))
    }
}

impl World {
    pub(crate) fn send_modify(&self, change: impl FnOnce(&mut Clusters)) {
        self.0.send_modify(change);
    }
}

pub(crate) struct Memory {
    world: World,
    flaw: Flaw,
    remembered: Arc<Mutex<Clusters>>,
}

impl Memory {
    pub(crate) fn new(world: World, flaw: Flaw) -> Self {
        Self {
            world,
            flaw,
            remembered: Arc::default(),
        }
    }
}

impl Provider for Memory {
    fn name(&self) -> &str {
        match self.flaw {
            Flaw::LongName => "a provider in memory",
            _ => "memory",
        }
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let running = Running {
            flaw: self.flaw,
            world: self.world.0.subscribe(),
            announced: Clusters::new(),
            remembered: self.remembered.clone(),
            ready: VecDeque::new(),
            begun: false,
            synced: false,
            ended: false,
        };
        let changes = stream::unfold(running, async |mut running| {
            let item = running.next().await?;
            Some((item, running))
        });
        match self.flaw {
            Flaw::IgnoresStop => changes.boxed(),
            _ => changes.take_until(stop.cancelled_owned()).boxed(),
        }
    }
}

struct Running {
    flaw: Flaw,
    world: watch::Receiver<Clusters>,
    announced: Clusters,
    remembered: Arc<Mutex<Clusters>>,
    ready: VecDeque<Result<Change, BoxError>>,
    begun: bool,
    synced: bool,
    ended: bool,
}

impl Running {
    async fn next(&mut self) -> Option<Result<Change, BoxError>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.ended |= item.is_err();
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if self.begun {
                self.world.changed().await.ok()?;
            } else {
                self.begin();
            }
            self.round();
        }
    }

    fn begin(&mut self) {
        self.begun = true;
        match self.flaw {
            Flaw::LeaksTasks => drop(tokio::spawn(std::future::pending::<()>())),
            Flaw::LeaksThreads => {
                std::thread::spawn(std::thread::park);
            }
            Flaw::RemembersItsRounds => self.announced = self.remembered.lock().unwrap().clone(),
            Flaw::SyncedFirst => self.announce_synced(),
            _ => {}
        }
    }

    fn announce_synced(&mut self) {
        self.synced = true;
        self.ready.push_back(Ok(Change::Synced));
    }

    fn round(&mut self) {
        let flaw = self.flaw;
        let mut now = self.world.borrow_and_update().clone();
        now.retain(|_, entry| match flaw {
            Flaw::RemovesTheDeleting => entry.state != State::Deleting,
            Flaw::SuspendedIsRemoved => entry.state != State::Suspended,
            Flaw::LosesSome => entry.draft.number() != 17,
            _ => true,
        });
        let mut removes = Vec::new();
        for name in self.announced.keys().filter(|name| !now.contains_key(*name)) {
            removes.push(Ok(Change::Remove(ClusterName::new(name.as_str()).unwrap())));
        }
        if !matches!(flaw, Flaw::NeverRemoves | Flaw::RemovesLate) {
            self.ready
                .append(&mut VecDeque::from(std::mem::take(&mut removes)));
        }
        for (name, entry) in &now {
            let before = self.announced.get(name);
            let same = before.is_some_and(|before| match flaw {
                Flaw::ForgetsRotations => {
                    before.draft.server() == entry.draft.server() && before.state == entry.state
                }
                Flaw::RepeatsAll => false,
                _ => before == entry,
            });
            if !same && flaw == Flaw::TearsDown && before.is_some() {
                let name = ClusterName::new(name.as_str()).unwrap();
                self.ready.push_back(Ok(Change::Remove(name)));
            }
            if !same {
                announce(flaw, entry, before.is_none(), self.synced, &mut self.ready);
            }
        }
        if flaw == Flaw::RemovesLate {
            // The flaw: a cluster that is gone is announced as removed only with the next change.
            let gone = self.announced.iter().filter(|(name, _)| !now.contains_key(*name));
            now.extend(
                gone.map(|(name, entry)| (name.clone(), entry.clone()))
                    .collect::<Vec<_>>(),
            );
        }
        self.announced.clone_from(&now);
        *self.remembered.lock().unwrap() = now;
        if flaw != Flaw::NeverSynced && (!self.synced || flaw == Flaw::SyncedTwice) {
            self.announce_synced();
        }
    }
}

fn announce(
    flaw: Flaw,
    entry: &Entry,
    first: bool,
    synced: bool,
    ready: &mut VecDeque<Result<Change, BoxError>>,
) {
    let name = ClusterName::new(entry.draft.name()).unwrap();
    let good = entry
        .good
        .as_ref()
        .filter(|_| first || entry.state != State::Broken);
    if let Some(draft) = good {
        let identity = match flaw {
            Flaw::SameIdentity => draft.name(),
            Flaw::IdentityByToken => draft.token().replace("canary", "id"),
            _ => draft.uid(),
        };
        let access = Access::kubeconfig(draft.kubeconfig(), Trust::Untrusted);
        let mut spec = ClusterSpec::new(name.clone(), access)
            .identity(identity)
            .label("version", draft.label());
        if entry.state == State::Suspended && flaw != Flaw::ForgetsSuspension {
            spec = spec.suspended("hibernated");
        }
        ready.push_back(Ok(Change::Upsert(spec)));
    }
    if entry.state != State::Broken || (flaw == Flaw::BrokenIsSilent && !synced) {
        return;
    }
    let error = match flaw {
        Flaw::BrokenLeaks => format!("can't read {}", entry.draft.token()),
        _ => "it can't be read".to_owned(),
    };
    ready.push_back(match flaw {
        Flaw::BrokenRemoves => Ok(Change::Remove(name)),
        Flaw::BrokenEnds => Err("it can't be read".into()),
        _ => Ok(Change::Broken(BrokenCluster::new(name, "entry in memory", error))),
    });
}
