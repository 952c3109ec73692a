//! A file in which the processes of a test write when they reconcile, by a clock that is the same for all of them.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// In microseconds.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000 + u64::try_from(time.tv_nsec).unwrap() / 1_000
}

#[derive(Clone)]
pub(crate) struct Journal(PathBuf);

/// What a process did, and when.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) process: String,
    /// A number for a reconcile that runs, or another word.
    pub(crate) what: String,
    /// In microseconds.
    pub(crate) at: u64,
}

impl Journal {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Adds an entry with the time of now.
    pub(crate) fn write(&self, process: &str, what: &str) {
        self.write_at(process, what, now());
    }

    /// Adds an entry. The file is opened to append, so lines of two processes do not mix.
    pub(crate) fn write_at(&self, process: &str, what: &str, at: u64) {
        let file = OpenOptions::new().create(true).append(true).open(&self.0);
        let line = format!("{process} {what} {at}\n");
        file.unwrap().write_all(line.as_bytes()).unwrap();
    }

    pub(crate) fn read(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let entry = |line: &str| {
            let mut words = line.split(' ');
            Some(Entry {
                process: words.next()?.to_owned(),
                what: words.next()?.to_owned(),
                at: words.next()?.parse().ok()?,
            })
        };
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .filter_map(|line| entry(line.trim_end()))
            .collect()
    }

    /// Waits for an entry of a process after `after` that fits, and returns its time.
    pub(crate) async fn wait(
        &self,
        process: &str,
        what: &str,
        after: u64,
        fits: impl Fn(&str) -> bool,
    ) -> u64 {
        let find = || {
            let mut entries = self.read().into_iter();
            entries.find(|entry| entry.process == process && entry.at > after && fits(&entry.what))
        };
        let text = format!("{process}: {what} in {}", self.0.display());
        mcr_testkit::waiting::eventually(Duration::from_secs(90), text, find)
            .await
            .at
    }

    pub(crate) async fn reconciles(&self, process: &str, after: u64) -> u64 {
        self.wait(process, "reconciles", after, is_run).await
    }

    /// The time of the last entry, or zero.
    pub(crate) fn last(&self) -> u64 {
        self.read().iter().map(|entry| entry.at).max().unwrap_or_default()
    }

    /// Panics if one process reconciled between the first and the last entry of a reconcile of another one.
    pub(crate) fn assert_never_two_at_once(&self) {
        let entries = self.read().into_iter().filter(|entry| is_run(&entry.what));
        let entries: Vec<Entry> = entries.collect();
        let mut runs: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
        for Entry { process, what, at } in &entries {
            let run = runs.entry((process, what)).or_insert((*at, *at));
            *run = (run.0.min(*at), run.1.max(*at));
        }
        for ((process, what), (begin, end)) in runs {
            let is_inside = |of: &&Entry| of.process != process && (begin..=end).contains(&of.at);
            let other = entries.iter().find(is_inside);
            assert_eq!(
                other, None,
                "during reconcile {what} of {process}, from {begin} to {end}"
            );
        }
    }
}

fn is_run(what: &str) -> bool {
    what.parse::<u64>().is_ok()
}
