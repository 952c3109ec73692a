//! A fleet over places in memory, with someone who follows it and a model of what it should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use mcr_core::{
    Access, Cluster, ClusterState, Epoch, Fleet, FleetEvent, Store, StoreError, WatchHandle, WatchRequest,
};
use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};
use serde::de::DeserializeOwned;
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use mcr_doubles::place::{Fault, MAPS, Place, Stored, WIDGETS};

use crate::{
    announced::{Description, Facts, GRACE, Model, Scripted},
    witness::{Problems, Witness},
};

/// How many addresses each place has: clients that are told apart.
pub(crate) const ADDRESSES: usize = 2;

/// How long it may take until all is well after the last fault: the longest pauses there are, one after the other.
const PATIENCE: Duration = Duration::from_secs(400);

/// The longest pause between attempts, where time is real.
const SHORT: Duration = Duration::from_millis(200);

pub(crate) fn maps() -> WatchRequest {
    WatchRequest::of::<ConfigMap>()
}

pub(crate) fn metadata() -> WatchRequest {
    WatchRequest::of::<ConfigMap>().metadata_only()
}

pub(crate) fn widgets() -> WatchRequest {
    WatchRequest::resource(&ApiResource {
        group: "example.com".into(),
        version: "v1".into(),
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        plural: "widgets".into(),
    })
}

pub(crate) fn widget_metadata() -> WatchRequest {
    widgets().metadata_only()
}

pub(crate) struct World {
    pub(crate) fleet: Fleet,
    pub(crate) providers: Vec<Scripted>,
    pub(crate) places: Vec<Place>,
    addresses: Vec<Vec<Access>>,
    pub(crate) model: Arc<Mutex<Model>>,
    pub(crate) problems: Problems,
    followed: Arc<Mutex<Followed>>,
    stop: CancellationToken,
    running: JoinHandle<()>,
    follower: JoinHandle<()>,
}

/// What the follower knows.
#[derive(Default)]
struct Followed {
    engaged: BTreeMap<String, Engagement>,
    epochs: BTreeMap<String, Vec<Epoch>>,
}

struct Engagement {
    cluster: Cluster,
    witnesses: Vec<(WatchRequest, Arc<Witness>)>,
    stores: Stores,
    _handles: Vec<WatchHandle>,
    /// Whether it has ever been ready, so that it is known who it is.
    was_ready: Arc<AtomicBool>,
}

/// Every way to read: typed, dynamic, by metadata only, of a kind that is built in and of one that is not.
struct Stores {
    maps: Store<ConfigMap>,
    /// Of the same watch.
    dynamic_maps: Store<DynamicObject>,
    map_metadata: Store<PartialObjectMeta<ConfigMap>>,
    widgets: Store<DynamicObject>,
    widget_metadata: Store<PartialObjectMeta<DynamicObject>>,
}

impl Stores {
    fn of(cluster: &Cluster) -> Result<Self, StoreError> {
        Ok(Self {
            maps: cluster.store_of(&maps())?,
            dynamic_maps: cluster.store_of(&maps())?,
            map_metadata: cluster.store_of(&metadata())?,
            widgets: cluster.store_of(&widgets())?,
            widget_metadata: cluster.store_of(&widget_metadata())?,
        })
    }
}

impl World {
    pub(crate) fn new(places: usize) -> Self {
        Self::with(places, false)
    }

    /// For a runtime of several threads and real time, with short pauses.
    pub(crate) fn on_threads(places: usize) -> Self {
        Self::with(places, true)
    }

