//! After any sequence of lists, events and moves, the cache of each watch equals a map of its place, and so do the changes that
//! the sink of the watch has received.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::AtomicUsize,
};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_store::{Encoding, ObjectMetadata, TemplateRegistry};
use proptest::prelude::*;
use serde_json::{json, value::to_raw_value};

use super::*;
use crate::{error::WatchError, places::Placement, sink::ChangeSink};

/// Objects have their place in an annotation. Deletions are certain or not.
struct ByAnnotation(bool);

impl Places for ByAnnotation {
    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        object.annotation("place").map(Placement::new)
    }
    fn localizes(&self, _: &WatchRequest) -> bool {
        false
    }
    fn localize(&self, _: &str, _: &mut serde_json::Value) {}
    fn deletions_are_certain(&self) -> bool {
        self.0
    }
}

const PLACES: usize = 3;
const SCOPES: usize = 3;
const WATCHES: usize = 3;

/// UID, resource version and whether there is a deletion timestamp, by name.
type Objects = BTreeMap<String, (u8, u32, bool)>;

#[derive(Debug, Clone)]
enum Op {
    Begin(usize),
    /// Scope, place, name, UID, resource version, and whether there is a deletion timestamp. The place number `PLACES` means:
    /// belongs to no place. Versions repeat and go back, as after upgrades and restores.
    Put(usize, usize, u8, u8, u32, bool),
    /// Scope, place, name, and whether an older object of that name is meant.
    Delete(usize, usize, u8, bool),
    Finish(usize, bool),
    /// The delay of uncertain deletions has passed.
    Delay(usize),
    Abort(usize),
    Fail(usize),
    Received(usize),
    Join(usize, usize, usize),
    Leave(usize),
    Index,
}

fn op() -> impl Strategy<Value = Op> {
    let (scope, watch) = (0..SCOPES, 0..WATCHES);
    prop_oneof![
        3 => scope.clone().prop_map(Op::Begin),
        8 => (scope.clone(), 0..=PLACES, 0..3u8, 0..2u8, 1..4u32, prop::bool::weighted(0.2))
            .prop_map(|(s, p, n, u, v, d)| Op::Put(s, p, n, u, v, d)),
        4 => (scope.clone(), 0..=PLACES, 0..3u8, prop::bool::weighted(0.2))
            .prop_map(|(s, p, n, o)| Op::Delete(s, p, n, o)),
        3 => (scope.clone(), prop::bool::weighted(0.8)).prop_map(|(s, c)| Op::Finish(s, c)),
        2 => scope.clone().prop_map(Op::Delay),
        1 => scope.clone().prop_map(Op::Abort),
        1 => scope.clone().prop_map(Op::Fail),
        1 => scope.clone().prop_map(Op::Received),
        6 => (watch.clone(), scope, 0..PLACES).prop_map(|(w, s, p)| Op::Join(w, s, p)),
        2 => watch.prop_map(Op::Leave),
        1 => Just(Op::Index),
    ]
}

/// Applies the changes that it receives, and records changes that contradict the earlier ones.
#[derive(Default)]
struct Reported(Mutex<(Objects, Vec<String>)>);

fn seen(object: &Object) -> (u8, u32, bool) {
    let map: ConfigMap = object.decode().unwrap();
    let uid = u8::from_str_radix(&map.metadata.uid.unwrap(), 16).unwrap();
    let version = object.resource_version().parse().unwrap();
    (uid, version, map.metadata.deletion_timestamp.is_some())
}

impl ChangeSink for Reported {
    fn changed(&self, change: &ObjectChange) {
        let mut reported = self.0.lock();
        let name = change.key().unwrap().name.to_string();
        let before = match &change.new {
            Some(new) => reported.0.insert(name.clone(), seen(new)),
            None => reported.0.remove(&name),
        };
        if before.is_some() != change.old.is_some() && !change.is_delete()
            || change.is_delete() && before.is_none()
        {
            reported.1.push(format!("{name}: {change:?} after {before:?}"));
        }
    }
}

