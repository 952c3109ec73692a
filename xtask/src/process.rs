//! Running a program that may hang, or that nobody wants any more.

use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::workspace::show;

/// How long a program has after it was asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// How long output is waited for after its program ended: one that it started may hold on to it.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What may be done to a program.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// It is ended then.
    pub(crate) deadline: Duration,
    /// Whether it is ended when somebody interrupts this task. What cleans up is not.
    pub(crate) interruptible: bool,
}

impl Rules {
    /// For work.
    pub(crate) const fn within(deadline: Duration) -> Self {
        Self {
            deadline,
            interruptible: true,
        }
    }

    /// For cleaning up.
    pub(crate) const fn in_any_case(deadline: Duration) -> Self {
        Self {
            deadline,
            interruptible: false,
        }
    }
}

/// Why a program is not running any more.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was ended at its deadline.
    Deadline,
    /// It was ended, as this task is to end.
    Interrupted,
}

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) end: End,
    /// Its output and errors, in the order in which they were written.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// Whether it ended by itself and was content.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.end, End::Exited(status) if status.success())
    }

    /// What went wrong, in words.
    pub(crate) fn why(&self) -> String {
        match self.end {
            End::Exited(status) => format!("{status}"),
            End::Deadline => format!("did not end within {:.0} s", self.took.as_secs_f64()),
            End::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// Runs a program to its end and returns what it printed. It gets no input.
pub(crate) fn run(command: &mut Command, rules: Rules) -> Result<Ended> {
    listen(command, rules, true, |_| {})
}

/// Runs a program to its end; each line of stdout goes to `line` as well. Its stderr is shown.
pub(crate) fn listen_to_stdout(command: &mut Command, rules: Rules, line: impl FnMut(&str)) -> Result<Ended> {
    listen(command, rules, false, line)
}

/// Runs a program that has to succeed; the error shows what it printed.
pub(crate) fn must(command: &mut Command, rules: Rules) -> Result<String> {
    let ended = run(command, rules)?;
    if !ended.is_success() {
        bail!(
            "`{}`: {}\n{}",
            show(command),
            ended.why(),
            ended.output.trim_end()
        );
    }
    Ok(ended.output)
}

fn listen(command: &mut Command, rules: Rules, errors: bool, mut line: impl FnMut(&str)) -> Result<Ended> {
    if rules.interruptible {
        interrupt::check()?;
    }
    // One pipe for both, so that nothing changes its place.
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command.stdin(Stdio::null());
    if errors {
        command.stderr(writer.try_clone()?);
    }
    command.stdout(writer);
    apart(command);
    let started = Instant::now();
    let spawned = command.spawn();
    // They would keep the pipe open.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = spawned.with_context(|| format!("starting `{}`", show(command)))?;

    let lines = read(reader);
    let mut output = String::new();
    let mut take = |text: String| {
        line(text.trim_end_matches('\n'));
        output.push_str(&text);
    };
    let unwanted = || rules.interruptible && interrupt::received();
    let end = loop {
        match lines.recv_timeout(Duration::from_millis(20)) {
            Ok(text) => {
                take(text);
                // One that never stops talking is ended all the same.
                if started.elapsed() < rules.deadline && !unwanted() {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // It closed its output, which is no end yet.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(10)),
        }
        if let Some(status) = child.try_wait()? {
            break End::Exited(status);
        }
        if started.elapsed() >= rules.deadline {
            end(&mut child)?;
            break End::Deadline;
        }
        if unwanted() {
            end(&mut child)?;
            break End::Interrupted;
        }
    };
    let took = started.elapsed();
    let patience = Instant::now() + LAST_WORDS;
    while let Ok(text) = lines.recv_timeout(patience.saturating_duration_since(Instant::now())) {
        take(text);
    }
    Ok(Ended { end, output, took })
}

/// Lines as they come, each with its end, whatever bytes are in them.
fn read(reader: PipeReader) -> Receiver<String> {
    // Bounded: who talks faster than it is read has to wait.
    let (sender, lines) = sync_channel(1024);
    // Ends with the pipe, or with whoever listens.
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// A Ctrl-C in the terminal goes to all programs of this process's group. This one decides what ends, and when.
#[cfg(unix)]
fn apart(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn apart(_: &mut Command) {}

/// Ends a program and those that it started.
#[cfg(unix)]
fn end(child: &mut Child) -> Result<()> {
    use rustix::process::{Pid, Signal, kill_process_group};
    let group = Pid::from_child(child);
    let _ = kill_process_group(group, Signal::TERM);
    let patience = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(())
}

#[cfg(not(unix))]
fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_errors_keep_their_order() {
        let ended = run(
            &mut shell("echo 1; echo 2 >&2; echo 3; printf 4"),
            Rules::within(Duration::from_secs(60)),
        )
        .unwrap();
        assert!(ended.is_success());
        assert_eq!(ended.output, "1\n2\n3\n4");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_those_it_started() {
        let started = Instant::now();
        let ended = run(
            &mut shell("trap '' TERM; echo before; sleep 300 & sleep 300; sleep 300"),
            Rules::within(Duration::from_millis(300)),
        )
        .unwrap();
        assert_eq!((ended.end, ended.output.as_str()), (End::Deadline, "before\n"));
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn one_that_never_stops_talking_is_ended_too() {
        let ended = run(&mut shell("yes"), Rules::within(Duration::from_millis(200))).unwrap();
        assert_eq!(ended.end, End::Deadline);
    }

    #[test]
    fn one_that_leaves_another_behind_has_ended() {
        let ended = run(
            &mut shell("sleep 20 & echo done"),
            Rules::within(Duration::from_secs(15)),
        )
        .unwrap();
        assert!(ended.is_success(), "{:?}", ended.end);
        assert_eq!(ended.output, "done\n");
    }

    #[test]
    fn what_must_succeed_shows_its_words() {
        let failed = must(
            &mut shell("echo why >&2; exit 3"),
            Rules::within(Duration::from_secs(60)),
        );
        let error = failed.unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.contains("why"),
            "{error}"
        );
    }
}