    fn with(places: usize, threads: bool) -> Self {
        let places: Vec<Place> = (1..=places as u64).map(Place::new).collect();
        let addresses = places
            .iter()
            .map(|place| (0..ADDRESSES).map(|_| Access::from(place.client())).collect())
            .collect();
        let model: Arc<Mutex<Model>> = Arc::default();
        let providers = vec![Scripted::new(0, &model), Scripted::new(1, &model)];
        let fleet = Fleet::builder()
            .provider(providers[0].clone())
            .provider(providers[1].clone())
            .settings(|chosen| {
                // Any names may lead to one place.
                chosen.allow_duplicates = true;
                chosen.removal_grace = GRACE;
                chosen.drain_grace = Duration::from_secs(1);
                let watch = Arc::make_mut(&mut chosen.watch);
                watch.page_size = 3;
                watch.watch_timeout = Duration::from_secs(60);
                watch.list_timeout = Duration::from_secs(30);
                if threads {
                    watch.retry_cap = SHORT;
                    chosen.reconnect_cap = SHORT;
                }
            })
            .build();
        fleet.index("value", |map: &ConfigMap| {
            map.data.iter().flat_map(|data| data.values().cloned()).collect()
        });
        let problems = Problems::default();
        let followed: Arc<Mutex<Followed>> = Arc::default();
        model.lock().unwrap().unknown = Some(Box::new({
            let followed = followed.clone();
            move |name, declared| {
                let followed = followed.lock().unwrap();
                let Some(engagement) = followed.engaged.get(name) else {
                    return true;
                };
                let known = engagement.cluster.identity();
                let known = known.filter(|known| declared || !known.starts_with("identity"));
                known.is_none() || !engagement.was_ready.load(Ordering::SeqCst)
            }
        }));
        model.lock().unwrap().current = Some(Box::new({
            let fleet = fleet.clone();
            move |name| Some(fleet.get(name).ok()?.epoch())
        }));
        let follower = tokio::spawn(follow(
            fleet.clone(),
            places.clone(),
            problems.clone(),
            followed.clone(),
            threads,
        ));
        let stop = CancellationToken::new();
        let running = tokio::spawn({
            let (fleet, stop) = (fleet.clone(), stop.clone());
            async move { fleet.run(stop).await }
        });
        Self {
            fleet,
            providers,
            places,
            addresses,
            model,
            problems,
            followed,
            stop,
            running,
            follower,
        }
    }

    /// Lets everything happen that happens without time going on.
    pub(crate) async fn converge(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    pub(crate) fn set(&self, provider: usize, name: &str, facts: &Facts) {
        let access = &self.addresses[facts.place][facts.address];
        let spec = facts.spec(name, access);
        self.providers[provider].set(name, Description::Good(spec.into(), facts.clone()));
    }

    pub(crate) fn witness(&self, name: &str, request: &WatchRequest) -> Arc<Witness> {
        let followed = self.followed.lock().unwrap();
        let witnesses = &followed.engaged[name].witnesses;
        let found = witnesses.iter().find(|(of, _)| of == request).unwrap();
        found.1.clone()
    }

    /// Something happens to one of these clusters or to a place, which may fail in one of these ways.
    pub(crate) fn churn(&self, random: &mut SmallRng, names: &[&str], faults: &[Fault]) {
        let (name, place) = (
            names.choose(random).unwrap(),
            random.random_range(0..self.places.len()),
        );
        match random.random_range(0..12) {
            0 | 1 => self.providers[0].remove(name),
            2..5 => {
                let facts = Facts {
                    address: random.random_range(0..ADDRESSES),
                    declared: random.random(),
                    suspended: random.random_ratio(1, 8),
                    ..Facts::at(place)
                };
                self.set(0, name, &facts);
            }
            5 => self.providers[0].set(name, Description::Broken),
            6 => self.places[place].fail(faults.choose(random).copied().filter(|_| random.random())),
            7 => self.places[place].compact(),
            8 => self.places[place].end_watches(),
            _ => {
                let key = format!("n/k{}", random.random_range(0..8));
                self.places[place].put(MAPS, &key, "value");
                if random.random() {
                    self.places[place].delete(MAPS, &key);
                }
            }
        }
    }

    /// Ends all faults, and waits until the fleet is what it should be and stays so.
    pub(crate) async fn converges(&self) {
        for place in &self.places {
            place.fail(None);
        }
        self.eventually(PATIENCE, "the fleet equals the model", || self.check())
            .await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        self.problems.assert_none();
        if let Err(why) = self.check() {
            panic!("all was well, and then: {why}");
        }
    }

    /// The same in real time, in which nobody can wait and see whether it stays so.
    pub(crate) async fn converges_within(&self, patience: Duration) {
        for place in &self.places {
            place.fail(None);
        }
        self.eventually(patience, "the fleet equals the model", || self.check())
            .await;
    }

    async fn eventually(&self, patience: Duration, what: &str, mut ask: impl FnMut() -> Result<(), String>) {
        let started = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.problems.assert_none();
            match ask() {
                Ok(()) => return,
                Err(why) => assert!(started.elapsed() < patience, "{what}: {why}"),
            }
        }
    }

