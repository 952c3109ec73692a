//! Which clusters of the fleet are one and the same, by the UIDs of their `kube-system` namespaces, and which of them is
//! engaged. No I/O.

use std::{collections::HashMap, pin::pin, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::Notify;

use mcr_access::ClusterName;

/// By convention, the name of the cluster that holds the objects of the fleet itself. Controllers leave it out unless
/// they ask for it.
pub const HUB: &str = "hub";

/// The clusters of a fleet by the UIDs with which they answer.
#[derive(Debug, Default)]
pub(crate) struct Identities {
    table: Mutex<Table>,
    /// Notified when a cluster that waited is engaged.
    promoted: Notify,
    /// Whether several names of one cluster are engaged beside each other.
    allow_duplicates: bool,
}

impl Identities {
    pub(crate) fn new(allow_duplicates: bool) -> Self {
        Self {
            allow_duplicates,
            ..Self::default()
        }
    }

    /// A cluster answers with a UID. It keeps what it gets until [`release`](Self::release). Who is not trusted may choose any name
    /// and report any UID, so the hub comes first only if its access is trusted.
    pub(crate) fn claim(&self, uid: &Arc<str>, name: &ClusterName, is_trusted: bool) -> Claim {
        let mut table = self.table.lock();
        let is_hub = is_trusted && name == HUB;
        if is_hub {
            table.hub = Some(uid.clone());
        }
        let place = table.places.entry(uid.clone()).or_default();
        place.claim(name, is_hub, self.allow_duplicates)
    }

    /// A cluster has left, or waits no longer.
    pub(crate) fn release(&self, uid: &Arc<str>, name: &ClusterName) {
        let mut table = self.table.lock();
        if name == HUB {
            table.hub = None;
        }
        let Some(place) = table.places.get_mut(uid) else {
            return;
        };
        let promoted = place.remove(name);
        if place.names.is_empty() {
            table.places.remove(uid);
        }
        if promoted {
            self.promoted.notify_waiters();
        }
    }

    pub(crate) fn is_engaged(&self, uid: &Arc<str>, name: &ClusterName) -> bool {
        let table = self.table.lock();
        table.places.get(uid).is_some_and(|place| place.is_engaged(name))
    }

    /// Waits until a cluster is engaged. Cancel safe.
    pub(crate) async fn engaged(&self, uid: &Arc<str>, name: &ClusterName) {
        loop {
            let mut promoted = pin!(self.promoted.notified());
            // Registered before the table is read, so that no change in between is missed.
            promoted.as_mut().enable();
            if self.is_engaged(uid, name) {
                return;
            }
            promoted.await;
        }
    }

    /// Whether a cluster answers with the UID of the hub.
    pub(crate) fn is_hub(&self, name: &ClusterName) -> bool {
        let table = self.table.lock();
        let place = table.hub.as_ref().and_then(|uid| table.places.get(uid));
        place.is_some_and(|place| place.find(name).is_some())
    }

    /// The other names of a cluster: those that are engaged, and those that wait.
    pub(crate) fn others(&self, name: &ClusterName) -> Vec<ClusterName> {
        let table = self.table.lock();
        let mut several = table.places.values().filter(|place| place.names.len() > 1);
        let place = several.find(|place| place.find(name).is_some());
        let names = place.into_iter().flat_map(|place| &place.names);
        names.filter(|other| *other != name).cloned().collect()
    }

    /// The clusters with several names: the first name, and the others.
    pub(crate) fn duplicates(&self) -> Vec<(ClusterName, Vec<ClusterName>)> {
        let table = self.table.lock();
        let several = table
            .places
            .values()
            .filter_map(|place| place.names.split_first());
        let several = several.filter(|(_, others)| !others.is_empty());
        several
            .map(|(first, others)| (first.clone(), others.to_vec()))
            .collect()
    }
}

/// What a cluster gets that answers with a UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It may be engaged.
    Engage,
    /// It may be engaged, and takes the place of this cluster, which has no claim any more.
    Displace(ClusterName),
    /// It waits, because this cluster is engaged.
    Wait(ClusterName),
}

#[derive(Debug, Default, Clone)]
struct Table {
    /// Only clusters that are engaged or wait have an entry.
    places: HashMap<Arc<str>, Place>,
    /// The UID of the hub.
    hub: Option<Arc<str>>,
}

/// The names of one cluster: those that are engaged, then those that wait, each in the order of their claims.
#[derive(Debug, Default, Clone)]
struct Place {
    names: Vec<ClusterName>,
    engaged: usize,
}

impl Place {
    fn find(&self, name: &ClusterName) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    fn is_engaged(&self, name: &ClusterName) -> bool {
        self.find(name).is_some_and(|at| at < self.engaged)
    }

