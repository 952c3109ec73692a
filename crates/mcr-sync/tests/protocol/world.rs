//! The clusters of a history, who made each object in them, and what must hold after each step.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::LazyLock,
    time::Duration,
};

use http::{Request, header::CONTENT_TYPE};
use mcr_sync::{ABANDON, SourceName, hashed};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::related::Copy;

/// The source clusters, then the target clusters.
pub const CLUSTERS: [&str; 5] = ["a", "b", "p", "q", "r"];
pub const SOURCE_CLUSTERS: usize = 2;
pub const NAMES: [&str; 3] = ["x", "y", "z"];
pub const SYNC: &str = "model";

/// More steps than a history has if the sync comes to rest.
const MOST_STEPS: u64 = 1500;

/// More time than a reconcile takes: nothing that it has read is older.
pub const SOON: Duration = Duration::from_secs(20);

/// The time from the read that a deletion follows from to the deletion. The sync reads the source once more in between, but only
/// to see whether there is one. Zero: it must not delete what the last read does not allow.
const ACTS_WITHIN: Duration = Duration::from_secs(2);

const KINDS: [&str; 2] = ["widgets.example.com", "configmaps"];
const FINALIZER: &str = "sync.mcr.dev/model";
const RECORD: &str = "sync.mcr.dev/placed.model";
/// The finalizer that users put on sources, targets and copies.
pub const BLOCK: &str = "example.com/block";

/// A source: its cluster and its name, as indices.
pub type Source = (usize, usize);
/// The cluster and the name of an object. The names of ConfigMaps begin with `m-`.
pub type Place = (usize, String);
/// The cluster and the UID of an object.
pub type Id = (usize, String);
/// When something was written, and by which program.
type Stamp = (Duration, u64);

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

#[derive(Default)]
pub struct World {
    pub random: Random,
    pub sims: Vec<SimCluster>,
    /// Names of targets have no hash, so that sources of two clusters want the same one.
    pub collide: bool,
    /// The source watch selects a label, so that sources leave it without being deleted.
    pub narrow: bool,
    /// Objects are copied along with sources and targets.
    pub related: bool,
    /// Targets that the sync made or adopted, and the source that they were made for.
    ours: BTreeMap<Id, Source>,
    pub copies: BTreeMap<Place, Copy>,
    /// When targets and copies were made.
    pub made: BTreeMap<Id, Stamp>,
    /// When the record of a source last lost a place.
    shrunk: BTreeMap<Source, Stamp>,
    /// The objects of somebody else, as they were left.
    pub foreign: BTreeMap<Place, Value>,
    /// Fields that users set in targets.
    pub theirs: BTreeMap<Id, u64>,
    /// Objects that may stay although no source has them in its record.
    pub excused: BTreeSet<Id>,
    /// Sources as the server has shown them to a program: the last one, and those that a deletion may follow from.
    shown: BTreeMap<(u64, Source), Vec<(Duration, Option<Value>)>>,
    /// By UID of the source: the clusters in which it had a target at some time.
    placed: BTreeSet<(String, usize)>,
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
    /// The write that is looked at.
    pub writer: Stamp,
    pub steps: u64,
    pub writes: u64,
    pub fault: Option<String>,
    log: VecDeque<String>,
}

fn kind(name: &str) -> &'static str {
    KINDS[usize::from(name.starts_with("m-"))]
}

