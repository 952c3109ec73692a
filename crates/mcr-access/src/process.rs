//! Child processes that are killed with their children.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, ChildStdout, Command},
    time::timeout,
};

/// How long to read output after the program has ended. Its children can keep the pipe open.
const READ_AFTER_EXIT: Duration = Duration::from_millis(500);

/// A running program, the leader of a process group. Dropping it before its end kills the whole group. Children that outlive
/// the program are left alone.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Its output.
    pub stdout: Option<ChildStdout>,
    /// Its error output, as `stdout`.
    pub stderr: Option<ChildStderr>,
}

/// The limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long the program may run.
    pub deadline: Duration,
    /// How many bytes it may print.
    pub stdout: u64,
    /// How many bytes of its error output are kept.
    pub stderr: u64,
}

/// How a program ended that ended by itself.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its output.
    pub stdout: Vec<u8>,
    /// The beginning of its error output.
    pub stderr: Vec<u8>,
}

/// Why a program did not end by itself.
#[derive(Debug)]
pub enum RunError {
    /// It can't be started.
    Start(io::Error),
    /// It ran for too long, and was killed.
    TimedOut,
    /// It printed too much, and was killed.
    TooMuchOutput,
    /// Its output or its exit status can't be read.
    Io(io::Error),
}

/// Runs a program to its end, within limits. `started` receives the ID of its process.
///
/// Dropping the future kills the program and its children. Children that outlive the program are left alone.
///
/// # Errors
/// If it does not end by itself.
pub async fn run(
    command: &mut Command,
    limits: Limits,
    started: impl FnOnce(Option<u32>),
) -> Result<Ended, RunError> {
    let mut running = start(command).map_err(RunError::Start)?;
    started(running.id());
    let ended = timeout(limits.deadline, running.finish(limits.stdout, limits.stderr)).await;
    ended.unwrap_or(Err(RunError::TimedOut))
}

/// Starts a program, with pipes for its output and nothing to read.
///
/// # Errors
/// If it can't be started.
pub fn start(command: &mut Command) -> io::Result<Running> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn()?;
    Ok(Running {
        stdout: child.stdout.take(),
        stderr: child.stderr.take(),
        child,
    })
}

impl Running {
    /// The ID of the process. None after its end.
    fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end of the program, which may print `stdout` bytes. Of its error output `stderr` bytes are kept.
    async fn finish(&mut self, stdout: u64, stderr: u64) -> Result<Ended, RunError> {
        let (pipe, error_pipe) = (self.stdout.take(), self.stderr.take());
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let status = {
            let collect = collect(pipe, stdout, &mut output);
            let begin = begin(error_pipe, stderr, &mut errors);
            let mut pipes = pin!(async { futures::future::join(collect, begin).await.0 });
            tokio::select! {
                status = self.child.wait() => {
                    if let Ok(collected) = timeout(READ_AFTER_EXIT, pipes).await {
                        collected?;
                    }
                    status
                }
                // A program can close both pipes long before it ends.
                collected = &mut pipes => {
                    collected?;
                    self.child.wait().await
                }
            }
        };
        Ok(Ended {
            status: status.map_err(RunError::Io)?,
            stdout: output,
            stderr: errors,
        })
    }
}

async fn collect(pipe: Option<ChildStdout>, most: u64, into: &mut Vec<u8>) -> Result<(), RunError> {
    let Some(pipe) = pipe else { return Ok(()) };
    let read = pipe.take(most + 1).read_to_end(into).await;
    if read.map_err(RunError::Io)? as u64 > most {
        return Err(RunError::TooMuchOutput);
    }
    Ok(())
}

/// Keeps the beginning of an output. Reads the rest too, or the program would block on a full pipe.
pub async fn begin(pipe: Option<ChildStderr>, most: u64, into: &mut Vec<u8>) {
    let Some(mut pipe) = pipe else { return };
    if (&mut pipe).take(most).read_to_end(into).await.is_ok() {
        tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await.ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(unix)]
        // There is no ID after the leader was waited for: the system may have given it to another group.
        if let Some(group) = self
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // An error means that no process of the group is left.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}

/// Whether a process and its children wait, rather than work. Keeps what it saw last.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    ticks: u64,
}

impl Activity {
    /// Looks again. Where processes can't be looked at, they wait.
    pub(crate) fn waits(&mut self, process: u32) -> bool {
        /// A tenth of a second.
        const FEW: u64 = 10;
        /// A program can have children without end.
        const MOST: usize = 32;
        let (mut ticks, mut works) = (0, false);
        let mut processes = vec![process];
        for index in 0..MOST {
            let Some(process) = processes.get(index) else {
                break;
            };
            let path = format!("/proc/{process}");
            let Ok(stat) = std::fs::read_to_string(format!("{path}/stat")) else {
                continue;
            };
            // The name before the bracket can hold anything.
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
            works |= matches!(fields.first(), Some(&("R" | "D")));
            // User and system time of the process, and of children that have ended.
            let times = fields.iter().skip(11).take(4);
            ticks += times.filter_map(|time| time.parse::<u64>().ok()).sum::<u64>();
            let children = std::fs::read_to_string(format!("{path}/task/{process}/children"));
            processes.extend(
                children
                    .iter()
                    .flat_map(|ids| ids.split(' '))
                    .filter_map(|id| id.parse::<u32>().ok()),
            );
        }
        let before = std::mem::replace(&mut self.ticks, ticks);
        !works && ticks.saturating_sub(before) <= FEW
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_waits_if_it_and_its_children_do() {
        for (script, waits) in [
            ("exec sleep 1000", true),
            ("sleep 1000 & wait", true),
            ("while :; do :; done", false),
            ("(while :; do :; done) & wait", false),
        ] {
            let program = start(Command::new("sh").args(["-c", script])).unwrap();
            let (id, mut activity) = (program.id().unwrap(), Activity::default());
            // It takes a while until they are started.
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                if activity.waits(id) == waits {
                    break;
                }
            }
            for _ in 0..3 {
                assert_eq!(activity.waits(id), waits, "{script}");
            }
        }
    }
}
