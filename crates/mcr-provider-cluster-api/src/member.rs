//! One Cluster with its Secret: which read it needs, and what is to be said of it. No I/O.

use std::sync::Arc;

use mcr_core::{
    Access, BrokenCluster, Change, ClusterName, ClusterSpec, EndpointAccess, Fingerprint, ObjectKey, Trust,
    internal::KubeconfigProblem,
};

use crate::{
    facts::{Facts, State, map},
    secret::{CLUSTER_NAME_LABEL, Stamp},
};

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) facts: Arc<Facts>,
    /// Why the Cluster can't be decoded any more. The facts are those from before.
    pub(crate) unreadable: Option<Arc<str>>,
    pub(crate) secret: ObjectKey,
    /// Once true it stays true, as Cluster API's own field does.
    pub(crate) ready: bool,
    pub(crate) content: Option<Content>,
    pub(crate) reading: Option<Reading>,
    pub(crate) announced: Announced,
}

/// What is known of the content of a Secret.
#[derive(Debug)]
pub(crate) struct Content {
    /// As the watch knew the Secret when it was read, if it did. The read may be ahead of the watch.
    pub(crate) at: Option<Arc<Stamp>>,
    /// As the Secret itself says.
    pub(crate) of: Arc<Stamp>,
    pub(crate) kind: ContentKind,
}

#[derive(Debug)]
pub(crate) enum ContentKind {
    Good(EndpointAccess),
    Bad(KubeconfigProblem),
    /// The Secret was not there any more.
    Gone,
}

/// A read that is under way.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) number: u64,
    pub(crate) at: Option<Arc<Stamp>>,
    /// Why the hub has not given the Secret, if it has refused it before.
    pub(crate) failed: Option<KubeconfigProblem>,
}

/// What was announced last.
#[derive(Debug, Clone)]
pub(crate) enum Announced {
    Nothing,
    Waiting(Arc<Facts>, Arc<str>),
    Good(Arc<Facts>, Fingerprint),
    Broken(Arc<str>),
}

impl Announced {
    /// Whether both say the same.
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Waiting(a, why), Self::Waiting(b, other)) => why == other && a.same_description(b),
            (Self::Good(a, content), Self::Good(b, other)) => content == other && a.same_description(b),
            (Self::Broken(why), Self::Broken(other)) => why == other,
            _ => false,
        }
    }
}

/// A Secret to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) number: u64,
    pub(crate) cluster: ObjectKey,
    pub(crate) secret: ObjectKey,
    /// The key of the kubeconfig in the Secret.
    pub(crate) key: Arc<str>,
    /// How often it has failed.
    pub(crate) failures: u32,
}

/// What is to be said of a cluster.
pub(crate) enum Verdict<'a> {
    Good(&'a EndpointAccess),
    Waiting(Arc<str>),
    /// The object at fault, and why.
    Broken(String, Arc<str>),
}

impl Member {
    /// The read that is needed now that the Secret is at this stamp. Ends a read that is not needed any more.
    ///
    /// `ask`: also if the watch knows no such Secret. It may be behind the watch of Clusters.
    pub(crate) fn next_read(
        &mut self,
        key: &ObjectKey,
        stamp: Option<&Arc<Stamp>>,
        ask: bool,
        number: u64,
    ) -> Option<Read> {
        let known = self.content.as_mut().filter(|content| content.is_at(stamp));
        let is_known = known.is_some();
        if let Some(content) = known {
            content.at = stamp.cloned();
        }
        if is_known || !self.ready || self.unreadable.is_some() || (stamp.is_none() && !ask) {
            self.reading = None;
            return None;
        }
        // A read that began before the watch knew the Secret is judged when it ends.
        let same = |reading: &Reading| reading.at.is_none() || reading.at.as_ref() == stamp;
        if self.reading.as_ref().is_some_and(same) {
            return None;
        }
        self.reading = Some(Reading {
            number,
            at: stamp.cloned(),
            failed: None,
        });
        Some(Read {
            number,
            cluster: key.clone(),
            secret: self.secret.clone(),
            key: self.facts.secret_key().into(),
            failures: 0,
        })
    }