fn key(name: &str) -> String {
    format!("default/{name}")
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

/// The phase in the status of a target.
pub fn phase(status: &Value) -> &str {
    status["phase"].as_str().unwrap_or("none")
}

fn cluster_of(name: &str) -> usize {
    CLUSTERS.iter().position(|known| *known == name).unwrap()
}

/// The target clusters of a source that is to be synced.
pub fn wanted(source: &Value) -> Vec<usize> {
    let spec = &source["spec"];
    let at = spec["at"]
        .as_array()
        .filter(|_| spec["selected"] == true && !is_deleting(source));
    at.into_iter()
        .flatten()
        .map(|at| cluster_of(at.as_str().unwrap()))
        .collect()
}

/// The target clusters in the record of a source.
fn recorded(source: &Value) -> Vec<usize> {
    let text = source["metadata"]["annotations"][RECORD].as_str().unwrap_or("[]");
    let places: Vec<(String, Option<String>, String)> = serde_json::from_str(text).unwrap();
    places.iter().map(|(name, _, _)| cluster_of(name)).collect()
}

pub fn template() -> SimCluster {
    let builder = SimCluster::builder().managed_fields(false).audit_limit(0);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema,
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": KINDS[0]},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version]},
    });
    builder.build_with([crd]).unwrap()
}

impl World {
    pub fn new(seed: u64, template: &SimCluster) -> Self {
        let mut random = Random(seed);
        let cluster = |name: &str| {
            let builder = SimCluster::builder().template(template).name(name).seed(seed);
            builder.managed_fields(false).audit_limit(0).history(150).build()
        };
        let world = Self {
            sims: CLUSTERS.map(cluster).into(),
            collide: random.below(2) == 0,
            narrow: random.below(4) == 0,
            related: random.below(2) == 0,
            random,
            ..Self::default()
        };
        if world.related {
            world.create_origins();
        }
        world
    }