/// The watch of one endpoint, and the expected objects.
struct Scoped {
    watch: Arc<ScopeWatch>,
    /// How often the callback for the last reader was called.
    unread: Arc<AtomicUsize>,
    places: [Objects; PLACES],
    /// Whether a cluster may move to another endpoint.
    has_others: bool,
    /// The objects whose deletion is uncertain, and whether it is due.
    uncertain: BTreeMap<(usize, String), bool>,
    unseen: Option<BTreeSet<(usize, String)>>,
    /// The watches that wait for a list, in the order of their arrival: two watches may bring different objects to the same
    /// place.
    awaiting_next_list: Vec<usize>,
    awaiting_current_list: Vec<usize>,
    synced: bool,
    lists: u64,
    problem: bool,
}

impl Scoped {
    /// A watch event or a complete list shows that an object is gone.
    fn remove(&mut self, place: usize, name: String, is_read: bool) {
        let Some((.., deleting)) = self.places[place].get(&name) else {
            return;
        };
        if self.has_others && is_read && !deleting {
            self.uncertain.entry((place, name)).or_insert(false);
        } else {
            self.places[place].remove(&name);
        }
    }

    fn apply(&self, event: TargetEvent<'_>) {
        self.watch.apply(event).unwrap();
    }

    fn new(deletions_are_certain: bool) -> Self {
        let unread = Arc::new(AtomicUsize::new(0));
        let request = WatchRequest::of::<ConfigMap>();
        let left = {
            let unread = unread.clone();
            move |_: &WatchRequest| {
                unread.fetch_add(1, Ordering::SeqCst);
            }
        };
        Self {
            watch: Arc::new(ScopeWatch::new(
                Arc::new(ByAnnotation(deletions_are_certain)),
                request.clone(),
                request,
                Vec::new(),
                Box::new(left),
            )),
            unread,
            places: Default::default(),
            has_others: !deletions_are_certain,
            uncertain: BTreeMap::new(),
            unseen: None,
            awaiting_next_list: Vec::new(),
            awaiting_current_list: Vec::new(),
            synced: false,
            lists: 0,
            problem: false,
        }
    }
}

/// The watch of one cluster, and the expected objects.
struct Reading {
    watch: Arc<SharedWatch>,
    reported: Arc<Reported>,
    at: Option<(usize, usize)>,
    /// The objects that the watch brought from elsewhere, until a list that began after its arrival has ended.
    waits: Option<Objects>,
    synced: bool,
}

impl Reading {
    fn new() -> Self {
        let watch = Arc::new(SharedWatch::new(
            WatchRequest::of::<ConfigMap>(),
            CancellationToken::new(),
        ));
        let reported = Arc::new(Reported::default());
        watch.subscribe(reported.clone());
        Self {
            watch,
            reported,
            at: None,
            waits: None,
            synced: false,
        }
    }

    fn expected(&self, scopes: &[Scoped]) -> Objects {
        match (&self.waits, self.at) {
            (Some(own), _) => own.clone(),
            (None, Some((scope, place))) => scopes[scope].places[place].clone(),
            (None, None) => Objects::new(),
        }
    }
}

struct World {
    scopes: Vec<Scoped>,
    readings: Vec<Reading>,
    encoder: Encoder,
    indexed: bool,
}

impl World {
    fn new() -> Self {
        Self {
            scopes: vec![Scoped::new(true), Scoped::new(false), Scoped::new(false)],
            readings: (0..WATCHES).map(|_| Reading::new()).collect(),
            encoder: Encoder::with_templates(Arc::new(TemplateRegistry::new(Encoding::new(
                "v1",
                "ConfigMap",
            )))),
            indexed: false,
        }
    }

    fn json(place: usize, name: &str, uid: u8, version: u32, deleting: bool) -> Box<RawValue> {
        let mut object = json!({"metadata": {
            "name": name, "namespace": "n", "uid": format!("{uid:032x}"), "resourceVersion": version.to_string()
        }});
        if place < PLACES {
            object["metadata"]["annotations"] = json!({"place": place.to_string()});
        }
        if deleting {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        }
        to_raw_value(&object).unwrap()
    }

