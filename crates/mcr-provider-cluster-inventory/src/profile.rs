//! One ClusterProfile, and what is to be said of it. No I/O.

use std::sync::Arc;

use mcr_core::{Access, BrokenCluster, Change, ClusterName, ClusterSpec, EndpointAccess, Fingerprint, Trust};

use crate::facts::{Facts, map};

#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) facts: Arc<Facts>,
    /// Why the profile can't be decoded any more. The facts are those from before.
    pub(crate) unreadable: Option<Arc<str>>,
    /// The access of the cluster since it is engaged. A suspended cluster keeps it, and with it what the fleet knows.
    pub(crate) last: Option<EndpointAccess>,
    pub(crate) announced: Announced,
}

/// What was announced last.
#[derive(Debug, Clone)]
pub(crate) enum Announced {
    Nothing,
    Waiting(Arc<Facts>, Arc<str>),
    Good(Arc<Facts>, Fingerprint),
    Broken(Arc<str>),
}

/// What is to be said of a cluster.
#[derive(Debug)]
pub(crate) enum Verdict {
    Good(EndpointAccess),
    Waiting(Arc<str>),
    /// The object at fault, and why.
    Broken(String, Arc<str>),
}

impl Profile {
    pub(crate) fn new(facts: Arc<Facts>) -> Self {
        Self {
            unreadable: None,
            last: None,
            announced: Announced::Nothing,
            facts,
        }
    }

    pub(crate) fn update(&mut self, facts: Arc<Facts>) {
        self.unreadable = None;
        self.facts = facts;
    }

    /// The change that says it, and what is said then. None if that was said last.
    pub(crate) fn announcement(&self, name: ClusterName, verdict: &Verdict) -> Option<(Announced, Change)> {
        let facts = &self.facts;
        let announced = match verdict {
            Verdict::Good(access) => Announced::Good(facts.clone(), access.fingerprint()),
            Verdict::Waiting(why) => Announced::Waiting(facts.clone(), why.clone()),
            Verdict::Broken(_, why) => Announced::Broken(why.clone()),
        };
        if announced.is(&self.announced) {
            return None;
        }
        let change = match verdict {
            Verdict::Good(access) => Change::Upsert(facts.spec(name, access.clone())),
            Verdict::Waiting(why) => {
                let nowhere = || Access::kubeconfig("", Trust::Untrusted);
                let access = self.last.clone().map_or_else(nowhere, Into::into);
                Change::Upsert(facts.spec(name, access).suspended(why.clone()))
            }
            Verdict::Broken(object, why) => {
                Change::Broken(BrokenCluster::new(name, object.clone(), why.clone()))
            }
        };
        Some((announced, change))
    }
}

impl Announced {
    /// Whether both say the same.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Waiting(a, why), Self::Waiting(b, other)) => why == other && a.same_description(b),
            (Self::Good(a, access), Self::Good(b, other)) => access == other && a.same_description(b),
            (Self::Broken(why), Self::Broken(other)) => why == other,
            _ => false,
        }
    }
}

impl Facts {
    pub(crate) fn spec(&self, name: ClusterName, access: impl Into<Access>) -> ClusterSpec {
        let mut spec = ClusterSpec::new(name, access.into());
        spec.identity.clone_from(&self.uid);
        spec.labels = map(&self.labels);
        spec.properties = map(&self.properties);
        spec
    }
}
