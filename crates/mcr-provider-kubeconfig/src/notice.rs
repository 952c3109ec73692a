//! What is to be told on Secrets, and what was told already. No I/O.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcr_core::ObjectKey;

/// How a Secret is doing.
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
    pub(crate) fn broken(key: &ObjectKey, uid: &str, text: Arc<str>) -> Self {
        Self::new(key, uid, Kind::Broken(text))
    }

    pub(crate) fn well(key: &ObjectKey, uid: &str) -> Self {
        Self::new(key, uid, Kind::Well)
    }

    pub(crate) fn gone(key: &ObjectKey) -> Self {
        Self::new(key, "", Kind::Gone)
    }

    fn new(key: &ObjectKey, uid: &str, kind: Kind) -> Self {
        Self {
            key: key.clone(),
            uid: uid.into(),
            kind,
        }
    }
}

/// What the Secrets that are not well were told. Outlives a discovery, so that the next one does not repeat it.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<HashMap<ObjectKey, Told>>);

#[derive(Debug, PartialEq, Eq)]
struct Told {
    uid: Arc<str>,
    problem: Arc<str>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Told>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is news, which is then taken for told.
    pub(crate) fn is_news(&self, notice: &Notice) -> bool {
        let mut told = self.lock();
        match &notice.kind {
            Kind::Broken(problem) => {
                let now = Told {
                    uid: notice.uid.clone(),
                    problem: problem.clone(),
                };
                if told.get(&notice.key) == Some(&now) {
                    return false;
                }
                told.insert(notice.key.clone(), now);
                true
            }
            // Of a Secret that was always well there is nothing to tell, nor of one that only has the old one's name.
            Kind::Well => told
                .remove(&notice.key)
                .is_some_and(|told| told.uid == notice.uid),
            Kind::Gone => {
                told.remove(&notice.key);
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
        let broken = |uid: &str, text: &str| ledger.is_news(&Notice::broken(&key, uid, text.into()));
        let well = |uid: &str| ledger.is_news(&Notice::well(&key, uid));
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
        assert!(ledger.lock().is_empty());
    }
}