    fn take(&mut self, op: &Op) {
        match *op {
            Op::Begin(s) if self.scopes[s].unseen.is_none() => {
                let scope = &mut self.scopes[s];
                scope.apply(TargetEvent::ListBegins);
                let all = scope.places.iter().enumerate();
                let keys =
                    all.flat_map(|(place, objects)| objects.keys().map(move |name| (place, name.clone())));
                scope.unseen = Some(keys.collect());
                scope.awaiting_current_list.append(&mut scope.awaiting_next_list);
                // A list from the API server's cache may be older than the objects that these watches bring.
                assert_eq!(
                    scope.watch.needs_newest(),
                    !scope.awaiting_current_list.is_empty()
                );
            }
            Op::Put(s, place, name, uid, version, deleting) => {
                let (scope, name) = (&mut self.scopes[s], name.to_string());
                let json = Self::json(place, &name, uid, version, deleting);
                let opened = ParsedObject::read(&json).unwrap();
                let object = scope
                    .watch
                    .encode(Ok(opened.object()), &mut self.encoder)
                    .unwrap();
                assert_eq!(object.is_some(), place < PLACES);
                if let Some(object) = &object {
                    let initial = scope.unseen.is_some();
                    scope.apply(TargetEvent::Put { object, initial });
                }
                if let Some(objects) = scope.places.get_mut(place) {
                    objects.insert(name.clone(), (uid, version, deleting));
                    scope.uncertain.remove(&(place, name.clone()));
                    scope.unseen.as_mut().map(|unseen| unseen.remove(&(place, name)));
                }
            }
            Op::Delete(s, place, name, older) if self.scopes[s].unseen.is_none() => {
                let (scope, name) = (&mut self.scopes[s], name.to_string());
                let (uid, version) = if older { (9, 1) } else { (0, 9) };
                let json = Self::json(place, &name, uid, version, false);
                let opened = ParsedObject::read(&json).unwrap();
                let object = scope.watch.encode(Ok(opened.object()), &mut self.encoder);
                object
                    .unwrap()
                    .iter()
                    .for_each(|object| scope.apply(TargetEvent::Deleted(object)));
                if place < PLACES && !older {
                    let is_read = self.is_read(s, place);
                    self.scopes[s].remove(place, name, is_read);
                }
            }
            Op::Delay(s) => {
                let scope = &mut self.scopes[s];
                let others = scope.watch.delay_passed();
                scope.uncertain.retain(|(place, name), due| {
                    if *due {
                        scope.places[*place].remove(name);
                    }
                    !std::mem::replace(due, true)
                });
                assert_eq!(others, !scope.uncertain.is_empty());
            }
            Op::Finish(s, complete) if self.scopes[s].unseen.is_some() => self.finish(s, complete),
            Op::Abort(s) if self.scopes[s].unseen.is_some() => {
                let scope = &mut self.scopes[s];
                scope.apply(TargetEvent::ListFailed);
                scope.unseen = None;
                scope.awaiting_next_list.append(&mut scope.awaiting_current_list);
            }
            Op::Fail(s) => {
                self.scopes[s].apply(TargetEvent::Failed(WatchError::Unauthorized));
                self.scopes[s].problem = true;
            }
            Op::Received(s) => {
                self.scopes[s].apply(TargetEvent::Recovered);
                self.scopes[s].problem = false;
            }
            Op::Join(w, s, place) => self.join(w, s, place),
            Op::Leave(w) => {
                self.stop_waiting(w);
                let left = std::mem::replace(&mut self.readings[w], Reading::new());
                let before = left.reported.0.lock().0.clone();
                left.watch.stop();
                // A watch that leaves receives no deletes.
                assert_eq!(left.reported.0.lock().0, before);
                if let Some((s, _)) = left.at {
                    let alone = !self.readings.iter().any(|r| r.at.is_some_and(|at| at.0 == s));
                    let reported = self.scopes[s].unread.swap(0, Ordering::SeqCst);
                    assert_eq!(reported, usize::from(alone));
                }
            }
            Op::Index => {
                self.indexed = true;
                let by_uid: Indexer = Arc::new(|object| Some(vec![seen(object).0.to_string()]));
                for scope in &self.scopes {
                    scope.watch.add_index(&"uid".into(), &by_uid);
                }
            }
            Op::Begin(_) | Op::Delete(..) | Op::Finish(..) | Op::Abort(_) => {}
        }
    }

    fn stop_waiting(&mut self, w: usize) {
        for scope in &mut self.scopes {
            scope.awaiting_next_list.retain(|waits| *waits != w);
            scope.awaiting_current_list.retain(|waits| *waits != w);
        }
    }

    /// Whether a watch takes its objects from the place.
    fn is_read(&self, s: usize, place: usize) -> bool {
        let at = Some((s, place));
        self.readings.iter().any(|r| r.at == at && r.waits.is_none())
    }