    /// The watch has seen that the Secret is gone. What was read before the watch knew the Secret is gone with it.
    pub(crate) fn secret_gone(&mut self) {
        if let Some(content) = self.content.as_mut().filter(|content| content.at.is_none()) {
            content.kind = ContentKind::Gone;
        }
    }

    /// None if something is not known yet.
    pub(crate) fn verdict(
        &self,
        key: &ObjectKey,
        stamp: Option<&Arc<Stamp>>,
        of_another: bool,
        synced: bool,
        engaged: bool,
    ) -> Option<Verdict<'_>> {
        if let Some(why) = &self.unreadable {
            return Some(Verdict::Broken(format!("Cluster {key}"), why.clone()));
        }
        if !self.ready {
            let State::Waiting(why) = &self.facts.state else {
                return None;
            };
            return Some(Verdict::Waiting(why.clone()));
        }
        let of_secret = || format!("Secret {}, key {:?}", self.secret, self.facts.secret_key());
        let content = self
            .content
            .as_ref()
            .filter(|content| !of_another && content.is_at(stamp));
        match content.map(|content| &content.kind) {
            Some(ContentKind::Good(access)) => Some(Verdict::Good(access)),
            Some(ContentKind::Bad(problem)) => Some(Verdict::Broken(of_secret(), problem.text.clone())),
            Some(ContentKind::Gone) => Some(self.without_secret(of_another, engaged)),
            None => match &self.reading {
                Some(reading) => {
                    let failed = reading.failed.as_ref()?;
                    Some(Verdict::Broken(of_secret(), failed.text.clone()))
                }
                None => synced.then(|| self.without_secret(of_another, engaged)),
            },
        }
    }

    /// The change that says it, and what is said then. None if that was said last.
    pub(crate) fn announcement(
        &self,
        name: ClusterName,
        verdict: Verdict<'_>,
    ) -> Option<(Announced, Change)> {
        let facts = &self.facts;
        let announced = match &verdict {
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
                let nowhere = Access::kubeconfig("", Trust::Untrusted);
                Change::Upsert(facts.spec(name, nowhere).suspended(why))
            }
            Verdict::Broken(object, why) => Change::Broken(BrokenCluster::new(name, object, why)),
        };
        Some((announced, change))
    }

    fn without_secret(&self, of_another: bool, engaged: bool) -> Verdict<'static> {
        let why = match of_another {
            true => format!(
                "Secret {} belongs to another Cluster of this name; it waits for its own",
                self.secret
            ),
            false => {
                let (name, namespace) = (
                    &self.secret.name,
                    self.secret.namespace.as_deref().unwrap_or_default(),
                );
                format!("no Secret {name} with the label {CLUSTER_NAME_LABEL} in namespace {namespace}")
            }
        };
        match engaged {
            true => Verdict::Broken(format!("Secret {}", self.secret), why.into()),
            false => Verdict::Waiting(
                format!("the control plane is initialized, but its kubeconfig is missing: {why}").into(),
            ),
        }
    }
}

impl ContentKind {
    pub(crate) fn good(self) -> Option<EndpointAccess> {
        match self {
            Self::Good(access) => Some(access),
            _ => None,
        }
    }
}

impl Content {
    pub(crate) fn is_at(&self, stamp: Option<&Arc<Stamp>>) -> bool {
        self.at.as_ref() == stamp || Some(&self.of) == stamp
    }
}

impl Facts {
    fn spec(&self, name: ClusterName, access: impl Into<Access>) -> ClusterSpec {
        let mut spec = ClusterSpec::new(name, access.into());
        spec.identity.clone_from(&self.uid);
        spec.labels = map(&self.labels);
        spec.properties = map(&self.properties);
        spec
    }
}
