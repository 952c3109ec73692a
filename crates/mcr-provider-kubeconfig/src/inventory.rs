//! The clusters that the hub's Secrets describe, as they were announced. It decides what to announce next. No I/O.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use mcr_core::{BrokenCluster, Change, ClusterName, EndpointAccess, ObjectKey, internal::Notice};

use crate::secret::{Described, Problem, Rules, SecretFacts};

/// The last announcement of each Secret's cluster.
#[derive(Debug)]
pub(crate) struct Inventory {
    rules: Arc<Rules>,
    announced: HashMap<ObjectKey, Announced>,
}

#[derive(Debug)]
enum Announced {
    Good(Arc<Described>),
    Bad(Problem),
}

/// The changes and the notice that follow from an event.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) notice: Option<Notice>,
}

impl Inventory {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            announced: HashMap::new(),
        }
    }

    /// A Secret was created or changed. Blocks while the kubeconfig is parsed.
    pub(crate) fn applied(&mut self, key: &ObjectKey, secret: SecretFacts) -> Outcome {
        let uid = secret.uid;
        let described = match secret.described {
            Ok(described) => described,
            Err(problem) => return self.bad(key, uid, problem),
        };
        if matches!(self.announced.get(key), Some(Announced::Good(announced)) if *announced == described) {
            // Taken in any case, so that the text is not kept.
            described.take_text();
            return Outcome::default();
        }
        match self.rules.parse(&described) {
            Some(Ok(access)) => self.good(key, uid, described, access),
            Some(Err(problem)) => self.bad(key, uid, problem),
            // The watch reports each change of the facts once, so the text has not been taken before.
            None => Outcome::default(),
        }
    }

    fn good(
        &mut self,
        key: &ObjectKey,
        uid: Arc<str>,
        described: Arc<Described>,
        access: EndpointAccess,
    ) -> Outcome {
        let Some(name) = self.name(key) else {
            return Outcome::default();
        };
        let spec = described.spec(name, access);
        self.announced.insert(key.clone(), Announced::Good(described));
        Outcome {
            changes: vec![Change::Upsert(spec)],
            notice: Some(Notice::well(key, uid)),
        }
    }

    fn bad(&mut self, key: &ObjectKey, uid: Arc<str>, problem: Problem) -> Outcome {
        let Some(name) = self.name(key) else {
            return Outcome::default();
        };
        let notice = Some(Notice::broken(key, uid, problem.public.clone()));
        let mut changes = Vec::new();
        if !matches!(self.announced.get(key), Some(Announced::Bad(announced)) if *announced == problem) {
            if problem.nothing {
                // Also if this discovery has announced no cluster: an earlier discovery may have announced one.
                changes.push(Change::Remove(name.clone()));
            }
            let broken = BrokenCluster::new(name, self.rules.object(key), &problem.text);
            changes.push(Change::Broken(broken));
            self.announced.insert(key.clone(), Announced::Bad(problem));
        }
        Outcome { changes, notice }
    }

    /// A Secret was deleted, or lost the label.
    pub(crate) fn deleted(&mut self, key: &ObjectKey) -> Outcome {
        let changes = match self.announced.entry(key.clone()) {
            Entry::Vacant(_) => Vec::new(),
            Entry::Occupied(announced) => {
                announced.remove();
                self.name(key).map(Change::Remove).into_iter().collect()
            }
        };
        Outcome {
            changes,
            notice: Some(Notice::gone(key)),
        }
    }

    fn name(&self, key: &ObjectKey) -> Option<ClusterName> {
        let name = self.rules.name(key);
        if let Err(error) = &name {
            // No API server has such Secrets.
            tracing::warn!(secret = %key, %error, "left out: the Secret's name can't be a cluster's");
        }
        name.ok()
    }
}

#[cfg(test)]
mod tests;