    fn finish(&mut self, s: usize, complete: bool) {
        let is_read: Vec<bool> = (0..PLACES).map(|place| self.is_read(s, place)).collect();
        let scope = &mut self.scopes[s];
        let left_out = &LeftOut::new();
        scope.apply(TargetEvent::Listed { complete, left_out });
        for (place, name) in scope.unseen.take().unwrap_or_default() {
            if complete {
                scope.remove(place, name, is_read[place]);
            }
        }
        for w in std::mem::take(&mut scope.awaiting_current_list) {
            let reading = &mut self.readings[w];
            let (Some((_, place)), Some(own)) = (reading.at, reading.waits.take()) else {
                panic!("a watch that has left still waits");
            };
            if !complete {
                // An incomplete list deletes no object, wherever the object came from.
                for (name, object) in own {
                    scope.places[place].entry(name).or_insert(object);
                }
            }
        }
        (scope.synced, scope.problem) = (true, false);
        scope.lists += 1;
    }

    fn join(&mut self, w: usize, s: usize, place: usize) {
        let own = self.readings[w].expected(&self.scopes);
        let reading = &mut self.readings[w];
        let scope = self.scopes[s].watch.clone();
        let watch = reading.watch.clone();
        watch.join_with(|| {
            if let Some(cache) = scope.admit(&watch, &place.to_string().into()) {
                watch.join(scope.clone(), cache);
            }
        });
        let before = reading.at.replace((s, place));
        if before.is_some_and(|before| before != (s, place)) {
            reading.waits = Some(own);
            self.stop_waiting(w);
            self.scopes[s].awaiting_next_list.push(w);
        }
        if let Some((left, _)) = before.filter(|before| before.0 != s) {
            let alone = !self.readings.iter().any(|r| r.at.is_some_and(|at| at.0 == left));
            let reported = self.scopes[left].unread.swap(0, Ordering::SeqCst);
            assert_eq!(reported, usize::from(alone));
        }
    }

    fn check(&mut self) {
        for (s, scope) in self.scopes.iter().enumerate() {
            let readers = |place: usize| self.readings.iter().filter(|r| r.at == Some((s, place))).count();
            let there = (0..PLACES).filter(|place| !scope.places[*place].is_empty() || readers(*place) > 0);
            let all: usize = (0..PLACES).map(readers).sum();
            assert_eq!(scope.watch.counts(), (there.count(), all));
            assert_eq!(scope.watch.has_readers(), all > 0);
            assert_eq!(scope.unread.load(Ordering::SeqCst), 0);
        }
        for r in 0..self.readings.len() {
            let expected = self.readings[r].expected(&self.scopes);
            let reading = &mut self.readings[r];
            let cache = reading.watch.cache();
            let held: Objects = cache
                .store()
                .all()
                .iter()
                .map(|object| (object.key().name.to_string(), seen(object)))
                .collect();
            assert_eq!(held, expected);
            let reported = reading.reported.0.lock();
            assert_eq!((&reported.0, &reported.1), (&expected, &Vec::new()));
            if self.indexed && reading.at.is_some() {
                let of_uid = |uid: u8| cache.store().by_index("uid", &uid.to_string()).unwrap().len();
                assert_eq!(of_uid(0) + of_uid(1), expected.len());
            }
            let status = reading.watch.status();
            if let Some((s, _)) = reading.at {
                let scope = &self.scopes[s];
                // Before it has arrived, it may lack objects that its new place has.
                reading.synced |= scope.synced && reading.waits.is_none();
                assert_eq!(
                    (status.synced, status.lists, status.problem.is_some()),
                    (reading.synced, scope.lists, scope.problem)
                );
            } else {
                assert!(!status.synced);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_watch_equals_a_map_of_its_place(ops in proptest::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.take(op);
            world.check();
        }
        // No place is left once all watches have left and all objects are deleted.
        for w in 0..WATCHES {
            world.take(&Op::Leave(w));
        }
        for s in 0..SCOPES {
            world.take(&Op::Begin(s));
            world.take(&Op::Finish(s, true));
            world.take(&Op::Begin(s));
            world.take(&Op::Finish(s, true));
            world.take(&Op::Delay(s));
            world.take(&Op::Delay(s));
            prop_assert_eq!(world.scopes[s].watch.counts(), (0, 0));
        }
    }
}
