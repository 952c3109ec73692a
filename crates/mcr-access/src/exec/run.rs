//! One run of a plugin.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::LazyLock,
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    sync::Semaphore,
};

use super::{config::PluginConfig, protocol};
use crate::{credential::Credential, error::quote, unprintable::reason};

/// The longest output that is read, in bytes. No credential is that long.
const MAX_OUTPUT: u64 = 1 << 20;
/// How long to read output after the plugin has ended. Its children can keep the pipe open.
const READ_AFTER_EXIT: Duration = Duration::from_millis(500);
/// The limit of plugins that run at the same time, so that the start of a large fleet does not start thousands of
/// programs.
const MAX_RUNNING: usize = 8;

/// Why a run failed. All callers that waited for the run get a clone.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) message: String,
    /// See [`CredentialError::permanent`](crate::CredentialError::permanent).
    pub(super) permanent: bool,
}

/// Runs a plugin. To drop the future kills the plugin and its children. Children that outlive the plugin are left alone.
pub(super) async fn run(config: &PluginConfig) -> Result<Credential, Failure> {
    static RUNNING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(MAX_RUNNING));
    let name = quote(&config.command.to_string_lossy());
    let fail = |message: String| Failure {
        message: format!("exec plugin {name} {message}"),
        permanent: false,
    };
    let by_hand = "run it by hand with the same arguments to see why (its output is not shown since it may hold credentials)";

    let _permit = RUNNING
        .acquire()
        .await
        .map_err(|_| fail("can't run: this process is ending".into()))?;
    let mut running = start(config).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let hint = config.install_hint.as_deref().map_or_else(
                || "install it, or correct the command or PATH".to_owned(),
                reason,
            );
            Failure {
                message: format!("exec plugin {name} is not there: {hint}"),
                permanent: true,
            }
        }
        io::ErrorKind::PermissionDenied => Failure {
            message: format!(
                "exec plugin {name} can't be started: permission denied; make it executable for this user"
            ),
            permanent: true,
        },
        kind => fail(format!(
            "can't be started: {kind}; check that it is a program for this system, and the limits of this process"
        )),
    })?;
    let ended = tokio::time::timeout(config.deadline, running.finish()).await;
    drop(running);
    match ended {
        Err(_) => Err(fail(format!(
            "did not finish within {:?} and was killed; {by_hand}, or raise AccessPolicy::plugin_deadline",
            config.deadline
        ))),
        Ok(Err(RunError::TooMuchOutput)) => Err(fail(
            "printed more than 1 MiB and was killed; it does not seem to be a credential plugin".into(),
        )),
        Ok(Err(RunError::Io(kind))) => Err(fail(format!(
            "ran, but its output or exit status can't be read: {kind}; {by_hand}"
        ))),
        Ok(Ok((status, _))) if !status.success() => Err(fail(format!("failed ({status}); {by_hand}"))),
        Ok(Ok((_, output))) => protocol::output(&output, config.version).map_err(|problem| {
            fail(format!(
                "{problem}; check that it is the right program and version, and its arguments"
            ))
        }),
    }
}

fn start(config: &PluginConfig) -> io::Result<Running> {
    let mut command = Command::new(&config.command);
    command
        .args(&config.args)
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", protocol::input(config))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A process group of its own, so that the plugin's children can be killed with it.
    #[cfg(unix)]
    command.process_group(0);
    command.spawn().map(Running)
}

/// A running plugin, the leader of a process group. Dropping it before its end kills the whole group.
struct Running(Child);

enum RunError {
    TooMuchOutput,
    Io(io::ErrorKind),
}

impl Running {
    /// Waits for the end of the plugin. Returns its exit status and output.
    async fn finish(&mut self) -> Result<(ExitStatus, Vec<u8>), RunError> {
        let stdout = self.0.stdout.take();
        let mut stderr = self.0.stderr.take();
        // Without a reader, a plugin with much output on stderr would block.
        let discard = async {
            if let Some(stderr) = &mut stderr {
                tokio::io::copy(stderr, &mut tokio::io::sink()).await.ok();
            }
        };
        let mut output = Vec::new();
        let status = {
            let collect = collect(stdout, &mut output);
            let mut pipes = pin!(async { futures::future::join(collect, discard).await.0 });
            tokio::select! {
                status = self.0.wait() => {
                    if let Ok(collected) = tokio::time::timeout(READ_AFTER_EXIT, pipes).await {
                        collected?;
                    }
                    status
                }
                // A plugin can close both pipes long before it ends.
                collected = &mut pipes => {
                    collected?;
                    self.0.wait().await
                }
            }
        };
        let status = status.map_err(|error| RunError::Io(error.kind()))?;
        Ok((status, output))
    }
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> Result<(), RunError> {
    let Some(pipe) = pipe else { return Ok(()) };
    pipe.take(MAX_OUTPUT + 1)
        .read_to_end(into)
        .await
        .map_err(|error| RunError::Io(error.kind()))?;
    if into.len() as u64 > MAX_OUTPUT {
        Err(RunError::TooMuchOutput)
    } else {
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(unix)]
        // There is no ID after the leader was waited for: the system may have given it to another group.
        if let Some(group) = self
            .0
            .id()
            .and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // An error means that no process of the group is left.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}
