//! The clusters of a history, and the objects in them that the sync makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::LazyLock,
    time::Duration,
};

use mcr_sync::{SourceName, hashed};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};
use tokio::time::Instant;

/// The source clusters, then the target clusters.
pub const CLUSTERS: [&str; 5] = ["a", "b", "p", "q", "r"];
pub const SOURCES: Range<usize> = 0..2;
pub const TARGETS: Range<usize> = 2..5;
pub const NAMES: [&str; 3] = ["x", "y", "z"];
pub const SYNC: &str = "model";

/// The objects in each source cluster that sources may name. They are copied down.
pub const SETTINGS: [&str; 2] = ["m-k", "m-l"];
/// What else the sync makes for a source: the copy of an object beside a target, which has a label, and the target.
pub const KEY: usize = 2;
pub const TARGET: usize = 3;

pub const KINDS: [&str; 2] = ["widgets.example.com", "configmaps"];
/// The finalizer that users put on sources, targets and copies.
pub const BLOCK: &str = "example.com/block";

/// A source: its cluster and its name, as indices.
pub type Source = (usize, usize);
/// The cluster and the name of an object. The names of ConfigMaps begin with `m-`.
pub type Place = (usize, String);
/// The cluster and the UID of an object.
pub type Id = (usize, String);
/// When something was written, and by which program.
pub type Stamp = (Duration, u64);

/// The time of the paused clock.
pub fn now() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

/// Splitmix64.
#[derive(Default)]
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

/// How a cluster fails now.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    #[default]
    None,
    /// Many requests get an error.
    Refuses,
    /// Many requests are done, and their answers are lost.
    DropsAnswers,
    /// No request is answered, and watches break.
    Down,
}

/// An object that the sync makes for a source and one of its target clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub source: Source,
    pub at: usize,
    pub what: usize,
}

/// A source as answers of its server show it, and when they came.
type Shown = Vec<(Duration, Option<Value>)>;
/// What a program knows of sources.
pub type Known = BTreeMap<Source, Shown>;

#[derive(Default)]
pub struct World {
    pub random: Random,
    pub sims: Vec<SimCluster>,
    /// Names of targets have no hash, so that sources of two clusters want the same one.
    pub collide: bool,
    /// The source watch selects a label, so that sources leave it without being deleted.
    pub narrow: bool,
    /// The sync selects sources by a label that users change.
    pub labelled: bool,
    /// Objects are copied along with sources and targets.
    pub related: bool,
    /// What the sync made or adopted, and when.
    pub made: BTreeMap<Id, (Slot, Stamp)>,
    /// Since when a copy shall exist without a break.
    pub since: BTreeMap<Id, Duration>,
    /// When the record of a source last lost a place.
    pub shrunk: BTreeMap<Source, Stamp>,
    /// The objects of somebody else, as they were left.
    pub foreign: BTreeMap<Place, Value>,
    /// Fields that users set in targets.
    pub theirs: BTreeMap<Id, u64>,
    /// Objects that may stay although no source has them in its record.
    pub excused: BTreeSet<Id>,
    /// What a program knows of a source: the last answer, or all that came at its time.
    pub shown: BTreeMap<(u64, Source), Shown>,
    /// By UID of the source: the clusters in which it had a target at some time.
    pub placed: BTreeSet<(String, usize)>,
    /// Sources that have the finalizer of a user.
    pub held: BTreeSet<Source>,
    pub trouble: [Trouble; 5],
    /// Of each second program: the clusters whose watches lag.
    pub lagging: [[bool; 5]; 2],
    /// The writes until a program stops in the middle of one.
    pub crash_in: Option<usize>,
    /// The object that the sync asked for last: what others do to it now, they do between a read and a write.
    pub last_asked: Place,
    /// The programs that run. Requests of others get no answer.
    pub alive: BTreeSet<u64>,
    /// Since when each program leads, or led.
    pub leads: BTreeMap<u64, Duration>,
    pub steps: u64,
    pub writes: u64,
    pub fault: Option<String>,
    log: Vec<String>,
}

fn kind(name: &str) -> &'static str {
    KINDS[usize::from(name.starts_with("m-"))]
}

