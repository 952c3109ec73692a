//! What was said of each Secret, and what is to be said now. No I/O.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use mcr_core::{BrokenCluster, Change, ClusterName, Object, ObjectKey};

use crate::{
    notice::Notice,
    secret::{Described, Problem, Rules, Secret},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Book {
    rules: Arc<Rules>,
    said: HashMap<ObjectKey, Said>,
}

#[derive(Debug)]
enum Said {
    Good(Described),
    Bad(Problem),
}

/// What follows from an event.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) changes: Vec<Change>,
    pub(crate) notice: Option<Notice>,
}

impl Book {
    pub(crate) fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            said: HashMap::new(),
        }
    }

    /// A Secret is there and looks like this. Takes as long as its kubeconfig takes to be read.
    pub(crate) fn applied(&mut self, object: &Object) -> Outcome {
        let key = object.key();
        match object.decode::<Secret>() {
            Ok(secret) => self.secret(key, secret),
            Err(error) => self.bad(key, "", Problem::unusable(error.to_string())),
        }
    }

    fn secret(&mut self, key: &ObjectKey, secret: Secret) -> Outcome {
        let uid = secret.uid().to_owned();
        let described = match self.rules.describe(key, secret) {
            Ok(described) => described,
            Err(problem) => return self.bad(key, &uid, problem),
        };
        if matches!(self.said.get(key), Some(Said::Good(said)) if *said == described) {
            return Outcome::default();
        }
        match self.rules.check(&described) {
            Ok(()) => self.good(key, &uid, described),
            Err(problem) => self.bad(key, &uid, problem),
        }
    }

    fn good(&mut self, key: &ObjectKey, uid: &str, described: Described) -> Outcome {
        let Some(name) = self.name(key) else {
            return Outcome::default();
        };
        let spec = described.spec(name, self.rules.trust);
        self.said.insert(key.clone(), Said::Good(described));
        Outcome {
            changes: vec![Change::Upsert(spec)],
            notice: Some(Notice::well(key, uid)),
        }
    }

    fn bad(&mut self, key: &ObjectKey, uid: &str, problem: Problem) -> Outcome {
        let Some(name) = self.name(key) else {
            return Outcome::default();
        };
        let notice = Some(Notice::broken(key, uid, problem.public.clone()));
        let mut changes = Vec::new();
        if !matches!(self.said.get(key), Some(Said::Bad(said)) if *said == problem) {
            if problem.nothing {
                // It is said even if nothing was before: an earlier discovery may have found a cluster here.
                changes.push(Change::Remove(name.clone()));
            }
            let broken = BrokenCluster::new(name, self.rules.object(key), &problem.text);
            changes.push(Change::Broken(broken));
            self.said.insert(key.clone(), Said::Bad(problem));
        }
        Outcome { changes, notice }
    }

    /// A Secret is gone, or no longer has the label.
    pub(crate) fn deleted(&mut self, key: &ObjectKey) -> Outcome {
        let changes = match self.said.entry(key.clone()) {
            Entry::Vacant(_) => Vec::new(),
            Entry::Occupied(said) => {
                said.remove();
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