    /// Compares the fleet with the model.
    fn check(&self) -> Result<(), String> {
        if !self.providers.iter().all(Scripted::is_live) {
            return Err("discovery is interrupted".into());
        }
        let mut model = self.model.lock().unwrap();
        model.sweep();
        let wanted = model.engaged();
        let snapshot = self.fleet.snapshot();
        let engaged: BTreeSet<String> = self
            .fleet
            .clusters()
            .iter()
            .map(|cluster| cluster.name().to_string())
            .collect();
        same("the clusters", &engaged, &wanted.keys().cloned().collect())?;
        let mut shown: Vec<String> = wanted.keys().cloned().chain(model.never_good()).collect();
        shown.sort();
        let names = snapshot.clusters.iter().map(|status| status.name.to_string());
        same("what is shown", &names.collect(), &shown)?;
        for status in &snapshot.clusters {
            if status.state == "Broken" || status.state == "Unreachable" || status.state == "Suspended" {
                ensure(status.reason.as_ref().is_some_and(|why| !why.is_empty()), || {
                    format!("{} is {} for no reason", status.name, status.state)
                })?;
            }
            let warned = |of: &str| status.warnings.iter().any(|warning| warning.contains(of));
            if status.state != "Broken" {
                let (broken, held) = (model.is_broken(&status.name), model.is_held(&status.name));
                same(
                    &format!("{} has a warning of a broken description", status.name),
                    &warned("half-written"),
                    &broken,
                )?;
                same(
                    &format!("{} has a warning of being held", status.name),
                    &warned("kept: its provider lost"),
                    &held,
                )?;
            }
        }
        let followed = self.followed.lock().unwrap();
        for (name, facts) in &wanted {
            let engagement = followed
                .engaged
                .get(name)
                .ok_or(format!("{name} was not told as engaged"))?;
            let over = model.is_over(name, engagement.cluster.epoch());
            ensure(!over, || format!("{name} was removed, and is still the same"))?;
            let epochs = followed.epochs[name].len() as u64;
            ensure(epochs <= model.engagements(name), || {
                format!(
                    "{name} was engaged {epochs} times, of at most {}",
                    model.engagements(name)
                )
            })?;
            self.check_cluster(name, facts, engagement)
                .map_err(|why| format!("{name} ({facts:?}): {why}"))?;
        }
        Ok(())
    }