    fn claim(&mut self, name: &ClusterName, is_hub: bool, allow_duplicates: bool) -> Claim {
        let known = self.find(name);
        if known.is_some_and(|at| at < self.engaged) {
            return Claim::Engage;
        }
        if known.is_none() {
            // Nearly all clusters have one name, so spare capacity would add up.
            self.names.reserve_exact(1);
            self.names.push(name.clone());
        }
        if self.engaged == 0 || allow_duplicates {
            self.promote(name);
            return Claim::Engage;
        }
        if !is_hub {
            return Claim::Wait(self.names[0].clone());
        }
        let displaced = self.names.remove(0);
        self.engaged = 0;
        self.promote(name);
        Claim::Displace(displaced)
    }

    /// Engages a name that waits.
    fn promote(&mut self, name: &ClusterName) {
        if let Some(at) = self.find(name) {
            self.names[self.engaged..=at].rotate_right(1);
            self.engaged += 1;
        }
    }

    /// Removes a name. Returns whether the next one is engaged now.
    fn remove(&mut self, name: &ClusterName) -> bool {
        let Some(at) = self.find(name) else { return false };
        self.names.remove(at);
        if at < self.engaged {
            self.engaged -= 1;
        }
        let next = self.names.first().cloned().filter(|_| self.engaged == 0);
        next.inspect(|next| self.promote(next)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(name: &str) -> ClusterName {
        ClusterName::unchecked(name)
    }

    #[test]
    fn the_hub_comes_first_then_the_one_that_was_engaged_first() {
        let (uid, identities) = (Arc::from("u"), Identities::new(false));
        let claim = |of: &str| identities.claim(&uid, &name(of), true);
        assert_eq!(claim("a"), Claim::Engage);
        assert_eq!(claim("b"), Claim::Wait(name("a")));
        assert_eq!(claim("c"), Claim::Wait(name("a")));
        assert_eq!(claim("a"), Claim::Engage, "a reconnect keeps the place");
        assert_eq!(identities.claim(&Arc::from("v"), &name("d"), true), Claim::Engage);
        assert!(!identities.is_hub(&name("a")));
        let untrusted = identities.claim(&uid, &name("hub"), false);
        assert_eq!(untrusted, Claim::Wait(name("a")), "anybody can choose the name");
        assert!(!identities.is_hub(&name("a")));
        assert_eq!(claim("hub"), Claim::Displace(name("a")));
        assert!(!identities.is_hub(&name("a")), "it is on its way out");
        assert_eq!(claim("a"), Claim::Wait(name("hub")));
        assert!(identities.is_hub(&name("a")) && !identities.is_hub(&name("d")));
        let duplicates = identities.duplicates();
        assert_eq!(duplicates, [(name("hub"), ["b", "c", "a"].map(name).into())]);
        assert_eq!(identities.others(&name("b")), ["hub", "c", "a"].map(name));
        assert!(identities.others(&name("d")).is_empty());
        identities.release(&uid, &name("hub"));
        assert!(identities.is_engaged(&uid, &name("b")) && !identities.is_hub(&name("a")));
        identities.release(&uid, &name("c"));
        identities.release(&uid, &name("b"));
        assert!(identities.is_engaged(&uid, &name("a")));
        let allowed = Identities::new(true);
        for of in ["a", "hub", "b"] {
            assert_eq!(allowed.claim(&uid, &name(of), true), Claim::Engage);
        }
        assert!(allowed.is_hub(&name("a")) && allowed.is_engaged(&uid, &name("b")));
    }

    proptest! {
        #[test]
        fn one_name_of_each_cluster_is_engaged_the_hub_if_it_is_there(
            steps in proptest::collection::vec((0..4_usize, any::<bool>()), 1..60)
        ) {
            let (uid, names) = (Arc::from("u"), ["hub", "a", "b", "c"].map(name));
            let (identities, mut there) = (Identities::new(false), [false; 4]);
            for (who, claims) in steps {
                there[who] = claims;
                if claims {
                    let claim = identities.claim(&uid, &names[who], true);
                    if let Claim::Displace(other) = &claim {
                        there[names.iter().position(|name| name == other).unwrap()] = false;
                    }
                    prop_assert_eq!(!matches!(claim, Claim::Wait(_)), identities.is_engaged(&uid, &names[who]));
                } else {
                    identities.release(&uid, &names[who]);
                }
                let engaged = names.iter().filter(|name| identities.is_engaged(&uid, name)).count();
                prop_assert_eq!(engaged, usize::from(there.contains(&true)));
                prop_assert!(!there[0] || identities.is_engaged(&uid, &names[0]));
                prop_assert_eq!(identities.table.lock().places.len(), engaged);
            }
        }
    }
}
