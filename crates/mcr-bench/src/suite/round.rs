//! What all suites have in common: runs in which the subjects take turns, and rows.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use crate::{
    driver::{Subject, who::Programs},
    row::Row,
};

/// What is the same for all suites of one call.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each is measured.
    pub runs: usize,
    /// Which subjects.
    pub subjects: Vec<Subject>,
    /// How many clusters, if not the suite's own number.
    pub clusters: Option<usize>,
    /// How many objects in each.
    pub objects: Option<usize>,
    /// Whether on the simulator.
    pub sim: bool,
    /// Clusters that someone brings.
    pub kubeconfig: Option<PathBuf>,
    /// How long after the sync memory is looked at, and idle CPU counted.
    pub idle: Duration,
}

/// One call of the command: its options, where the programs are, and whom rows are told.
pub struct Session<'a> {
    /// The options.
    pub options: Options,
    /// The programs.
    pub programs: Programs,
    /// Is told of each run on stderr, and of each row.
    pub told: &'a mut dyn FnMut(&Row),
}

impl Session<'_> {
    /// The subjects of a run: each time another one is first, so that none has always the same before it.
    pub(super) fn order(&self, run: usize) -> Vec<Subject> {
        let mut subjects = self.options.subjects.clone();
        let first = run % subjects.len().max(1);
        subjects.rotate_left(first);
        subjects
    }

    /// Why a subject can't be measured.
    pub(super) fn missing(&self, subject: Subject) -> Option<&'static str> {
        let missing = subject.is_go() && self.programs.go.is_none();
        missing.then_some("no Go toolchain: the Go program was not built")
    }

    /// Tells the rows: medians of the runs of each subject, in the order of the subjects.
    pub(super) fn tell(&mut self, runs: &[Row]) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for subject in &self.options.subjects {
            let own: Vec<Row> = runs
                .iter()
                .filter(|row| row.subject == subject.name())
                .cloned()
                .collect();
            rows.extend(Row::medians(&own));
        }
        rows.iter().for_each(|row| (self.told)(row));
        Ok(rows)
    }
}
