//! Which workspaces are clusters of the fleet, and behind which endpoint each is. No I/O.
//!
//! A workspace is a cluster as long as it has a binding, at whichever endpoint. An endpoint that its slice no longer names
//! keeps its bindings, because nobody has seen them go. It loses those of a workspace that is at an endpoint in the slice, or
//! that has been unbound at one: the URL of its shard was replaced. In the end it is given up, if it does not answer. A workspace
//! whose last binding goes without having been deleted may be on its way to another shard: it is missing for some time before it
//! leaves.
//!
//! Of workspaces that wait for an initializer or terminator, the LogicalCluster counts as the only binding.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    binding::{Binding, CLAIMS_APPLIED, Withheld},
    labels::Labels,
};

/// The bindings and the workspaces that have them.
#[derive(Debug)]
pub(crate) struct Members {
    /// The kind of the bindings.
    kind: &'static str,
    /// The URLs in the endpoint slice.
    in_slice: BTreeSet<Arc<str>>,
    /// The number of bindings at each endpoint that has any.
    bindings: BTreeMap<Arc<str>, usize>,
    /// By the id of the logical cluster.
    workspaces: HashMap<Arc<str>, Workspace>,
    /// Workspaces that have begun to be missing, until [`take_missing`](Self::take_missing) returns them.
    missing: Vec<Missing>,
    /// Numbers them.
    next_missing: u64,
}

/// A workspace that has begun to be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    cluster: Arc<str>,
    /// Distinguishes this time from later ones.
    number: u64,
}

#[derive(Debug, Default)]
struct Workspace {
    /// In the order in which the workspace was first seen there. Usually one; none while it is missing.
    places: Vec<Place>,
    /// The number of the time for which it is missing now.
    missing: Option<u64>,
    /// As it was announced last.
    announced: Option<Member>,
}

/// The bindings of a workspace at one endpoint.
#[derive(Debug)]
struct Place {
    endpoint: Arc<str>,
    /// By name, at least one. Not a map, whose smallest node has room for eleven bindings: 632 bytes for each workspace.
    bindings: Vec<(Arc<str>, Binding)>,
}

/// A workspace as a cluster of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The URL of its endpoint. None while it is on its way from one to another: its stores then have to stay as they are.
    pub(crate) endpoint: Option<Arc<str>>,
    /// Why it is not ready.
    pub(crate) suspended: Option<Arc<str>>,
    pub(crate) path: Option<Arc<str>>,
    /// The kinds that the export claims and the workspace does not grant.
    pub(crate) withheld: Withheld,
    pub(crate) labels: Labels,
}

/// What to announce of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Announce(Arc<str>, Member),
    Leave(Arc<str>),
}

