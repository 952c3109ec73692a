//! Runs programs that may hang, or that must end when this task is interrupted.

use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt;
use crate::workspace::show;

/// How long a program may continue after it was asked to end.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait for output after the program has ended. A child process may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The limits of a program.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// When the program is ended.
    pub(crate) deadline: Duration,
    /// Whether the program is ended when this task is interrupted. Programs that clean up are not.
    pub(crate) interruptible: bool,
}

impl Rules {
    /// Rules for work.
    pub(crate) const fn within(deadline: Duration) -> Self {
        Self {
            deadline,
            interruptible: true,
        }
    }

    /// Rules for programs that clean up.
    pub(crate) const fn in_any_case(deadline: Duration) -> Self {
        Self {
            deadline,
            interruptible: false,
        }
    }
}

/// How a program has ended.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    /// It has exited by itself.
    Exited(ExitStatus),
    /// It was ended at its deadline.
    Deadline,
    /// It was ended because this task was interrupted.
    Interrupted,
}

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) end: End,
    /// The program's stdout and stderr, in the order in which they were written.
    pub(crate) output: String,
    pub(crate) took: Duration,
}

impl Ended {
    /// Whether the program has exited successfully by itself.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.end, End::Exited(status) if status.success())
    }

    /// What went wrong, as text for people.
    pub(crate) fn why(&self) -> String {
        match self.end {
            End::Exited(status) => format!("{status}"),
            End::Deadline => format!("did not end within {:.0} s", self.took.as_secs_f64()),
            End::Interrupted => "interrupted".to_owned(),
        }
    }
}

/// Runs a program until it ends, and returns its output. The program gets no input.
pub(crate) fn run(command: &mut Command, rules: Rules) -> Result<Ended> {
    run_with_lines(command, rules, true, |_| {})
}

/// Runs a program until it ends. Calls `line` for each line of stdout. stderr is shown.
pub(crate) fn listen_to_stdout(command: &mut Command, rules: Rules, line: impl FnMut(&str)) -> Result<Ended> {
    run_with_lines(command, rules, false, line)
}

/// Runs a program that must succeed. The error contains its output.
pub(crate) fn run_checked(command: &mut Command, rules: Rules) -> Result<String> {
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

fn run_with_lines(
    command: &mut Command,
    rules: Rules,
    errors: bool,
    mut line: impl FnMut(&str),
) -> Result<Ended> {
    if rules.interruptible {
        interrupt::check()?;
    }
    // One pipe for both, so that the order of lines is kept.
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    command.stdin(Stdio::null());
    if errors {
        command.stderr(writer.try_clone()?);
    }
    command.stdout(writer);
    in_own_group(command);
    let started = Instant::now();
    let spawned = command.spawn();
    // The command holds copies of the pipe, which would keep it open.
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
                // The deadline also applies to a program that never stops printing.
                if started.elapsed() < rules.deadline && !unwanted() {
                    continue;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The program has closed its output, but still runs.
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

/// Reads lines, each with its end. The bytes may be invalid UTF-8.
fn read(reader: PipeReader) -> Receiver<String> {
    // Bounded, so that a program that prints faster than it is read must wait.
    let (sender, lines) = sync_channel(1024);
    // The thread ends when the pipe is closed or the receiver is dropped.
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

/// A Ctrl-C in the terminal would end all programs in this process group. With a group of its own, this task decides
/// what ends and when.
#[cfg(unix)]
fn in_own_group(command: &mut Command) {
    std::os::unix::process::CommandExt::process_group(command, 0);
}

#[cfg(not(unix))]
fn in_own_group(_: &mut Command) {}

/// Ends a program and its child processes.
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
        let failed = run_checked(
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
