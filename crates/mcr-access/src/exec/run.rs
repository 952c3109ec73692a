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

use super::{plan::Plan, protocol};
use crate::{Credential, error::quote};

/// More than any credential needs.
const MOST: u64 = 1 << 20;
/// How long to wait for output after the plugin ended; its children may hold the pipe open.
const LINGER: Duration = Duration::from_millis(500);
/// A fleet of thousands of clusters starts up without starting thousands of programs at once.
const AT_ONCE: usize = 8;

/// Why a run failed. Shared by all who waited for it.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) permanent: bool,
}

/// Runs a plugin. Dropping the future kills it.
pub(super) async fn run(plan: &Plan) -> Result<Credential, Failure> {
    static RUNNING: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(AT_ONCE));
    let name = quote(&plan.command.to_string_lossy());
    let fail = |message: String| Failure {
        message: format!("exec plugin {name} {message}"),
        permanent: false,
    };
    let by_hand = "run it by hand with the same arguments to see why (its output is not shown since it may hold credentials)";

    let _permit = RUNNING
        .acquire()
        .await
        .map_err(|_| fail("can't be run any more".into()))?;
    let mut running = start(plan).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let hint = plan.install_hint.as_deref().map_or_else(
                || "install it, or correct the command or PATH".to_owned(),
                shorten,
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
        kind => fail(format!("can't be started: {kind}")),
    })?;
    let ended = tokio::time::timeout(plan.deadline, running.finish()).await;
    drop(running);
    match ended {
        Err(_) => Err(fail(format!(
            "did not finish within {:?} and was killed; {by_hand}, or raise AccessPolicy::plugin_deadline",
            plan.deadline
        ))),
        Ok(Err(End::TooMuch)) => Err(fail(
            "printed more than 1 MiB and was killed; it does not seem to be a credential plugin".into(),
        )),
        Ok(Err(End::Io(kind))) => Err(fail(format!("could not be waited for: {kind}"))),
        Ok(Ok((status, _))) if !status.success() => Err(fail(format!("failed ({status}); {by_hand}"))),
        Ok(Ok((_, output))) => protocol::output(&output, plan.version).map_err(|problem| {
            fail(format!(
                "{problem}; check that it is the right program and version, and its arguments"
            ))
        }),
    }
}

/// A hint comes from a kubeconfig: one line is enough.
fn shorten(hint: &str) -> String {
    hint.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(300)
        .collect::<String>()
        .trim()
        .to_owned()
}

fn start(plan: &Plan) -> io::Result<Running> {
    let mut command = Command::new(&plan.command);
    command
        .args(&plan.args)
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", protocol::input(plan))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // An own group, so that what the plugin starts can be killed with it.
    #[cfg(unix)]
    command.process_group(0);
    let child = command.spawn()?;
    Ok(Running {
        group: child.id(),
        child,
    })
}

struct Running {
    child: Child,
    group: Option<u32>,
}

enum End {
    TooMuch,
    Io(io::ErrorKind),
}

impl Running {
    async fn finish(&mut self) -> Result<(ExitStatus, Vec<u8>), End> {
        let stdout = self.child.stdout.take();
        let mut stderr = self.child.stderr.take();
        // Read, or a plugin that complains a lot would block; then forgotten.
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
                status = self.child.wait() => {
                    if let Ok(collected) = tokio::time::timeout(LINGER, pipes).await {
                        collected?;
                    }
                    status
                }
                // Both pipes can be closed long before the plugin ends.
                collected = &mut pipes => {
                    collected?;
                    self.child.wait().await
                }
            }
        };
        let status = status.map_err(|error| End::Io(error.kind()))?;
        Ok((status, output))
    }
}

async fn collect(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) -> Result<(), End> {
    let Some(pipe) = pipe else { return Ok(()) };
    pipe.take(MOST + 1)
        .read_to_end(into)
        .await
        .map_err(|error| End::Io(error.kind()))?;
    if into.len() as u64 > MOST {
        Err(End::TooMuch)
    } else {
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self
            .group
            .and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?))
        {
            // Fails if nobody of the group is left, which is what is wanted.
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
        }
    }
}