pub fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let list = object["metadata"]["finalizers"].as_array();
    list.is_some_and(|list| list.iter().any(|found| found == finalizer))
}

pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// What marks an object that the sync made: three labels, and three annotations. Targets have not all of them.
const MARKS: &str = "sync source related origin source-cluster source-name";

pub fn cluster_of(name: &str) -> usize {
    CLUSTERS.iter().position(|known| *known == name).unwrap()
}

/// The target clusters of a source that is to be synced.
pub fn wanted(source: &Value) -> Vec<usize> {
    let spec = &source["spec"];
    let is_labelled = source["metadata"]["labels"]["pick"] != "no";
    let is_wanted = is_labelled && spec["selected"] == true && !is_deleting(source);
    let at = spec["at"].as_array().filter(|_| is_wanted).into_iter().flatten();
    at.map(|at| cluster_of(at.as_str().unwrap())).collect()
}

pub fn template() -> SimCluster {
    let builder = SimCluster::builder().managed_fields(false).audit_limit(0);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": KINDS[0]},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}]},
    });
    let cluster = builder.build();
    cluster.create(crd).unwrap();
    cluster
}

impl World {
    pub fn new(seed: u64, template: &SimCluster) -> Self {
        let mut random = Random(seed);
        let cluster = |name: &str| {
            let builder = SimCluster::builder().template(template).name(name).seed(seed);
            builder.managed_fields(false).audit_limit(0).history(150).build()
        };
        let (collide, watch) = (random.below(2) == 0, random.below(4));
        let world = Self {
            sims: CLUSTERS.map(cluster).into(),
            collide,
            narrow: watch == 0,
            labelled: watch == 1,
            related: random.below(2) == 0,
            random,
            ..Self::default()
        };
        world.create_origins();
        world
    }

    pub fn note(&mut self, line: String) {
        self.log.push(line);
    }

    /// The fault, with the last lines of the history.
    pub fn reported(&self) -> Option<String> {
        let last = self.log[self.log.len().saturating_sub(300)..].join("\n");
        self.fault.as_ref().map(|fault| format!("{fault}\n{last}"))
    }

    pub fn fail(&mut self, fault: impl Into<String>) {
        self.fault.get_or_insert(fault.into());
    }

    pub fn get(&self, cluster: usize, name: &str) -> Option<Value> {
        self.sims[cluster].get(kind(name), &format!("default/{name}"))
    }

    pub fn source(&self, (cluster, name): Source) -> Option<Value> {
        self.get(cluster, NAMES[name])
    }

    pub fn target_name(&self, (cluster, name): Source) -> String {
        if self.collide {
            return NAMES[name].to_owned();
        }
        hashed(SourceName {
            cluster: CLUSTERS[cluster],
            namespace: Some("default"),
            name: NAMES[name],
        })
    }

    /// The source in a label, and in the names of its copies.
    pub fn home(&self, (cluster, name): Source) -> String {
        let home = if self.collide { "" } else { CLUSTERS[cluster] };
        format!("{home}{}", NAMES[name])
    }

    /// The name of the copy that somebody makes of a target.
    pub fn copy_name((cluster, name): Source) -> String {
        format!("copy-{}-{}", CLUSTERS[cluster], NAMES[name])
    }

