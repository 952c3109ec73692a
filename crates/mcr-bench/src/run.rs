//! Runs every suite. In each run the subjects take turns. A row that is reported has the medians of all runs.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use anyhow::{Context, Result};

use crate::{
    alone::{Case, Figures},
    driver::{Job, Programs, Running, Subject},
    row::Row,
};

/// The options of one call, which are the same for all suites.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The number of runs. Each run measures every subject once.
    pub runs: usize,
    /// The subjects to measure.
    pub subjects: Vec<Subject>,
    /// The number of clusters. `None`: the number that the suite chooses.
    pub clusters: Option<usize>,
    /// The number of objects in each cluster. `None`: the number that the suite chooses.
    pub objects: Option<usize>,
    /// Whether `fleet`, `kinds` and `work` run on the simulator.
    pub sim: bool,
    /// The kubeconfig of the caller's own clusters. `None`: the bench starts its own servers.
    pub kubeconfig: Option<PathBuf>,
    /// The number of threads of a subject in `fleet` and `update`. `None`: one thread for each core.
    pub threads: Option<NonZeroUsize>,
    /// The duration of `churn`, of the events of `capacity`, and of the outage of `wan`, in seconds.
    pub seconds: Option<usize>,
    /// The pause between the end of the sync and the reading of memory. `None`: the usual pause.
    pub idle: Option<Duration>,
}

/// The pause after the sync. A subject needs it to free the memory that only the sync uses.
pub const REST: Duration = Duration::from_secs(3);

/// One call of `mcr-bench`: its options, its programs, and the receiver of rows.
pub struct Session<'a> {
    /// The options of the call.
    pub options: Options,
    /// The programs of the subjects.
    pub programs: Programs,
    /// Receives each row.
    pub on_row: &'a mut dyn FnMut(&Row),
}

/// One subject's turn in one run.
pub(crate) struct Turn {
    /// The number of the run.
    pub(crate) run: usize,
    /// The subject.
    pub(crate) subject: Subject,
    /// The row of the subject, without figures.
    pub(crate) row: Row,
}

impl Session<'_> {
    /// Measures every party once in each run. Returns the medians.
    ///
    /// The first party of a run comes last in the next run. Otherwise the same party would always be measured first.
    pub(crate) async fn take_turns<P: Clone>(
        &mut self,
        parties: &[P],
        mut measure: impl AsyncFnMut(&Session<'_>, usize, P) -> Result<Vec<Row>>,
    ) -> Result<Vec<Row>> {
        let mut runs = Vec::new();
        for run in 0..self.options.runs {
            let mut order = parties.to_vec();
            order.rotate_left(run % parties.len().max(1));
            for party in order {
                for row in measure(self, run, party).await? {
                    let line = serde_json::to_string(&row).unwrap_or_default();
                    eprintln!("run {} of {}: {line}", run + 1, self.options.runs);
                    runs.push(row);
                }
            }
        }
        Ok(self.report(&runs))
    }

    /// Measures those of the requested subjects that are in `fit`, in turns. `row` is the row of every subject, without
    /// its name. A subject whose program is not built gets a row with the reason.
    pub(crate) async fn subjects(
        &mut self,
        row: Row,
        fit: &[Subject],
        mut measure: impl AsyncFnMut(&Session<'_>, Turn) -> Result<Vec<Row>>,
    ) -> Result<Vec<Row>> {
        let requested = self.options.subjects.iter().copied();
        let subjects: Vec<Subject> = requested.filter(|subject| fit.contains(subject)).collect();
        self.take_turns(&subjects, async |session, run, subject| {
            let mut row = row.clone();
            row.subject = subject.name();
            if subject.is_go() && session.programs.go.is_none() {
                return Ok(vec![row.skipped("no Go toolchain: the Go program was not built")]);
            }
            let what = format!("{} {}", row.suite, row.subject);
            let turn = Turn { run, subject, row };
            measure(session, turn).await.with_context(|| what)
        })
        .await
    }

    /// Starts a subject and waits until it has seen every object.
    pub(crate) async fn start(&self, subject: Subject, job: &Job<'_>, limit: Duration) -> Result<Running> {
        let mut process = Running::subject(subject, &self.programs, job)?;
        process.synced(limit).await?;
        Ok(process)
    }

    /// Measures one part of mcr, without a subject, in a new process. With `heap`, that process counts its allocations.
    pub(crate) async fn alone(&self, case: Case, heap: bool, args: &[String]) -> Result<Figures> {
        let program = if heap {
            self.programs.beside("mcr-bench-heap")?
        } else {
            self.programs.bench.clone()
        };
        let name = crate::names::name(&case);
        let command = [&["alone".to_owned(), name.clone()], args].concat();
        let mut process = Running::start(&name, &program, &command)?;
        process.figures(Duration::from_secs(300)).await
    }

    /// The variant of a row. If the call sets the number of threads, the variant names it.
    pub(crate) fn variant(&self, variant: &str) -> String {
        let threads = self.options.threads.map(|threads| format!("threads {threads}"));
        let variant = Some(variant.to_owned()).filter(|variant| !variant.is_empty());
        let parts: Vec<String> = variant.into_iter().chain(threads).collect();
        parts.join(", ")
    }

    /// Gives the receiver one row for all rows that differ only in the run: it has their medians. Rows are in the order
    /// of the subjects. Rows of one subject are in the order of their first run.
    fn report(&mut self, runs: &[Row]) -> Vec<Row> {
        let mut groups: Vec<Vec<Row>> = Vec::new();
        for row in runs {
            let group = groups
                .iter_mut()
                .find(|rows| rows.iter().any(|first| first.is_like(row)));
            match group {
                Some(rows) => rows.push(row.clone()),
                None => groups.push(vec![row.clone()]),
            }
        }
        let mut rows: Vec<Row> = groups.iter().filter_map(|rows| Row::medians(rows)).collect();
        let subjects = &self.options.subjects;
        rows.sort_by_key(|row| subjects.iter().position(|subject| subject.name() == row.subject));
        rows.iter().for_each(|row| (self.on_row)(row));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Figure;

    #[tokio::test]
    async fn parties_take_turns_and_rows_are_medians_that_name_the_threads() {
        let mut rows = Vec::new();
        let options = Options {
            runs: 3,
            threads: NonZeroUsize::new(2),
            ..Options::default()
        };
        let mut session = Session {
            options,
            programs: Programs::find(None).unwrap(),
            on_row: &mut |row| rows.push(row.clone()),
        };
        let variants = ["", "sim"].map(|of| session.variant(of));
        assert_eq!(variants, ["threads 2", "sim, threads 2"]);
        let mut turns = Vec::new();
        let measured = session.take_turns(&["a", "b"], async |_, run, party| {
            turns.push(party);
            Ok(vec![
                Row::new("queue", party, 1, 1).with(Figure::Value, run as f64),
            ])
        });
        let measured = measured.await.unwrap();
        assert_eq!(turns, ["a", "b", "b", "a", "a", "b"]);
        for (row, party) in measured.iter().zip(["a", "b"]) {
            assert_eq!(
                (row.subject.as_str(), row.runs, row.get(Figure::Value)),
                (party, 3, Some(1.0))
            );
        }
        assert_eq!(rows, measured);
    }
}
