//! The result of one case.

use std::time::Duration;

use crate::process::Ended;

/// The beginning of a line that a skipped test prints.
const SKIPPED: &str = "SKIPPED ";
/// The beginning of a line that a partly skipped test prints.
const IN_PART: &str = "SKIPPED in part";

/// How a case ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Passed,
    /// It was skipped, for this reason.
    Skipped(String),
    Failed(String),
}

/// A case that has ended.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) suite: String,
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    /// The output of the case.
    pub(super) output: String,
    /// The parts that were skipped, and why.
    pub(super) left_out: Vec<String>,
}

impl Case {
    /// Derives the result from a process that has run one test.
    pub(super) fn of(suite: &str, name: &str, ended: &Ended) -> Self {
        let skipped = skipped(&ended.output, name);
        let outcome = match skipped.whole {
            _ if !ended.is_success() => Outcome::Failed(ended.why()),
            Some(why) => Outcome::Skipped(why),
            None => Outcome::Passed,
        };
        Self {
            suite: suite.to_owned(),
            name: name.to_owned(),
            outcome,
            took: ended.took,
            output: ended.output.clone(),
            left_out: skipped.in_part,
        }
    }
}

/// The names of the cases in the output of `--list --format terse`.
pub(super) fn names(listed: &str) -> Vec<String> {
    let name = |line: &str| line.strip_suffix(": test").map(str::to_owned);
    listed.lines().filter_map(name).collect()
}

/// Parses a line that libtest prints when it runs several cases: the case that has ended, and whether it has passed.
pub(super) fn parse_result_line(line: &str) -> Option<(String, bool)> {
    let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    matches!(result, "ok" | "FAILED").then(|| (name.to_owned(), result == "ok"))
}

/// The section of libtest's output with the output of a failed case.
pub(super) fn failed_output(output: &str, name: &str) -> String {
    let begin = format!("---- {name} stdout ----");
    let lines = output.lines().skip_while(|line| *line != begin).skip(1);
    let lines = lines.take_while(|line| {
        *line != "failures:" && !(line.starts_with("---- ") && line.ends_with(" stdout ----"))
    });
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[derive(Debug, Default, PartialEq)]
struct Skipped {
    /// Why the whole case was skipped.
    whole: Option<String>,
    /// The parts that were skipped.
    in_part: Vec<String>,
}

/// What a test has reported as skipped.
fn skipped(output: &str, name: &str) -> Skipped {
    let begin = format!("test {name} ... ");
    let mut skipped = Skipped::default();
    for line in output.lines() {
        // libtest completes its line only after the test has ended.
        let line = line.strip_prefix(&begin).unwrap_or(line);
        if let Some(why) = line.strip_prefix(IN_PART) {
            skipped
                .in_part
                .push(why.trim_start_matches([':', ' ']).to_owned());
        } else if let Some(why) = line.strip_prefix(SKIPPED) {
            // The name of the case is redundant. Any other name is kept in the text.
            let why = match why.split_once(": ") {
                Some((what, why)) if name == what || name.ends_with(&format!("::{what}")) => why,
                _ => why,
            };
            skipped.whole.get_or_insert_with(|| why.to_owned());
        }
    }
    skipped
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::process::End;

    fn judge(end: End, output: &str) -> Outcome {
        let ended = Ended {
            end,
            output: output.to_owned(),
            took: Duration::from_secs(600),
        };
        Case::of("kind", "a::case", &ended).outcome
    }

    fn exit(code: i32) -> End {
        End::Exited(ExitStatus::from_raw(code << 8))
    }

    #[test]
    fn names_are_read_among_whatever_else_is_printed() {
        let listed = "warning: something\na: test\nm::b_1: test\nbench_it: benchmark\n\n: test of what\n";
        assert_eq!(names(listed), ["a", "m::b_1"]);
    }

    #[test]
    fn cases_of_one_process_are_read_with_what_the_failed_ones_printed() {
        let output = "running 2 tests\ntest a ... ok\ntest m::b ... FAILED\n\nfailures:\n\n---- m::b stdout ----\n\nwhy\n\n\
                      ---- m::c stdout ----\nother\n\nfailures:\n    m::b\n\ntest result: FAILED. 1 passed";
        let ended: Vec<_> = output.lines().filter_map(parse_result_line).collect();
        assert_eq!(ended, [("a".to_owned(), true), ("m::b".to_owned(), false)]);
        assert_eq!(failed_output(output, "m::b"), "why");
        assert_eq!(failed_output(output, "m::c"), "other");
        assert_eq!(failed_output(output, "a"), "");
    }

    #[test]
    fn how_the_process_ended_counts_and_not_what_it_printed() {
        assert_eq!(
            judge(exit(0), "test a::case ... FAILED\npanicked"),
            Outcome::Passed
        );
        let failed = Outcome::Failed("exit status: 101".to_owned());
        assert_eq!(
            judge(exit(101), "test a::case ... ok\nSKIPPED a::case: no\n"),
            failed
        );
        let hung = Outcome::Failed("did not end within 600 s".to_owned());
        assert_eq!(judge(End::Deadline, "test result: ok."), hung);
        let aborted = End::Exited(ExitStatus::from_raw(6));
        assert!(matches!(judge(aborted, ""), Outcome::Failed(why) if why.contains("signal: 6")));
    }

    #[test]
    fn one_that_was_skipped_reports_why() {
        let why = Outcome::Skipped("no Pod runs here".to_owned());
        let output = "running 1 test\ntest a::case ... SKIPPED a::case: no Pod runs here\nok\n";
        assert_eq!(judge(exit(0), output), why);
        assert_eq!(
            judge(exit(0), "noise\nSKIPPED: no Pod runs here\n"),
            Outcome::Passed,
            "not in its form"
        );
        assert_eq!(
            judge(exit(0), "SKIPPED case: no Pod runs here\nSKIPPED b: c\n"),
            why
        );
        assert_eq!(
            judge(exit(0), "SKIPPED the Pod: none runs here\n"),
            Outcome::Skipped("the Pod: none runs here".to_owned())
        );
        assert_eq!(judge(exit(0), "it says SKIPPED a::case: no\n"), Outcome::Passed);
    }

    #[test]
    fn what_was_left_out_of_one_that_ran_is_kept() {
        let skipped = skipped(
            "SKIPPED in part the engine's restart: it is not ours\r\nok\n",
            "a",
        );
        assert_eq!(skipped.whole, None);
        assert_eq!(skipped.in_part, ["the engine's restart: it is not ours"]);
    }
}
