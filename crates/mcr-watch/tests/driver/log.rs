//! Writes down what a watch reports. The tests of mcr-core use it, too.

#![allow(dead_code, reason = "each crate uses its part")]

use std::{collections::BTreeMap, panic::Location, sync::Mutex, time::Duration};

use mcr_store::ObjectChange;
use mcr_watch::{ChangeSink, WatchStatus};
use tokio::time::Instant;

/// What is waited for comes at once, unless the machine is busy; where a bug is planted it may never come.
const PATIENCE: Duration = Duration::from_secs(60);

/// `+name` for new, `~name` for changed, `-name` for deleted objects. What a real API server has by itself is left out.
#[derive(Default)]
pub(crate) struct Log {
    lines: Mutex<Vec<(String, Instant)>>,
    statuses: Mutex<Vec<WatchStatus>>,
}

impl ChangeSink for Log {
    fn changed(&self, change: &ObjectChange) {
        let key = change.key().unwrap();
        if key.namespace.as_deref() == Some("kube-system") || key.name.starts_with("kube-") {
            return;
        }
        let sign = match (&change.old, &change.new) {
            (None, _) => '+',
            (Some(_), Some(_)) => '~',
            (Some(_), None) => '-',
        };
        let line = format!("{sign}{}", key.name);
        self.lines.lock().unwrap().push((line, Instant::now()));
    }

    fn status_changed(&self, status: &WatchStatus) {
        self.statuses.lock().unwrap().push(status.clone());
    }
}

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().map(|(line, _)| line.clone()).collect()
    }

    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines();
        lines.sort();
        lines
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.count(line) > 0
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|known| *known == line).count()
    }

    /// When a line was first written.
    pub(crate) fn time_of(&self, line: &str) -> Instant {
        let lines = self.lines.lock().unwrap();
        lines.iter().find(|(known, _)| known == line).unwrap().1
    }

    pub(crate) fn statuses(&self) -> Vec<WatchStatus> {
        self.statuses.lock().unwrap().clone()
    }

    /// The texts of the problems, in order.
    pub(crate) fn problems(&self) -> Vec<String> {
        let statuses = self.statuses().into_iter();
        let problems = statuses.filter_map(|status| status.problem);
        problems.map(|problem| problem.error.to_string()).collect()
    }

    /// Waits until exactly these lines were written, for each object in this order. (Who comes after the list receives what is
    /// there in no order.)
    #[track_caller]
    pub(crate) fn becomes(&self, lines: &[&str]) -> impl Future<Output = ()> {
        let (caller, wanted) = (Location::caller(), by_object(lines));
        async move {
            let started = Instant::now();
            while by_object(&self.lines()) != wanted {
                let (waited, seen) = (started.elapsed(), self.lines());
                assert!(waited < PATIENCE, "{seen:?} instead of {wanted:?} ({caller})");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Like [`becomes`](Self::becomes), but they must be there already.
    #[track_caller]
    pub(crate) fn is(&self, lines: &[&str]) {
        assert_eq!(by_object(&self.lines()), by_object(lines));
    }
}

fn by_object(lines: &[impl AsRef<str>]) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::<String, String>::new();
    for line in lines {
        let (sign, name) = line.as_ref().split_at(1);
        objects.entry(name.to_owned()).or_default().push_str(sign);
    }
    objects
}