impl Members {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            in_slice: BTreeSet::new(),
            bindings: BTreeMap::new(),
            workspaces: HashMap::new(),
            missing: Vec::new(),
            next_missing: 0,
        }
    }

    /// The slice has these endpoints now.
    pub(crate) fn set_endpoints(&mut self, urls: BTreeSet<Arc<str>>) -> Vec<Decision> {
        self.in_slice = urls;
        // The only place of a workspace stays its place.
        let several = self
            .workspaces
            .iter()
            .filter(|(_, workspace)| workspace.places.len() > 1);
        let several: Vec<Arc<str>> = several.map(|(cluster, _)| cluster.clone()).collect();
        several
            .iter()
            .filter_map(|cluster| self.decide(cluster))
            .collect()
    }

    /// An endpoint is given up: it is not in the slice, and has not answered for a long time.
    pub(crate) fn lost(&mut self, endpoint: &Arc<str>) -> Vec<Decision> {
        let workspaces = self.workspaces.iter_mut();
        let there = workspaces.filter_map(|(cluster, workspace)| {
            let before = workspace.places.len();
            workspace.places.retain(|place| place.endpoint != *endpoint);
            (workspace.places.len() < before).then(|| cluster.clone())
        });
        let there: Vec<Arc<str>> = there.collect();
        self.bindings.remove(endpoint);
        there.iter().filter_map(|cluster| self.decide(cluster)).collect()
    }

    /// What to announce of a workspace that is not missing, if it differs from what was announced last.
    fn decide(&mut self, cluster: &Arc<str>) -> Option<Decision> {
        let workspace = self.workspaces.get_mut(cluster)?;
        let Some(member) = workspace.member(&self.in_slice) else {
            self.workspaces.remove(cluster);
            return Some(Decision::Leave(cluster.clone()));
        };
        if member
            .endpoint
            .as_ref()
            .is_some_and(|url| self.in_slice.contains(url))
        {
            workspace.forget_lost(&self.in_slice, &mut self.bindings);
        }
        workspace.announce(cluster, member)
    }

    /// Whether the workspace is a cluster of the fleet.
    pub(crate) fn is_announced(&self, cluster: &str) -> bool {
        self.workspaces
            .get(cluster)
            .is_some_and(|workspace| workspace.announced.is_some())
    }

    /// The endpoints in the slice.
    pub(crate) fn in_slice(&self) -> &BTreeSet<Arc<str>> {
        &self.in_slice
    }

    /// The endpoints whose bindings have to be watched: those in the slice, and those that still have bindings.
    pub(crate) fn watched(&self) -> BTreeSet<Arc<str>> {
        self.in_slice
            .iter()
            .chain(self.bindings.keys())
            .cloned()
            .collect()
    }

    /// A binding was created or changed, or existed at the start.
    pub(crate) fn applied(
        &mut self,
        endpoint: &Arc<str>,
        cluster: &Arc<str>,
        name: &Arc<str>,
        binding: Binding,
    ) -> Option<Decision> {
        let workspace = self.workspaces.entry(cluster.clone()).or_default();
        workspace.missing = None;
        let places = &mut workspace.places;
        let at = places
            .iter()
            .position(|place| place.endpoint == *endpoint)
            .unwrap_or_else(|| {
                // Without room for more: a workspace is at one endpoint unless it moves.
                places.reserve_exact(1);
                places.push(Place {
                    endpoint: endpoint.clone(),
                    bindings: Vec::new(),
                });
                places.len() - 1
            });
        if places[at].put(name, binding) {
            *self.bindings.entry(endpoint.clone()).or_default() += 1;
        }
        self.decide(cluster)
    }

    /// A binding is gone. `deleted`: it had a deletion timestamp before.
    pub(crate) fn gone(
        &mut self,
        endpoint: &Arc<str>,
        cluster: &Arc<str>,
        name: &Arc<str>,
        deleted: bool,
    ) -> Option<Decision> {
        let workspace = self.workspaces.get_mut(cluster)?;
        let at = workspace
            .places
            .iter()
            .position(|place| place.endpoint == *endpoint)?;
        let place = &mut workspace.places[at];
        let binding = place.remove(name)?;
        count_down(&mut self.bindings, endpoint, 1);
        if !place.bindings.is_empty() {
            return self.decide(cluster);
        }
        let left = workspace.places.remove(at);
        let deleted = deleted || binding.deleting;
        if deleted && self.in_slice.contains(endpoint) {
            workspace.forget_lost(&self.in_slice, &mut self.bindings);
        }
        if deleted || !workspace.places.is_empty() {
            return self.decide(cluster);
        }
        let missing = Missing {
            cluster: cluster.clone(),
            number: self.next_missing,
        };
        self.next_missing += 1;
        workspace.missing = Some(missing.number);
        self.missing.push(missing);
        let reason = format!(
            "its {} {name} has gone from endpoint {} without having been deleted; the workspace leaves the fleet unless another \
             shard shows it soon",
            self.kind, left.endpoint
        );
        let nowhere = workspace.nowhere(reason, binding.path);
        workspace.announce(cluster, nowhere)
    }

    /// Takes the next workspace that has begun to be missing.
    pub(crate) fn take_missing(&mut self) -> Option<Missing> {
        self.missing.pop()
    }

    /// The time is over for which a workspace may be missing.
    pub(crate) fn give_up(&mut self, missing: &Missing) -> Option<Decision> {
        let Missing { cluster, number } = missing;
        let is_missing = self.workspaces.get(cluster)?.missing == Some(*number);
        is_missing.then(|| {
            self.workspaces.remove(cluster);
            Decision::Leave(cluster.clone())
        })
    }
}

/// Counts bindings that an endpoint no longer has.
fn count_down(counts: &mut BTreeMap<Arc<str>, usize>, endpoint: &Arc<str>, by: usize) {
    if let Some(count) = counts.get_mut(endpoint) {
        *count -= by;
        if *count == 0 {
            counts.remove(endpoint);
        }
    }
}

impl Workspace {
    /// The workspace while it waits to become a cluster behind an endpoint.
    ///
    /// To be behind it already would report each object as gone that the endpoint does not show yet: kcp copies the bindings
    /// of a workspace first, with their conditions. It removes them from the old shard when all objects are copied.
    fn awaited(&self, place: &Place, event: &str) -> Member {
        let endpoint = &place.endpoint;
        let reason = format!("it moves to endpoint {endpoint}, and its objects are compared when {event}");
        self.nowhere(reason, place.path())
    }

    /// Forgets the places at endpoints that are not in the slice.
    fn forget_lost(&mut self, in_slice: &BTreeSet<Arc<str>>, counts: &mut BTreeMap<Arc<str>, usize>) {
        self.places.retain(|place| {
            let stays = in_slice.contains(&place.endpoint);
            if !stays {
                count_down(counts, &place.endpoint, place.bindings.len());
            }
            stays
        });
    }

