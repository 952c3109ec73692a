//! The common parts of all suites: runs in which the subjects take turns, and rows.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use anyhow::{Result, bail};

use crate::{
    alone::{Case, Figures},
    driver::{Programs, Running, Subject},
    row::Row,
    subject::message::Message,
};

/// The options of one call, which are the same for all suites.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How often each is measured.
    pub runs: usize,
    /// Which subjects.
    pub subjects: Vec<Subject>,
    /// How many clusters, if not the suite's own number.
    pub clusters: Option<usize>,
    /// How many objects in each.
    pub objects: Option<usize>,
    /// Whether `fleet` and `work` run on the simulator.
    pub sim: bool,
    /// Clusters that someone brings.
    pub kubeconfig: Option<PathBuf>,
    /// How many threads the subjects of `fleet` and `update` work with, if not one for each core.
    pub threads: Option<NonZeroUsize>,
    /// How many seconds `churn` takes.
    pub seconds: Option<usize>,
    /// Programs that suite `kcp` measures beside mcr.
    pub brought: Vec<PathBuf>,
    /// How long after the sync memory is looked at, if not the usual time.
    pub idle: Option<Duration>,
}

impl Options {
    /// How long after the sync memory is looked at: a subject has freed its memory of the sync by then.
    pub fn idle(&self) -> Duration {
        self.idle.unwrap_or(2 * REST)
    }
}

/// After this time a subject has freed its memory of the sync, and is idle.
pub(super) const REST: Duration = Duration::from_secs(3);

/// One call of the command: its options, its programs, and the receiver of rows.
pub struct Session<'a> {
    /// The options.
    pub options: Options,
    /// The programs.
    pub programs: Programs,
    /// Is told of each run on stderr, and of each row.
    pub on_row: &'a mut dyn FnMut(&Row),
}

impl Session<'_> {
    /// The subjects of a run that these suites can be run with, in turns.
    pub(super) fn order_of(&self, run: usize, fit: impl Fn(Subject) -> bool) -> Vec<Subject> {
        self.order(run)
            .into_iter()
            .filter(|subject| fit(*subject))
            .collect()
    }

    /// The variant of a row, which names the number of threads where it was asked for.
    pub(super) fn variant(&self, variant: &str) -> String {
        let threads = self.options.threads.map(|threads| format!("threads {threads}"));
        let parts = [
            Some(variant.to_owned()).filter(|variant| !variant.is_empty()),
            threads,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Measures what mcr does alone, in a process of its own.
    pub(crate) async fn alone(&self, case: Case, heap: bool, args: &[String]) -> Result<Figures> {
        let program = if heap {
            self.programs.heap()?
        } else {
            self.programs.bench.clone()
        };
        let command = [&["alone".to_owned(), case.name().to_owned()], args].concat();
        let mut process = Running::start(case.name(), &program, &command)?;
        match process.next(Duration::from_secs(300)).await? {
            Message::Figures { figures } => Ok(figures),
            other => bail!("{} said {other:?}", case.name()),
        }
    }

    /// Prints a run to stderr, and adds it to `runs`.
    pub(super) fn ran(&self, run: usize, row: Row, runs: &mut Vec<Row>) {
        let line = serde_json::to_string(&row).unwrap_or_default();
        eprintln!("run {} of {}: {line}", run + 1, self.options.runs);
        runs.push(row);
    }

    /// The subjects of a run in their order. Each run starts with another one, so that no subject always follows the
    /// same one.
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

    /// Tells the rows: medians of the runs of the same, in the order in which they came first.
    pub(super) fn report(&mut self, runs: &[Row]) -> Vec<Row> {
        let mut same: Vec<Vec<Row>> = Vec::new();
        for row in runs {
            match same
                .iter_mut()
                .find(|rows| rows.first().is_some_and(|first| first.is_like(row)))
            {
                Some(rows) => rows.push(row.clone()),
                None => same.push(vec![row.clone()]),
            }
        }
        let mut rows: Vec<Row> = same.iter().filter_map(|rows| Row::medians(rows)).collect();
        let place = |row: &Row| {
            self.options
                .subjects
                .iter()
                .position(|subject| subject.name() == row.subject)
        };
        rows.sort_by_key(place);
        rows.iter().for_each(|row| (self.on_row)(row));
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn rows_report_how_many_threads_were_asked_for() {
        let variant = |threads, variant: &str| {
            let session = Session {
                options: Options {
                    threads: NonZeroUsize::new(threads),
                    ..Options::default()
                },
                programs: Programs {
                    bench: Path::new("bench").to_owned(),
                    go: None,
                },
                on_row: &mut |_| {},
            };
            session.variant(variant)
        };
        assert_eq!([variant(0, ""), variant(0, "sim")], ["", "sim"]);
        assert_eq!(
            [variant(2, ""), variant(2, "sim")],
            ["threads 2", "sim, threads 2"]
        );
    }
}