    /// Creates a Widget with this spec, or a ConfigMap with these data.
    pub fn create(&self, cluster: usize, name: &str, labels: Value, spec: Value) -> Option<Value> {
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        let object = if kind(name) == KINDS[0] {
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec})
        } else {
            let spec = spec.as_object().unwrap().iter();
            let data = BTreeMap::from_iter(spec.map(|(key, it)| (key, it.to_string())));
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        };
        self.sims[cluster].create(object).ok()
    }

    pub fn update(&self, cluster: usize, object: Value) {
        self.sims[cluster].update(object).unwrap();
    }

    pub fn delete(&self, cluster: usize, name: &str) {
        let _ = self.sims[cluster].delete(kind(name), &format!("default/{name}"));
    }

    pub fn sources() -> impl Iterator<Item = Source> {
        SOURCES.flat_map(|cluster| (0..NAMES.len()).map(move |name| (cluster, name)))
    }

    pub fn source_at((cluster, name): &Place) -> Option<Source> {
        let name = NAMES.iter().position(|known| known == name)?;
        SOURCES.contains(cluster).then_some((*cluster, name))
    }

    pub fn source_named(&self, annotations: &Value) -> Option<Source> {
        let part = |key: &str| annotations[format!("sync.mcr.dev/source-{key}")].as_str();
        let cluster = CLUSTERS.iter().position(|name| part("cluster") == Some(name))?;
        let name = NAMES.iter().position(|name| part("name") == Some(name))?;
        Some((cluster, name))
    }

    /// The source, and the target cluster, of the object that the sync asked for last.
    pub fn busy(&self) -> Option<(Source, usize)> {
        if let Some(source) = Self::source_at(&self.last_asked) {
            return Some((source, TARGETS.start));
        }
        let mut slots = Self::sources().flat_map(Slot::all);
        let slot = slots.find(|slot| self.place(*slot) == self.last_asked)?;
        Some((slot.source, slot.at))
    }

    /// Where an object is that the sync makes. The sync has functions for the same names.
    pub fn place(&self, Slot { source, at, what }: Slot) -> Place {
        match SETTINGS.get(what) {
            Some(origin) => (at, format!("{origin}-{}", self.home(source))),
            None if what == KEY => (source.0, format!("m-{}-{}", NAMES[source.1], CLUSTERS[at])),
            None => (at, self.target_name(source)),
        }
    }

    pub fn origin_place(&self, Slot { source, at, what }: Slot) -> Place {
        match SETTINGS.get(what) {
            Some(name) => (source.0, (*name).to_owned()),
            None => (at, format!("m-{}", self.target_name(source))),
        }
    }

    /// The object if it is there, and the sync has made it for this slot.
    pub fn ours(&self, slot: Slot) -> Option<Value> {
        let (cluster, name) = self.place(slot);
        let found = self.get(cluster, &name)?;
        let made = self.made.get(&(cluster, uid(&found)));
        made.is_some_and(|made| made.0 == slot).then_some(found)
    }

    /// What an object is made from, if it shall exist: the source or another origin.
    pub fn origin(&self, slot: Slot, own: &Value) -> Option<Value> {
        let Slot { source, at, what } = slot;
        let (cluster, name) = self.origin_place(slot);
        let origin = self.get(cluster, &name).filter(|_| wanted(own).contains(&at));
        match what {
            TARGET => wanted(own).contains(&at).then(|| own.clone()),
            KEY => {
                let target = self.ours(slot.target());
                let is_chosen = |it: &Value| it["metadata"]["labels"]["for"] == self.target_name(source);
                origin.filter(|it| is_chosen(it) && target.is_some_and(|target| !is_deleting(&target)))
            }
            _ => origin.filter(|_| names(own, what)),
        }
    }
}

/// Whether a source names these settings.
pub fn names(own: &Value, what: usize) -> bool {
    let mut names = own["spec"]["settings"].as_array().into_iter().flatten();
    SETTINGS
        .get(what)
        .is_some_and(|known| names.any(|name| name == known))
}

impl Slot {
    pub fn new(source: Source, at: usize, what: usize) -> Self {
        Self { source, at, what }
    }

    pub fn target(self) -> Self {
        Self { what: TARGET, ..self }
    }

    /// All that a source may have.
    pub fn all(source: Source) -> impl Iterator<Item = Self> {
        TARGETS.flat_map(move |at| (0..=TARGET).map(move |what| Self { source, at, what }))
    }

    pub fn marks(self) -> impl Iterator<Item = (&'static str, String)> {
        let all = MARKS.split(' ').enumerate();
        let its = all.filter(move |(at, _)| self.what != TARGET || ![2, 3].contains(at));
        its.map(|(at, key)| (["labels", "annotations"][at / 3], format!("sync.mcr.dev/{key}")))
    }

    /// Whether the object has the first ones of its marks: 3 are the labels, and the fourth names the place of a copy.
    pub fn has_marks(self, object: &Value, first: usize) -> bool {
        let mut marks = self.marks().take(first);
        marks.all(|(half, key)| object["metadata"][half][key].is_string())
    }
}
