//! The inventories of a hub, which are never merged, as one discovery. No I/O.

use std::sync::Arc;

use mcr_core::{Change, ObjectKey};

use crate::{facts::Facts, inventory::Inventory, placement::Slice, secret::SecretFacts};

/// A change in the hub. The number is that of the inventory.
#[derive(Debug)]
pub(crate) enum HubChange {
    Profile(usize, ObjectKey, Option<Arc<Facts>>),
    Secret(usize, ObjectKey, Option<Arc<SecretFacts>>),
    /// PlacementDecisions can name ClusterProfiles of all inventories.
    Decision(ObjectKey, Option<Slice>),
    ProfilesSynced(usize),
    SecretsSynced(usize),
    /// One of the watches of PlacementDecisions has listed them.
    DecisionsSynced,
}

#[derive(Debug)]
pub(crate) struct Inventories {
    all: Vec<Inventory>,
    /// So many of them are not in sync yet.
    unsynced: usize,
    /// So many watches of PlacementDecisions have not listed them yet.
    unlisted: usize,
}

impl Inventories {
    /// `decisions`: the number of the watches of PlacementDecisions.
    pub(crate) fn new(all: Vec<Inventory>, decisions: usize) -> Self {
        Self {
            unsynced: all.len(),
            all,
            unlisted: decisions,
        }
    }

    /// What is to be announced after these changes, which happened at about the same time.
    pub(crate) fn apply(&mut self, batch: Vec<HubChange>) -> Vec<Change> {
        let mut announced = Vec::new();
        let mut decided = false;
        for change in batch {
            announced.extend(match change {
                HubChange::Profile(at, key, facts) => self.of(at, |inventory| match facts {
                    Some(facts) => inventory.profile(&key, facts),
                    None => inventory.profile_gone(&key),
                }),
                HubChange::Secret(at, key, secret) => self.of(at, |inventory| inventory.secret(&key, secret)),
                HubChange::ProfilesSynced(at) => self.of(at, Inventory::profiles_synced),
                HubChange::SecretsSynced(at) => self.of(at, Inventory::secrets_synced),
                HubChange::Decision(key, slice) => {
                    decided = true;
                    for inventory in &mut self.all {
                        inventory.decision(&key, slice.as_ref());
                    }
                    Vec::new()
                }
                HubChange::DecisionsSynced => {
                    self.unlisted = self.unlisted.saturating_sub(1);
                    match self.unlisted {
                        0 => self.each(Inventory::decisions_synced),
                        _ => Vec::new(),
                    }
                }
            });
        }
        // Only now: a cluster can move from one PlacementDecision to another.
        if decided {
            announced.extend(self.each(Inventory::announce_decisions));
        }
        announced.retain(|change| !matches!(change, Change::Synced) || self.is_last());
        announced
    }

    fn of(&mut self, at: usize, change: impl FnOnce(&mut Inventory) -> Vec<Change>) -> Vec<Change> {
        self.all.get_mut(at).map(change).unwrap_or_default()
    }

    fn each(&mut self, change: impl FnMut(&mut Inventory) -> Vec<Change>) -> Vec<Change> {
        self.all.iter_mut().flat_map(change).collect()
    }

    /// One more inventory is in sync: whether it is the last one.
    fn is_last(&mut self) -> bool {
        self.unsynced = self.unsynced.saturating_sub(1);
        self.unsynced == 0
    }
}
