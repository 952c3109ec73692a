//! The one runner of all suites: subjects take turns within a run, and a row has the medians of its runs.

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
    /// How often each is measured.
    pub runs: usize,
    /// Which subjects.
    pub subjects: Vec<Subject>,
    /// How many clusters, if not the suite's own number.
    pub clusters: Option<usize>,
    /// How many objects in each.
    pub objects: Option<usize>,
    /// Whether `fleet`, `kinds` and `work` run on the simulator.
    pub sim: bool,
    /// The kubeconfig of clusters that someone brings.
    pub kubeconfig: Option<PathBuf>,
    /// How many threads the subjects of `fleet` and `update` work with, if not one for each core.
    pub threads: Option<NonZeroUsize>,
    /// How many seconds `churn` takes.
    pub seconds: Option<usize>,
    /// How long after the sync memory is read, if not the usual time.
    pub idle: Option<Duration>,
}

/// After this time a subject has freed its memory of the sync, and is idle.
pub const REST: Duration = Duration::from_secs(3);

/// One call of the command: its options, its programs, and the receiver of rows.
pub struct Session<'a> {
    /// The options.
    pub options: Options,
    /// The programs.
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
    /// Measures these parties in turns, as often as asked for. Each run starts with another one, so that none always follows the
    /// same one. Returns the medians.
    pub(crate) async fn rounds<P: Clone>(
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

    /// Measures the subjects that fit, in turns. `row` is their row without the subject. A subject that is not there has a row with
    /// the reason.
    pub(crate) async fn subjects(
        &mut self,
        row: Row,
        fit: &[Subject],
        mut measure: impl AsyncFnMut(&Session<'_>, Turn) -> Result<Vec<Row>>,
    ) -> Result<Vec<Row>> {
        let asked = self.options.subjects.iter().copied();
        let subjects: Vec<Subject> = asked.filter(|subject| fit.contains(subject)).collect();
        self.rounds(&subjects, async |session, run, subject| {
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

    /// Measures what mcr does alone, in a process of its own, with an allocator that counts if `heap` is set.
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

    /// The variant of a row, which names the number of threads where it was asked for.
    pub(crate) fn variant(&self, variant: &str) -> String {
        let threads = self.options.threads.map(|threads| format!("threads {threads}"));
        let variant = Some(variant.to_owned()).filter(|variant| !variant.is_empty());
        let parts: Vec<String> = variant.into_iter().chain(threads).collect();
        parts.join(", ")
    }

    /// Passes on the medians of the runs of the same, in the order of the subjects and then in that in which they came first.
    fn report(&mut self, runs: &[Row]) -> Vec<Row> {
        let mut same: Vec<Vec<Row>> = Vec::new();
        for row in runs {
            let like = same
                .iter_mut()
                .find(|rows| rows.iter().any(|first| first.is_like(row)));
            match like {
                Some(rows) => rows.push(row.clone()),
                None => same.push(vec![row.clone()]),
            }
        }
        let mut rows: Vec<Row> = same.iter().filter_map(|rows| Row::medians(rows)).collect();
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
        let measured = session.rounds(&["a", "b"], async |_, run, party| {
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
