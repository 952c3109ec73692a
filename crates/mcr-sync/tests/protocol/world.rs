//! The clusters of a history, who made each object in them, and what must hold after each step.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use http::{Request, header::CONTENT_TYPE};
use http_body_util::Full;
use mcr_sync::{ABANDON, SourceName, hashed};
use mcr_testkit::sim::SimCluster;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::related::Copy;

/// The source clusters, then the target clusters.
pub(crate) const CLUSTERS: [&str; 5] = ["a", "b", "p", "q", "r"];
pub(crate) const SOURCE_CLUSTERS: usize = 2;
pub(crate) const NAMES: [&str; 3] = ["x", "y", "z"];
pub(crate) const SYNC: &str = "model";

/// More steps than a history has if the sync comes to rest.
const MOST_STEPS: u64 = 2000;

/// More time than a reconcile takes: what it has read is not older.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// The time from a read of a source to a deletion that follows from it. A program reads the source again just before, but only to see
/// whether there is one: set this to zero once the last read counts.
const ACTS_WITHIN: Duration = Duration::from_secs(2);

const WIDGETS: &str = "widgets.example.com";
const FINALIZER: &str = "sync.mcr.dev/model";
const RECORD: &str = "sync.mcr.dev/placed.model";
/// The finalizer that users put on sources and targets.
pub(crate) const BLOCK: &str = "example.com/block";

/// A source: its cluster and its name, as indices.
pub(crate) type Source = (usize, usize);

/// The cluster and the name of an object. Names of ConfigMaps begin with `m-`.
pub(crate) type Place = (usize, String);

/// The cluster and the UID of an object.
type Id = (usize, String);

/// When something was written, and by which program.
type Stamp = (Instant, u64);

/// Splitmix64.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap()
    }
}

/// How a cluster fails now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Many requests get an error.
    Refuses,
    /// Many requests are done, and their answers are lost.
    DropsAnswers,
    /// No request is answered, and watches break.
    Down,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) sims: Vec<SimCluster>,
    /// Names of targets have no hash, so that sources of two clusters want the same one.
    pub(crate) collide: bool,
    /// The source watch selects a label, so that sources leave it without being deleted.
    pub(crate) narrow: bool,
    /// Objects are copied along with sources and targets.
    pub(crate) related: bool,
    /// Objects that the sync made or adopted, and the source that they were made for.
    ours: BTreeMap<Id, Source>,
    pub(crate) copies: BTreeMap<Place, Copy>,
    /// When targets and copies were made.
    pub(crate) made: BTreeMap<Id, Stamp>,
    /// When a source last lost places from its record.
    shrunk: BTreeMap<Source, Stamp>,
    /// The objects of somebody else, as they were left.
    pub(crate) foreign: BTreeMap<Place, Value>,
    /// Fields that users set in targets.
    pub(crate) theirs: BTreeMap<Id, u64>,
    /// Objects that may stay although no source has them in its record.
    pub(crate) excused: BTreeSet<Id>,
    /// Sources as the server has shown them to a program: the last one, and those before it for a while.
    shown: BTreeMap<(u64, Source), Vec<(Instant, Option<Value>)>>,
    /// By UID of the source: the clusters in which it had a target at some time.
    placed: BTreeSet<(String, usize)>,
    /// Sources that have the finalizer of a user.
    pub(crate) held: BTreeSet<Source>,
    pub(crate) trouble: [Trouble; 5],
    /// Of each second program: the clusters whose watches lag.
    pub(crate) lagging: [[bool; 5]; 2],
    /// The writes until a program stops in the middle of one.
    pub(crate) crash_in: Option<usize>,
    /// The object that the sync asked for last: what others do to it now, they do between a read and a write.
    pub(crate) last_asked: Place,
    /// The programs that run, and since when those lead that do. Requests of others get no answer.
    pub(crate) alive: BTreeSet<u64>,
    pub(crate) leads: BTreeMap<u64, Instant>,
    /// The write that is looked at.
    pub(crate) writer: Stamp,
    pub(crate) steps: u64,
    pub(crate) writes: u64,
    pub(crate) fault: Option<String>,
    log: VecDeque<String>,
}