    fn check_cluster(&self, name: &str, facts: &Facts, engagement: &Engagement) -> Result<(), String> {
        let cluster = self.fleet.get(name).map_err(|error| error.to_string())?;
        ensure(cluster.is_same(&engagement.cluster), || {
            "another engagement than the one told".into()
        })?;
        same("label", &cluster.label("label"), &Some(facts.label.to_string()))?;
        let place = &self.places[facts.place];
        match (cluster.state(), facts.suspended) {
            (ClusterState::Suspended { .. }, true) | (ClusterState::Ready, false) => {}
            (state, _) => return Err(format!("it is {state}")),
        }
        if !facts.suspended {
            let identity = format!("identity-{}", facts.place);
            let identity = if facts.declared { identity } else { place.uid() };
            let shown = cluster.identity().map(|shown| shown.to_string());
            same("identity", &shown, &Some(identity))?;
        }
        let stores = &engagement.stores;
        let maps_held = contents(&stores.maps, value_of)?;
        same(
            "config maps read dynamically and typed",
            &contents(&stores.dynamic_maps, |map| value_in(map, "ConfigMap", "data"))?,
            &maps_held,
        )?;
        let held = [
            (maps(), maps_held.clone(), place.objects(MAPS)),
            (
                metadata(),
                contents(&stores.map_metadata, |_| String::new())?,
                no_values(place.objects(MAPS)),
            ),
            (
                widgets(),
                contents(&stores.widgets, |widget| value_in(widget, "Widget", "spec"))?,
                place.objects(WIDGETS),
            ),
            (
                widget_metadata(),
                contents(&stores.widget_metadata, |_| String::new())?,
                no_values(place.objects(WIDGETS)),
            ),
        ];
        for (request, held, there) in held {
            let witness = engagement.witnesses.iter().find(|(of, _)| *of == request);
            same(
                &format!("what was told of {request} and what is held"),
                &witness.unwrap().1.held(),
                &held,
            )?;
            if !facts.suspended {
                same(&format!("{request} here and at the server"), &held, &there)?;
            }
        }
        let by_value = |value: &str| -> Result<BTreeSet<String>, String> {
            let found = stores
                .maps
                .by_index("value", value)
                .map_err(|error| error.to_string())?;
            Ok(found.iter().filter_map(|map| map.metadata.name.clone()).collect())
        };
        let mut expected: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (key, stored) in maps_held {
            let name = key.rsplit('/').next().unwrap_or_default().to_owned();
            expected.entry(stored.value).or_default().insert(name);
        }
        // A store that was never listed can't be read by its index.
        for (value, names) in expected.iter().filter(|_| stores.maps.is_synced()) {
            same(&format!("the index of {value}"), &by_value(value)?, names)?;
        }
        if !facts.suspended {
            for kind in cluster.kinds() {
                ensure(kind.synced && kind.problem.is_none(), || {
                    format!("{}: {:?}", kind.watch, kind.problem)
                })?;
            }
        }
        Ok(())
    }

    /// Removes every cluster, stops the fleet, and looks whether anything of it is left.
    pub(crate) async fn ends_with_nothing(self) {
        self.eventually(PATIENCE, "discovery runs", || {
            let live = self.providers.iter().all(Scripted::is_live);
            ensure(live, || "it does not".into())
        })
        .await;
        for provider in &self.providers {
            for name in provider.names() {
                provider.remove(&name);
            }
        }
        self.converge().await;
        self.fleet.release_held();
        self.model.lock().unwrap().release_held();
        self.eventually(PATIENCE, "the fleet is empty", || {
            let left = self.fleet.snapshot().clusters;
            ensure(left.is_empty(), || format!("{left:#?}"))
        })
        .await;
        assert!(self.fleet.clusters().is_empty());
        assert!(self.followed.lock().unwrap().engaged.is_empty());
        self.problems.assert_none();
        self.end().await;
    }

    /// Stops the fleet, whatever it is doing.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.running)
            .await
            .expect("the fleet ends")
            .unwrap();
        self.follower.abort();
        let _ = self.follower.await;
        // The model asks the fleet, whose providers hold the model.
        self.model.lock().unwrap().current = None;
        self.problems.assert_none();
    }
}

fn value_of(map: &ConfigMap) -> String {
    let data = map.data.as_ref();
    data.and_then(|data| data.get("value").cloned())
        .unwrap_or_default()
}

