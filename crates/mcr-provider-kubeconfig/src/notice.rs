//! Notices about Secrets, and the problems that were reported already. No I/O.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use mcr_core::{ObjectKey, internal::lock};

/// The state of a Secret, for a Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Arc<str>,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Broken(Arc<str>),
    Well,
    Gone,
}

impl Notice {
    pub(crate) fn broken(key: &ObjectKey, uid: Arc<str>, text: Arc<str>) -> Self {
        Self::new(key, uid, Kind::Broken(text))
    }

    pub(crate) fn well(key: &ObjectKey, uid: Arc<str>) -> Self {
        Self::new(key, uid, Kind::Well)
    }

    pub(crate) fn gone(key: &ObjectKey) -> Self {
        Self::new(key, Arc::default(), Kind::Gone)
    }

    fn new(key: &ObjectKey, uid: Arc<str>, kind: Kind) -> Self {
        Self {
            key: key.clone(),
            uid,
            kind,
        }
    }
}

/// The problem that was last reported on each broken Secret. It outlives a discovery, so that the next discovery does not
/// report it again.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<ObjectKey, ReportedProblem>>);

#[derive(Debug, PartialEq, Eq)]
struct ReportedProblem {
    uid: Arc<str>,
    problem: Arc<str>,
}

impl Ledger {
    /// Whether the notice is news. From then on its problem counts as reported.
    pub(crate) fn is_news(&self, notice: &Notice) -> bool {
        let mut reported = lock(&self.0);
        match &notice.kind {
            Kind::Broken(problem) => {
                let now = ReportedProblem {
                    uid: notice.uid.clone(),
                    problem: problem.clone(),
                };
                if reported.get(&notice.key) == Some(&now) {
                    return false;
                }
                reported.insert(notice.key.clone(), now);
                true
            }
            // A Secret that was never broken is no news, nor is another Secret with the name of a broken one.
            Kind::Well => reported
                .remove(&notice.key)
                .is_some_and(|reported| reported.uid == notice.uid),
            Kind::Gone => {
                reported.remove(&notice.key);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_told_once_and_so_is_its_end() {
        let (ledger, key) = (Ledger::default(), ObjectKey::namespaced("fleet", "a"));
        let broken = |uid: &str, text: &str| ledger.is_news(&Notice::broken(&key, uid.into(), text.into()));
        let well = |uid: &str| ledger.is_news(&Notice::well(&key, uid.into()));
        assert!(!well("1"), "always was");
        assert!(broken("1", "no key"));
        assert!(!broken("1", "no key"));
        assert!(broken("1", "no YAML"));
        assert!(well("1"));
        assert!(!well("1"));
        assert!(broken("1", "no YAML"), "again");
        assert!(broken("2", "no YAML"), "another Secret of that name");
        assert!(!ledger.is_news(&Notice::gone(&key)));
        assert!(broken("2", "no YAML"), "nothing is kept of what is gone");
        assert!(!well("3"));
        assert!(lock(&ledger.0).is_empty());
    }
}