fn kind(name: &str) -> &'static str {
    if name.starts_with("m-") {
        "configmaps"
    } else {
        WIDGETS
    }
}

fn key(name: &str) -> String {
    format!("default/{name}")
}

pub(crate) fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    let list = object["metadata"]["finalizers"].as_array();
    list.is_some_and(|list| list.iter().any(|found| found == finalizer))
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The target clusters of a source that is to be synced.
pub(crate) fn wanted(source: &Value) -> Vec<usize> {
    let spec = &source["spec"];
    if spec["selected"] != true || is_deleting(source) {
        return Vec::new();
    }
    let at = spec["at"].as_array().unwrap();
    let cluster = |at: &Value| CLUSTERS.iter().position(|name| at == name).unwrap();
    at.iter().map(cluster).collect()
}

/// The target clusters in the record of a source.
fn recorded(source: &Value) -> Vec<usize> {
    let text = source["metadata"]["annotations"][RECORD].as_str().unwrap_or("[]");
    let places: Vec<(String, Option<String>, String)> = serde_json::from_str(text).unwrap();
    let cluster = |name: &str| CLUSTERS.iter().position(|known| *known == name).unwrap();
    places.iter().map(|(name, _, _)| cluster(name)).collect()
}

pub(crate) fn template() -> SimCluster {
    let builder = SimCluster::builder().managed_fields(false).audit_limit(0);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema,
    });
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": WIDGETS},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [version]},
    });
    builder.build_with([crd]).unwrap()
}