/// The value of an object that was read dynamically, which says of what kind it is, as lists often don't.
fn value_in(object: &DynamicObject, kind: &str, field: &str) -> String {
    match object.types.as_ref().map(|types| types.kind.as_str()) {
        Some(is) if is == kind => object.data[field]["value"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        other => format!("of the kind {other:?}"),
    }
}

pub(crate) fn no_values(mut objects: BTreeMap<String, Stored>) -> BTreeMap<String, Stored> {
    objects.values_mut().for_each(|stored| stored.value.clear());
    objects
}

fn contents<K>(store: &Store<K>, value: impl Fn(&K) -> String) -> Result<BTreeMap<String, Stored>, String>
where
    K: kube::Resource + DeserializeOwned,
{
    let objects = store.list_unsynced().map_err(|error| error.to_string())?;
    let len = match store.len() {
        Ok(len) => len,
        // A suspended cluster may never have been listed.
        Err(StoreError::NotListed { .. }) if !store.is_synced() => objects.len(),
        Err(error) => return Err(error.to_string()),
    };
    let contents: BTreeMap<String, Stored> = objects
        .iter()
        .map(|object| {
            let meta = object.meta().clone();
            let stored = Stored {
                uid: meta.uid.unwrap_or_default(),
                version: meta.resource_version.unwrap_or_default(),
                value: value(object),
            };
            let (namespace, name) = (meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
            (format!("{namespace}/{name}"), stored)
        })
        .collect();
    ensure(contents.len() == len, || "an object can't be decoded".into())?;
    Ok(contents)
}

fn ensure(truth: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if truth { Ok(()) } else { Err(otherwise()) }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, should: &T) -> Result<(), String> {
    ensure(is == should, || {
        format!("{what}: is {is:?}, should be {should:?}")
    })
}

/// Watches every cluster that joins, as a controller does.
async fn follow(
    fleet: Fleet,
    places: Vec<Place>,
    problems: Problems,
    followed: Arc<Mutex<Followed>>,
    threads: bool,
) {
    let mut events = fleet.subscribe();
    loop {
        match events.next().await {
            FleetEvent::Engaged(cluster) => {
                let name = cluster.name().to_string();
                let engagement = engage(&cluster, &places, &problems);
                let mut followed = followed.lock().unwrap();
                followed
                    .epochs
                    .entry(name.clone())
                    .or_default()
                    .push(cluster.epoch());
                // It may have left already; the next event says so.
                let Ok(engagement) = engagement else { continue };
                if followed.engaged.insert(name.clone(), engagement).is_some() {
                    problems.add(format!("{name} joined without having left"));
                }
            }
            FleetEvent::Disengaged { name, epoch } => {
                let left = followed.lock().unwrap().engaged.remove(&*name);
                let Some(left) = left else { continue };
                if left.cluster.epoch() != epoch {
                    problems.add(format!(
                        "{name}: epoch {epoch} left, and {} was there",
                        left.cluster.epoch()
                    ));
                }
                if !matches!(left.stores.maps.list(), Err(StoreError::Gone { .. })) {
                    problems.add(format!("{name} has left, and its store can be read"));
                }
                let close = async move {
                    if threads {
                        // Another thread may be in the middle of telling something.
                        left.cluster.wait_for(|state| *state == ClusterState::Gone).await;
                    }
                    for (_, witness) in &left.witnesses {
                        witness.close();
                    }
                };
                if threads {
                    drop(tokio::spawn(close))
                } else {
                    close.await
                }
            }
            _ => {}
        }
    }
}

fn engage(cluster: &Cluster, places: &[Place], problems: &Problems) -> Result<Engagement, StoreError> {
    let mut witnesses = Vec::new();
    let mut handles = Vec::new();
    for request in [maps(), metadata(), widgets(), widget_metadata()] {
        let who = format!("{} epoch {}, {request}", cluster.name(), cluster.epoch());
        let witness = Witness::new(who, places, problems);
        handles.push(cluster.watch(request.clone(), Some(witness.clone()))?);
        witnesses.push((request, witness));
    }
    let was_ready = Arc::new(AtomicBool::new(false));
    tokio::spawn({
        let (cluster, was_ready) = (cluster.clone(), was_ready.clone());
        async move {
            let state = cluster.wait_for(ClusterState::is_ready).await;
            was_ready.store(state.is_ready(), Ordering::SeqCst);
        }
    });
    Ok(Engagement {
        cluster: cluster.clone(),
        witnesses,
        stores: Stores::of(cluster)?,
        _handles: handles,
        was_ready,
    })
}
