use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::kinds;
use mcr_testkit::sim::kinds::{Kind, Kinds};

/// A cluster-scoped object of kcp: the id of its logical cluster, and its name.
pub(super) type Key = (Arc<str>, String);

/// The state of the control plane, beside the stored objects.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) exports: HashMap<Key, Export>,
    pub(super) bindings: HashMap<Key, Binding>,
    /// The applied claims of each logical cluster.
    pub(super) claims: HashMap<Arc<str>, Vec<Applied>>,
    /// The bindings that are being deleted, by logical cluster.
    pub(super) unbinding: HashMap<Arc<str>, BTreeSet<String>>,
    /// The logical clusters that are being deleted.
    pub(super) leaving: HashSet<Arc<str>>,
    /// The logical clusters that are being moved.
    pub(super) moving: HashMap<Arc<str>, Moving>,
    pub(super) steps: VecDeque<Step>,
    pub(super) queued: HashSet<Step>,
    pub(super) timers: BTreeMap<(Instant, u64), Step>,
    pub(super) timer_count: u64,
}

/// A step of a controller. It reads the current state, and may have nothing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// Finds a shard for a Workspace.
    Schedule(Key),
    /// Publishes or removes the URLs of an export.
    Endpoints(Key),
    Bind(Key),
    /// Applies the claims of a binding.
    Claims(Key),
    /// Labels one object, given as logical cluster, table and path.
    Label(Arc<str>, Arc<str>, String),
    Unbind(Key),
    /// Deletes the content of a logical cluster.
    Empty(Arc<str>),
    /// Copies the content of a logical cluster to its new shard.
    Copy(Arc<str>),
}

/// A logical cluster whose bindings are already on its new shard.
#[derive(Debug)]
pub(super) struct Moving {
    /// The number of the old shard.
    pub(super) from: usize,
    /// Each binding with its export, and whether it is bound.
    pub(super) bindings: Vec<(Key, Key, bool)>,
    /// The table, path and content of each object. The bindings come first.
    pub(super) content: Vec<(Arc<str>, String, Value)>,
    /// The position in `content` of the first object that is not a binding.
    pub(super) first_other: usize,
}

/// An APIExport. It may not exist yet, if a binding already refers to it.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) exists: bool,
    pub(super) identity: String,
    pub(super) hash: String,
    pub(super) resources: Vec<Exported>,
    pub(super) claims: Vec<Claim>,
    /// The bindings on each shard, by the number of the shard.
    pub(super) on: Vec<OnShard>,
    pub(super) slices: BTreeSet<Key>,
    /// The kinds that the export's virtual workspace serves.
    pub(super) kinds: Kinds,
}

/// A resource of an export.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) schema: String,
    pub(super) schema_uid: String,
    pub(super) versions: Vec<Value>,
    pub(super) kinds: Vec<Arc<Kind>>,
}

/// A permission claim of an export.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) identity: String,
    pub(super) verbs: Vec<String>,
    pub(super) json: Value,
}

/// The bindings of an export on one shard.
#[derive(Debug, Default)]
pub(super) struct OnShard {
    pub(super) bindings: HashSet<Key>,
    /// How many bound bindings each logical cluster has.
    pub(super) bound: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
pub(super) struct Binding {
    pub(super) export: Key,
    pub(super) bound: bool,
    /// The claims as they were last read.
    pub(super) claims: Value,
    /// The names of the kinds in the logical cluster, and the tables with their objects.
    pub(super) tables: Vec<(String, Arc<str>)>,
}

/// A claim that a binding has accepted and that is applied.
#[derive(Clone, Debug)]
pub(super) struct Applied {
    pub(super) binding: String,
    /// The label of the claimed objects.
    pub(super) label: (String, String),
    pub(super) tables: Vec<Arc<str>>,
    pub(super) verbs: Vec<String>,
    pub(super) selector: Value,
}

impl Export {
    pub(super) fn new(shards: usize, key: &Key) -> Self {
        Self {
            exists: false,
            identity: super::names::identity(&key.0, &key.1),
            hash: super::names::export_hash(&key.0, &key.1),
            resources: Vec::new(),
            claims: Vec::new(),
            on: (0..shards).map(|_| OnShard::default()).collect(),
            slices: BTreeSet::new(),
            kinds: Kinds::over(kinds::nothing()),
        }
    }

    pub(super) fn bindings(&self) -> Vec<Key> {
        self.on
            .iter()
            .flat_map(|on| on.bindings.iter().cloned())
            .collect()
    }
}

impl Claim {
    pub(super) fn parse(json: &Value) -> Self {
        let word = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
        let verbs = json["verbs"].as_array().into_iter().flatten();
        Self {
            group: word("group"),
            resource: word("resource"),
            identity: word("identityHash"),
            verbs: verbs.filter_map(Value::as_str).map(str::to_owned).collect(),
            json: json.clone(),
        }
    }

    /// Whether both concern the same resource.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        self.groups_and_resource() == other.groups_and_resource() && self.identity == other.identity
    }

    /// The groups of a claim. A claim on events applies to both groups that serve them.
    fn groups_and_resource(&self) -> (Vec<&str>, &str) {
        (self.groups(), &self.resource)
    }

    pub(super) fn groups(&self) -> Vec<&str> {
        if self.resource == "events" && matches!(&*self.group, "" | "events.k8s.io") {
            return vec!["", "events.k8s.io"];
        }
        vec![&self.group]
    }

    pub(super) fn tables(&self) -> Vec<Arc<str>> {
        if !self.identity.is_empty() {
            return vec![kinds::bound_table(&self.group, &self.resource, &self.identity)];
        }
        let tables = self.groups().into_iter();
        tables
            .map(|group| mcr_testkit::sim::kinds::resource_id(group, &self.resource))
            .collect()
    }

    pub(super) fn label(&self, export_hash: &str) -> (String, String) {
        let group = self.groups().first().copied().unwrap_or_default().to_owned();
        let value = super::names::claim_hash(&group, &self.resource, &self.identity);
        (format!("{CLAIM_PREFIX}{export_hash}"), value)
    }
}

/// The prefix of the label key of claimed objects. The hash of the export follows.
pub(super) const CLAIM_PREFIX: &str = "claimed.internal.apis.kcp.io/";

/// Whether a list of verbs allows a verb.
pub(super) fn allows(verbs: &[String], verb: &str) -> bool {
    verbs.iter().any(|own| own == "*" || own == verb)
}