impl World {
    pub(crate) fn new(seed: u64, template: &SimCluster) -> Self {
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
            ours: BTreeMap::new(),
            copies: BTreeMap::new(),
            made: BTreeMap::new(),
            shrunk: BTreeMap::new(),
            foreign: BTreeMap::new(),
            theirs: BTreeMap::new(),
            excused: BTreeSet::new(),
            shown: BTreeMap::new(),
            placed: BTreeSet::new(),
            held: BTreeSet::new(),
            trouble: [Trouble::None; 5],
            lagging: [[false; 5]; 2],
            crash_in: None,
            last_asked: (0, String::new()),
            alive: BTreeSet::new(),
            leads: BTreeMap::new(),
            writer: (Instant::now(), 0),
            steps: 0,
            writes: 0,
            fault: None,
            log: VecDeque::new(),
        };
        if world.related {
            world.create_origins();
        }
        world
    }

    pub(crate) fn note(&mut self, line: String) {
        if self.log.len() == 300 {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    pub(crate) fn told(&self) -> String {
        Vec::from_iter(self.log.iter().cloned()).join("\n")
    }

    pub(crate) fn fail(&mut self, fault: impl Into<String>) {
        self.fault.get_or_insert(fault.into());
    }

    pub(crate) fn get(&self, cluster: usize, name: &str) -> Option<Value> {
        self.sims[cluster].get(kind(name), &key(name))
    }

    pub(crate) fn source(&self, (cluster, name): Source) -> Option<Value> {
        self.get(cluster, NAMES[name])
    }

    pub(crate) fn target_name(&self, (cluster, name): Source) -> String {
        if self.collide {
            return NAMES[name].to_owned();
        }
        hashed(SourceName {
            cluster: CLUSTERS[cluster],
            namespace: Some("default"),
            name: NAMES[name],
        })
    }

    /// The name of the copy that somebody makes of a target.
    pub(crate) fn copy_name((cluster, name): Source) -> String {
        format!("copy-{}-{}", CLUSTERS[cluster], NAMES[name])
    }

    pub(crate) fn create(&self, cluster: usize, name: &str, labels: Value, spec: Value) -> Option<Value> {
        let metadata = json!({"name": name, "namespace": "default", "labels": labels});
        let object = if kind(name) == WIDGETS {
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec})
        } else {
            let data = BTreeMap::from_iter(
                spec.as_object()
                    .unwrap()
                    .iter()
                    .map(|(key, it)| (key, it.to_string())),
            );
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        };
        self.sims[cluster].create(object).ok()
    }

    pub(crate) fn update(&self, cluster: usize, object: Value) {
        self.sims[cluster].update(object).unwrap();
    }

    pub(crate) fn delete(&self, cluster: usize, name: &str) {
        let _ = self.sims[cluster].delete(kind(name), &key(name));
    }

    /// Sets the status of a target, as its controller would.
    pub(crate) async fn set_phase(sim: &SimCluster, name: &str, phase: usize) {
        let body = json!({"status": {"phase": phase.to_string()}}).to_string();
        let request = Request::patch(format!(
            "/apis/example.com/v1/namespaces/default/widgets/{name}/status"
        ))
        .header(CONTENT_TYPE, "application/merge-patch+json")
        .body(Full::from(body))
        .unwrap();
        let service = sim.service().with_token(&sim.admin_token());
        service.answer(request).await;
    }

    pub(crate) fn sources() -> impl Iterator<Item = Source> {
        (0..SOURCE_CLUSTERS).flat_map(|cluster| (0..NAMES.len()).map(move |name| (cluster, name)))
    }

    /// The source, and the target cluster, of the object that the sync asked for last.
    pub(crate) fn busy(&self) -> Option<(Source, usize)> {
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

    pub(crate) fn source_named(&self, annotations: &Value) -> Option<Source> {
        let part = |key: &str| annotations[format!("sync.mcr.dev/source-{key}")].as_str();
        let cluster = CLUSTERS.iter().position(|name| part("cluster") == Some(name))?;
        let name = NAMES.iter().position(|name| part("name") == Some(name))?;
        Some((cluster, name))
    }

    /// The source for which the sync made this object.
    pub(crate) fn owner(&self, cluster: usize, object: &Value) -> Option<Source> {
        self.ours.get(&(cluster, uid(object))).copied()
    }

    pub(crate) fn is_ours(&self, cluster: usize, name: &str) -> bool {
        let found = self.get(cluster, name);
        found.is_some_and(|found| self.owner(cluster, &found).is_some())
    }

    /// The server has shown a source to a program.
    pub(crate) fn show(&mut self, program: u64, source: Source) {
        let shown = self.source(source);
        let all = self.shown.entry((program, source)).or_default();
        all.retain(|(at, _)| at.elapsed() < ACTS_WITHIN);
        all.push((Instant::now(), shown));
    }

    /// Whether two programs lead.
    pub(crate) fn is_shared(&self) -> bool {
        self.alive
            .iter()
            .filter(|program| self.leads.contains_key(program))
            .count()
            > 1
    }

    /// Whether two programs that led at once did this soon one after the other, so that one could not know of the other.
    pub(crate) fn is_race(&self, one: Option<&Stamp>, other: Option<&Stamp>) -> bool {
        let (Some(one), Some(other)) = (one, other) else {
            return false;
        };
        let first = one.0.min(other.0);
        let led = |stamp: &Stamp| self.leads.get(&stamp.1).is_some_and(|since| *since <= first);
        one.1 != other.1 && one.0.max(other.0) - first < SOON && led(one) && led(other)
    }

    /// An object of the sync is in no record.
    pub(crate) fn orphan(&mut self, this: Id, source: Source, what: &str) {
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
    pub(crate) fn written(
        &mut self,
        by: u64,
        method: &str,
        cluster: usize,
        name: &str,
        before: Option<&Value>,
    ) {
        self.writer = (Instant::now(), by);
        self.steps += 1;
        self.writes += 1;
        if self.steps > MOST_STEPS {
            return self.fail("it writes without end");
        }
        let place = (cluster, name.to_owned());
        if kind(name) != WIDGETS {
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
        let named = self.source_named(&after["metadata"]["annotations"]);
        if let Some(made) = self.foreign.get(&place)
            && made["metadata"]["uid"] == after["metadata"]["uid"]
        {
            if made["metadata"]["labels"]["adopt"] != "yes" {
                return self.fail(format!("the object of somebody else at {place:?} was changed"));
            }
            self.foreign.remove(&place);
        }
        let Some(named) = named else {
            return self.fail(format!("the target at {place:?} names no source: {after}"));
        };
        let this = (cluster, uid(&after));
        self.made.entry(this.clone()).or_insert(self.writer);
        let owner = *self.ours.entry(this).or_insert(named);
        if owner != named {
            return self.fail(format!(
                "the target of {owner:?} at {place:?} was claimed by {named:?}"
            ));
        }
        self.check(owner);
    }

    /// A place may leave the record when its target is gone, or is abandoned.
    fn record_written(&mut self, source: Source, before: Option<&Value>) {
        let Some(before) = before else { return };
        let after = self.source(source);
        let kept = after.as_ref().map(recorded).unwrap_or_default();
        let abandoned = before["metadata"]["annotations"][ABANDON]
            .as_str()
            .unwrap_or_default();
        let name = self.target_name(source);
        for cluster in recorded(before) {
            if kept.contains(&cluster) {
                continue;
            }
            self.shrunk.insert(source, self.writer);
            if !abandoned.contains(CLUSTERS[cluster]) {
                continue;
            }
            self.excuse_copies(source, cluster);
            if let Some(target) = self.get(cluster, &name)
                && self.owner(cluster, &target) == Some(source)
            {
                self.excused.insert((cluster, uid(&target)));
            }
        }
    }

    /// A target is deleted because of what the server said about the source, and a move makes the new target first.
    fn check_delete(&mut self, owner: Source, cluster: usize) {
        if self.source(owner).is_none() {
            return;
        }
        let shown = self
            .shown
            .get(&(self.writer.1, owner))
            .cloned()
            .unwrap_or_default();
        let faults = shown
            .iter()
            .map(|(_, shown)| self.fault_of_delete(cluster, shown.as_ref()));
        // None of what the program has read allows it.
        let last = faults.reduce(|former, last| former.and(last));
        if let Some(fault) = last.unwrap_or_else(|| Some("no read".to_owned())) {
            self.fail(format!(
                "the target of {owner:?} in {} was deleted: {fault}",
                CLUSTERS[cluster]
            ));
        }
    }

    /// Why a target must not be deleted that exists for this source.
    fn fault_of_delete(&self, cluster: usize, shown: Option<&Value>) -> Option<String> {
        let Some(shown) = shown else {
            return Some("its source was gone, and there is one".to_owned());
        };
        let wanted = wanted(shown);
        if wanted.contains(&cluster) {
            return Some("it is wanted".to_owned());
        }
        let uid = uid(shown);
        let mut wanted = wanted.iter();
        let missing = wanted.find(|to| !self.placed.contains(&(uid.clone(), **to)))?;
        Some(format!("it was not yet in {}", CLUSTERS[*missing]))
    }

    /// Checks this source, and those with copies, whose origins may be others now.
    pub(crate) fn check_all(&mut self, source: Source) {
        let mut all: BTreeSet<Source> = self.copies.values().map(|copy| copy.slot.source).collect();
        all.insert(source);
        all.into_iter().for_each(|source| self.check(source));
    }

    /// No target is an orphan, no object of somebody else was changed, and nothing that a user set was lost.
    pub(crate) fn check(&mut self, source: Source) {
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
    pub(crate) fn agreement(&self, away: &BTreeSet<usize>) -> Result<(), String> {
        Self::sources()
            .filter(|source| !away.contains(&source.0))
            .try_for_each(|source| self.agrees(source, away))
    }

    fn agrees(&self, source: Source, away: &BTreeSet<usize>) -> Result<(), String> {
        let name = self.target_name(source);
        let own = self.source(source);
        let wanted = own.as_ref().map(wanted).unwrap_or_default();
        let fault = |fault: String| Err(format!("{source:?}: {fault}: {own:?}"));
        let (mut held, mut left, mut claimed, mut unclear) = (false, false, false, false);
        let mut phases = Vec::new();
        for cluster in SOURCE_CLUSTERS..CLUSTERS.len() {
            let (at, is_wanted) = (CLUSTERS[cluster], wanted.contains(&cluster));
            if away.contains(&cluster) {
                held |= is_wanted;
                continue;
            }
            if let Some(made) = self.foreign.get(&(cluster, Self::copy_name(source))) {
                if self.get(cluster, &Self::copy_name(source)).as_ref() != Some(made) {
                    return fault(format!("the copy in {at} is no longer {made}"));
                }
                claimed = true;
            }
            let found = self.get(cluster, &name);
            let ours = found
                .as_ref()
                .filter(|found| self.owner(cluster, found) == Some(source));
            let of_copies = own.as_ref().filter(|_| is_wanted);
            let (copies_held, copies_left) = match (is_wanted, ours) {
                // Of the copies of a place without its target nothing is known.
                (true, None) => (false, false),
                _ => self
                    .copies_agree(source, of_copies, cluster)
                    .map_err(|why| fault(why).unwrap_err())?,
            };
            held |= copies_held;
            if is_wanted && copies_left {
                return fault(format!("a copy for {at} is stale"));
            }
            left |= copies_left;
            match (is_wanted, ours, &found) {
                (true, Some(target), _) => {
                    let spec = &own.as_ref().unwrap()["spec"];
                    if (&target["spec"]["value"], &target["spec"]["extra"])
                        != (&spec["value"], &spec["extra"])
                    {
                        return fault(format!("{at} has {target}"));
                    }
                    let phase = target["status"]["phase"].as_str().unwrap_or("none");
                    phases.push(format!("{at}={phase}"));
                }
                (true, None, Some(found)) => {
                    if found["metadata"]["labels"]["adopt"] == "yes" && self.owner(cluster, found).is_none() {
                        return fault(format!("not adopted in {at}: {found}"));
                    }
                    held = true;
                }
                (true, None, None) => return fault(format!("no target in {at}")),
                // A target that was given up names its source still. If somebody removes that, the sync may see it or not.
                (false, Some(target), _) if self.excused.contains(&(cluster, uid(target))) => {
                    claimed = true;
                    unclear |= !self.has_whole_link(target);
                }
                (false, Some(_), _) => left = true,
                (false, None, _) => {}
            }
        }
        if left && !held {
            return fault("a target or a copy is left".to_owned());
        }
        let Some(own) = &own else { return Ok(()) };
        let kept: Vec<usize> = recorded(own);
        let waits = kept
            .iter()
            .any(|cluster| away.contains(cluster) && !wanted.contains(cluster));
        let finalizer = has_finalizer(own, FINALIZER);
        if wanted.is_empty() {
            return if finalizer && !waits {
                fault("it is not released".to_owned())
            } else {
                Ok(())
            };
        }
        let condition = &own["status"]["conditions"][0];
        let expected = if held || waits || claimed { "False" } else { "True" };
        let is_expected = condition["status"] == expected || unclear && !held && !waits;
        if !is_expected || condition["observedGeneration"] != own["metadata"]["generation"] {
            let why = format!("held {held}, waits {waits}, claimed {claimed}, away {away:?}");
            return fault(format!("the condition is not {expected} ({why})"));
        }
        if !held && own["status"]["phases"] != phases.join(",") {
            return fault(format!("the status is not {phases:?}"));
        }
        Ok(())
    }
}
