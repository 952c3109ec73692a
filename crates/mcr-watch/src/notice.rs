//! Notices about Secrets with kubeconfigs, and the problems that were reported already. No I/O.

use std::{collections::HashMap, sync::Arc};

use mcr_store::ObjectKey;
use parking_lot::Mutex;

/// The state of a Secret, for a Kubernetes event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The Secret.
    pub key: ObjectKey,
    /// Its UID, or an empty text.
    pub uid: Arc<str>,
    /// Its state.
    pub kind: NoticeKind,
}

/// The state of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoticeKind {
    /// Its kubeconfig can't be used, with the reason.
    Broken(Arc<str>),
    /// Its kubeconfig can be used.
    Well,
    /// It does not exist any more.
    Gone,
}

impl Notice {
    /// The kubeconfig of the Secret can't be used. Everybody who may read events can read the text.
    pub fn broken(key: &ObjectKey, uid: Arc<str>, text: Arc<str>) -> Self {
        Self::new(key, uid, NoticeKind::Broken(text))
    }

    /// The kubeconfig of the Secret can be used.
    pub fn well(key: &ObjectKey, uid: Arc<str>) -> Self {
        Self::new(key, uid, NoticeKind::Well)
    }

    /// The Secret does not exist any more.
    pub fn gone(key: &ObjectKey) -> Self {
        Self::new(key, Arc::default(), NoticeKind::Gone)
    }

    fn new(key: &ObjectKey, uid: Arc<str>, kind: NoticeKind) -> Self {
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
pub struct Ledger(Mutex<HashMap<ObjectKey, ReportedProblem>>);

#[derive(Debug, PartialEq, Eq)]
struct ReportedProblem {
    uid: Arc<str>,
    problem: Arc<str>,
}

impl Ledger {
    /// Whether the notice is news. From then on its problem counts as reported.
    pub(crate) fn is_news(&self, notice: &Notice) -> bool {
        let mut reported = self.0.lock();
        match &notice.kind {
            NoticeKind::Broken(problem) => {
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
            NoticeKind::Well => reported
                .remove(&notice.key)
                .is_some_and(|reported| reported.uid == notice.uid),
            NoticeKind::Gone => {
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
    fn each_problem_is_reported_once_and_so_is_its_end() {
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
        assert!(ledger.0.lock().is_empty());
    }
}