    fn announce(&mut self, cluster: &Arc<str>, member: Member) -> Option<Decision> {
        if self.announced.as_ref() == Some(&member) {
            return None;
        }
        self.announced = Some(member.clone());
        Some(Decision::Announce(cluster.clone(), member))
    }

    /// The workspace while it is behind no endpoint.
    fn nowhere(&self, reason: String, path: Option<Arc<str>>) -> Member {
        let announced = self.announced.as_ref();
        // What the workspace grants is not known on the way. Its labels have to select it until it arrives.
        let (withheld, labels) = announced
            .map(|announced| (announced.withheld.clone(), announced.labels.clone()))
            .unwrap_or_default();
        Member {
            endpoint: None,
            suspended: Some(reason.into()),
            path,
            withheld,
            labels,
        }
    }

    /// None if it has no place.
    fn member(&self, in_slice: &BTreeSet<Arc<str>>) -> Option<Member> {
        let is_served = |place: &&Place| in_slice.contains(&place.endpoint);
        // A shard to which kcp moves a workspace shows it later than the shard from which kcp moves it.
        let newest = self.places.iter().rev().find(is_served).or(self.places.last())?;
        let Some(announced) = &self.announced else {
            return Some(newest.member());
        };
        let current = announced.endpoint.as_ref();
        let current = current.and_then(|url| self.places.iter().find(|place| place.endpoint == *url));
        if current.is_some_and(|current| std::ptr::eq(current, newest)) {
            return Some(newest.member());
        }
        // Its finalizers have to be released, wherever that is possible.
        let mut served = current.into_iter().chain(&self.places).filter(is_served);
        if let Some(deleting) = served.find(|place| place.is_deleting()) {
            return Some(deleting.member());
        }
        let mut others = self.places.iter().filter(is_served);
        Some(match others.find(|place| !std::ptr::eq(*place, newest)) {
            Some(old) => self.awaited(newest, &format!("endpoint {} no longer shows it", old.endpoint)),
            None if newest.is_complete() || newest.is_deleting() => newest.member(),
            None => self.awaited(newest, &format!("{CLAIMS_APPLIED} is true there")),
        })
    }
}

impl Place {
    fn find(&self, name: &Arc<str>) -> Result<usize, usize> {
        self.bindings.binary_search_by(|(known, _)| known.cmp(name))
    }

    /// Adds or replaces a binding. Returns whether it is a new one.
    fn put(&mut self, name: &Arc<str>, binding: Binding) -> bool {
        match self.find(name) {
            Ok(at) => {
                self.bindings[at].1 = binding;
                false
            }
            Err(at) => {
                self.bindings.reserve_exact(1);
                self.bindings.insert(at, (name.clone(), binding));
                true
            }
        }
    }

    fn remove(&mut self, name: &Arc<str>) -> Option<Binding> {
        let at = self.find(name).ok()?;
        Some(self.bindings.remove(at).1)
    }

    fn bindings(&self) -> impl Iterator<Item = &Binding> + Clone {
        self.bindings.iter().map(|(_, binding)| binding)
    }

    fn is_deleting(&self) -> bool {
        self.bindings().any(|binding| binding.deleting)
    }

    /// Whether the endpoint shows all objects: kcp labels claimed objects some time after it has moved them.
    fn is_complete(&self) -> bool {
        self.bindings().all(|binding| !binding.claims_pending)
    }

    /// The workspace as a cluster behind this endpoint.
    fn member(&self) -> Member {
        let is_ready = |binding: &&Binding| binding.deleting || binding.not_ready.is_none();
        let ready: Vec<&Binding> = self.bindings().filter(is_ready).collect();
        let first = self.bindings().next();
        // One binding that grants a kind is enough.
        let mut granting = ready.iter().copied().chain(first.filter(|_| ready.is_empty()));
        let mut withheld = granting
            .next()
            .map(|binding| binding.withheld.clone())
            .unwrap_or_default();
        for binding in granting {
            withheld.retain(|kind, _| binding.withheld.contains_key(kind));
        }
        Member {
            endpoint: Some(self.endpoint.clone()),
            suspended: first
                .filter(|_| ready.is_empty())
                .and_then(|first| first.not_ready.clone()),
            path: self.path(),
            withheld,
            labels: self.labels(),
        }
    }

    /// The labels of all bindings. Of several values of a key, that of the first binding counts.
    fn labels(&self) -> Labels {
        let mut labels = Labels::new();
        for (_, binding) in self.bindings.iter().rev() {
            labels.extend(binding.labels.clone());
        }
        labels
    }

    fn path(&self) -> Option<Arc<str>> {
        self.bindings().find_map(|binding| binding.path.clone())
    }
}

#[cfg(test)]
mod tests;