    pub fn note(&mut self, line: String) {
        if self.log.len() == 300 {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    pub fn told(&self) -> String {
        Vec::from_iter(self.log.iter().cloned()).join("\n")
    }

    pub fn fail(&mut self, fault: impl Into<String>) {
        self.fault.get_or_insert(fault.into());
    }

    pub fn get(&self, cluster: usize, name: &str) -> Option<Value> {
        self.sims[cluster].get(kind(name), &key(name))
    }

    pub fn source(&self, (cluster, name): Source) -> Option<Value> {
        self.get(cluster, NAMES[name])
    }

    pub fn target_name(&self, (cluster, name): Source) -> String {
        let (cluster, namespace, name) = (CLUSTERS[cluster], Some("default"), NAMES[name]);
        match self.collide {
            true => name.to_owned(),
            false => hashed(SourceName {
                cluster,
                namespace,
                name,
            }),
        }
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
            let texts = spec
                .as_object()
                .unwrap()
                .iter()
                .map(|(key, it)| (key, it.to_string()));
            let data = BTreeMap::from_iter(texts);
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        };
        self.sims[cluster].create(object).ok()
    }

    pub fn update(&self, cluster: usize, object: Value) {
        self.sims[cluster].update(object).unwrap();
    }

    pub fn delete(&self, cluster: usize, name: &str) {
        let _ = self.sims[cluster].delete(kind(name), &key(name));
    }

    /// Sets the status of a target, as its controller would.
    pub fn set_phase(&mut self, cluster: usize, name: &str) -> impl Future<Output = ()> + use<> {
        let body = json!({"status": {"phase": self.random.below(4).to_string()}}).to_string();
        let path = format!("/apis/example.com/v1/namespaces/default/widgets/{name}/status");
        let request = Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
        let is_ours = self
            .get(cluster, name)
            .is_some_and(|found| self.owner(cluster, &found).is_some());
        let service = self.sims[cluster]
            .service()
            .with_token(&self.sims[cluster].admin_token());
        async move {
            if is_ours {
                service.answer(request.body(body).unwrap()).await;
            }
        }
    }

    pub fn sources() -> impl Iterator<Item = Source> {
        (0..SOURCE_CLUSTERS).flat_map(|cluster| (0..NAMES.len()).map(move |name| (cluster, name)))
    }

    /// The source, and the target cluster, of the object that the sync asked for last.
    pub fn busy(&self) -> Option<(Source, usize)> {
        if let Some(Copy { slot, .. }) = self.copies.get(&self.last_asked) {
            return Some((slot.source, slot.at));
        }
        let (cluster, name) = &self.last_asked;
        let is_it = |source: &Source| match *cluster {
            0..SOURCE_CLUSTERS => *source == (*cluster, source.1) && NAMES[source.1] == name,
            _ => self.target_name(*source) == *name,
        };
        Some((Self::sources().find(is_it)?, (*cluster).max(SOURCE_CLUSTERS)))
    }

    pub fn source_named(&self, annotations: &Value) -> Option<Source> {
        let part = |key: &str| annotations[format!("sync.mcr.dev/source-{key}")].as_str();
        let cluster = CLUSTERS.iter().position(|name| part("cluster") == Some(name))?;
        let name = NAMES.iter().position(|name| part("name") == Some(name))?;
        Some((cluster, name))
    }

    /// The source for which the sync made this object.
    pub fn owner(&self, cluster: usize, object: &Value) -> Option<Source> {
        self.ours.get(&(cluster, uid(object))).copied()
    }

    /// The server has shown a source to a program.
    pub fn show(&mut self, program: u64, source: Source) {
        let shown = self.source(source);
        let all = self.shown.entry((program, source)).or_default();
        all.retain(|(at, _)| now() - *at < ACTS_WITHIN);
        all.push((now(), shown));
    }

    /// Whether two programs lead.
    pub fn is_shared(&self) -> bool {
        let is_leader = |program: &&u64| self.leads.contains_key(program);
        self.alive.iter().filter(is_leader).count() > 1
    }

    /// Whether two programs that led at once did this soon one after the other, so that one could not know of the other.
    pub fn is_race(&self, one: Option<&Stamp>, other: Option<&Stamp>) -> bool {
        let (Some(one), Some(other)) = (one, other) else {
            return false;
        };
        let first = one.0.min(other.0);
        let led = |stamp: &Stamp| self.leads[&stamp.1] <= first;
        one.1 != other.1 && one.0.max(other.0) - first < SOON && led(one) && led(other)
    }

    /// An object of the sync is in no record.
    pub fn orphan(&mut self, this: Id, source: Source, what: &str) {
        // One program has made it, while another one has removed the place from the record.
        if self.is_race(self.made.get(&this), self.shrunk.get(&source)) {
            self.excused.insert(this);
        } else if !self.excused.contains(&this) {
            self.fail(format!(
                "a {what} of {source:?} in {} is in no record",
                CLUSTERS[this.0]
            ));
        }
    }

    /// Looks at a write of the sync that the server has accepted. `before` is the object before it.
    pub fn written(&mut self, by: u64, method: &str, place: Place, before: Option<&Value>) {
        self.writer = (now(), by);
        self.steps += 1;
        self.writes += 1;
        if self.steps > MOST_STEPS {
            return self.fail("it writes without end");
        }
        let (cluster, name) = (place.0, &*place.1);
        if kind(name) != KINDS[0] {
            return self.copy_written(method, place, before);
        }
        if cluster < SOURCE_CLUSTERS {
            let source = (cluster, NAMES.iter().position(|known| *known == name).unwrap());
            self.record_written(source, before);
            self.show(by, source);
            return self.check(source);
        }
        if method == "DELETE" {
            let Some(owner) = before.and_then(|before| self.owner(cluster, before)) else {
                return self.fail(format!("the object of somebody else at {place:?} was deleted"));
            };
            self.check_delete(owner, cluster);
            self.check_copies_before(owner, cluster);
            return self.check(owner);
        }
        let after = self.get(cluster, name).unwrap();
        if let Some(made) = self.foreign.get(&place)
            && uid(made) == uid(&after)
        {
            if made["metadata"]["labels"]["adopt"] != "yes" {
                return self.fail(format!("the object of somebody else at {place:?} was changed"));
            }
            self.foreign.remove(&place);
        }
        let Some(named) = self.source_named(&after["metadata"]["annotations"]) else {
            return self.fail(format!("the target at {place:?} names no source: {after}"));
        };
        let this = (cluster, uid(&after));
        self.made.entry(this.clone()).or_insert(self.writer);
        let owner = *self.ours.entry(this).or_insert(named);
        if owner != named {
            return self.fail(format!("{named:?} claimed the target of {owner:?} at {place:?}"));
        }
        self.check(owner);
    }

    /// A place may leave the record when its target is gone, or is abandoned.
    fn record_written(&mut self, source: Source, before: Option<&Value>) {
        let Some(before) = before else { return };
        let kept = self.source(source).as_ref().map(recorded).unwrap_or_default();
        let abandoned = before["metadata"]["annotations"][ABANDON]
            .as_str()
            .unwrap_or_default();
        let name = self.target_name(source);
        for cluster in recorded(before)
            .into_iter()
            .filter(|cluster| !kept.contains(cluster))
        {
            self.shrunk.insert(source, self.writer);
            if abandoned.contains(CLUSTERS[cluster]) {
                self.excuse_copies(source, cluster);
                let target = self.get(cluster, &name);
                let ours = target.filter(|target| self.owner(cluster, target) == Some(source));
                self.excused.extend(ours.map(|target| (cluster, uid(&target))));
            }
        }
    }

    /// A target is deleted because of what the server said about the source, and a move makes the new target first.
    fn check_delete(&mut self, owner: Source, cluster: usize) {
        if self.source(owner).is_none() {
            return;
        }
        let shown = self.shown.get(&(self.writer.1, owner)).into_iter().flatten();
        let faults = shown.map(|(_, shown)| self.fault_of_delete(cluster, shown.as_ref()));
        let fault = faults.reduce(|former, last| former.and(last));
        if let Some(fault) = fault.unwrap_or(Some("nobody asked for it".into())) {
            let at = CLUSTERS[cluster];
            self.fail(format!(
                "the target of {owner:?} in {at} was deleted: the source {fault}"
            ));
        }
    }

    /// Why what the program has read of a source does not allow to delete its target.
    fn fault_of_delete(&self, cluster: usize, shown: Option<&Value>) -> Option<String> {
        let Some(shown) = shown else {
            return Some("was gone, and is there".into());
        };
        let (wanted, uid) = (wanted(shown), uid(shown));
        if wanted.contains(&cluster) {
            return Some("wants it".into());
        }
        let missing = wanted
            .into_iter()
            .find(|to| !self.placed.contains(&(uid.clone(), *to)))?;
        Some(format!("was not yet in {}", CLUSTERS[missing]))
    }

    /// Checks this source, and those with copies, whose origins may be others now.
    pub fn check_all(&mut self, source: Source) {
        let mut all = BTreeSet::from_iter(self.copies.values().map(|copy| copy.slot.source));
        all.insert(source);
        all.into_iter().for_each(|source| self.check(source));
    }

    /// No target is an orphan, no object of somebody else was changed, and nothing that a user set was lost.
    pub fn check(&mut self, source: Source) {
        let name = self.target_name(source);
        let own = self.source(source);
        if self.held.contains(&source) && !own.as_ref().is_some_and(|own| has_finalizer(own, BLOCK)) {
            return self.fail(format!("{source:?} has lost the finalizer of its user"));
        }
        let kept = own.as_ref().filter(|own| has_finalizer(own, FINALIZER));
        let kept = kept.map(recorded).unwrap_or_default();
        self.check_copies(source, own.as_ref(), &kept);
        for cluster in SOURCE_CLUSTERS..CLUSTERS.len() {
            let found = self.get(cluster, &name);
            if let Some(made) = self.foreign.get(&(cluster, name.clone())) {
                if found.as_ref() != Some(made) {
                    self.fail(format!(
                        "the object of somebody else at {cluster} {name} is now {found:?}"
                    ));
                }
                continue;
            }
            let Some(found) = found else { continue };
            let this = (cluster, uid(&found));
            if let Some(theirs) = self.theirs.get(&this)
                && found["spec"]["theirs"] != *theirs
            {
                self.fail(format!("a field of somebody else was lost: {found}"));
            }
            if self.ours.get(&this) != Some(&source) {
                continue;
            }
            if let Some(own) = &own {
                self.placed.insert((uid(own), cluster));
            }
            if kept.contains(&cluster) {
                self.excused.remove(&this);
            } else {
                self.orphan(this, source, "target");
            }
        }
    }

    /// What must hold at rest. Of the clusters that are away nothing is known.
    pub fn agreement(&self, away: &BTreeSet<usize>) -> Result<(), String> {
        let mut sources = Self::sources().filter(|source| !away.contains(&source.0));
        sources.try_for_each(|source| {
            let own = self.source(source);
            let agrees = self.agrees(source, own.as_ref(), away);
            agrees.map_err(|fault| format!("{source:?}: {fault}: {own:?}"))
        })
    }

    fn agrees(&self, source: Source, own: Option<&Value>, away: &BTreeSet<usize>) -> Result<(), String> {
        let (name, copy) = (self.target_name(source), Self::copy_name(source));
        let wanted = own.map(wanted).unwrap_or_default();
        let (mut held, mut left, mut claimed, mut unclear) = (false, false, false, false);
        let mut phases = Vec::new();
        for cluster in SOURCE_CLUSTERS..CLUSTERS.len() {
            let (at, is_wanted) = (CLUSTERS[cluster], wanted.contains(&cluster));
            if away.contains(&cluster) {
                held |= is_wanted;
                continue;
            }
            if let Some(made) = self.foreign.get(&(cluster, copy.clone())) {
                if self.get(cluster, &copy).as_ref() != Some(made) {
                    return Err(format!("the copy in {at} is no longer {made}"));
                }
                claimed = true;
            }
            let found = self.get(cluster, &name);
            let is_ours = |found: &&Value| self.owner(cluster, found) == Some(source);
            match (is_wanted, found.as_ref().filter(is_ours), &found) {
                (true, Some(target), _) => {
                    let (spec, made) = (&own.unwrap()["spec"], &target["spec"]);
                    if (&made["value"], &made["extra"]) != (&spec["value"], &spec["extra"]) {
                        return Err(format!("{at} has {target}"));
                    }
                    phases.push(format!("{at}={}", phase(&target["status"])));
                    held |= self.copies_agree(source, own.unwrap(), cluster)?;
                }
                (true, None, Some(found)) => {
                    if found["metadata"]["labels"]["adopt"] == "yes" && self.owner(cluster, found).is_none() {
                        return Err(format!("not adopted in {at}: {found}"));
                    }
                    held = true;
                }
                (true, None, None) => return Err(format!("no target in {at}")),
                // A target that was given up names its source still. If somebody removes that, the sync may see it or not.
                (false, Some(target), _) if self.excused.contains(&(cluster, uid(target))) => {
                    claimed = true;
                    unclear |= !self.has_whole_link(target);
                }
                (false, ours, _) => left |= ours.is_some() || self.has_copies(source, cluster),
            }
        }
        if left && !held {
            return Err("a target or a copy is left".to_owned());
        }
        let Some(own) = own else { return Ok(()) };
        let mut kept = recorded(own).into_iter();
        let waits = kept.any(|cluster| away.contains(&cluster) && !wanted.contains(&cluster));
        if wanted.is_empty() {
            let is_released = waits || !has_finalizer(own, FINALIZER);
            return is_released.then_some(()).ok_or("it is not released".to_owned());
        }
        let condition = &own["status"]["conditions"][0];
        let expected = if held || waits || claimed { "False" } else { "True" };
        let is_expected = condition["status"] == expected || unclear && !held && !waits;
        if !is_expected || condition["observedGeneration"] != own["metadata"]["generation"] {
            let why = format!("held {held}, waits {waits}, claimed {claimed}, away {away:?}");
            return Err(format!("the condition is not {expected} ({why})"));
        }
        if !held && own["status"]["phases"] != phases.join(",") {
            return Err(format!("the status is not {phases:?}"));
        }
        Ok(())
    }
}
