//! One run of a plugin.

use std::{io, panic::AssertUnwindSafe, sync::OnceLock};

use futures::FutureExt;
use tokio::{process::Command, time::timeout};

use super::{
    config::PluginConfig,
    places::Place,
    protocol,
    service::{MAX_ANSWER, PluginService},
};
use crate::{
    credential::Credential,
    error::quote,
    process::{self, Activity, Limits, RunError},
    unprintable::reason,
};

/// Why a run failed. All callers that waited for the run get a clone.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) message: String,
    /// See [`CredentialError::permanent`](crate::CredentialError::permanent).
    pub(super) permanent: bool,
}

/// Runs a plugin in a place. To drop the future kills the plugin and its children. Children that outlive the plugin are left
/// alone.
pub(super) async fn run(config: &PluginConfig, place: &Place) -> Result<Credential, Failure> {
    if let Some(service) = &config.service {
        return call(service, config, place).await;
    }
    let name = quote(&config.command.to_string_lossy());
    let fail = |message| failed(config, message);
    let by_hand = "run it by hand with the same arguments to see why (its output is not shown since it may hold credentials)";

    // The ID of its process, once there is one.
    let (id, mut activity) = (OnceLock::new(), Activity::default());
    let started = |process| {
        let _ = id.set(process);
    };
    let waits = || id.get().copied().flatten().is_none_or(|id| activity.waits(id));
    // Its error output is not kept.
    let limits = Limits {
        deadline: config.deadline,
        stdout: MAX_ANSWER as u64,
        stderr: 0,
    };
    let mut command = command(config);
    let ended = place
        .hold(process::run(&mut command, limits, started), waits)
        .await;
    match ended {
        Err(RunError::Start(error)) => Err(match error.kind() {
            io::ErrorKind::NotFound => {
                let hint = config
                    .install_hint
                    .as_deref()
                    .map_or_else(|| "install it, or correct the command or PATH".to_owned(), reason);
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
        }),
        Err(RunError::TimedOut) => Err(fail(format!(
            "did not finish within {:?} and was killed; {by_hand}, or raise AccessPolicy::plugin_deadline",
            config.deadline
        ))),
        Err(RunError::TooMuchOutput) => Err(fail(
            "printed more than 1 MiB and was killed; it does not seem to be a credential plugin".into(),
        )),
        Err(RunError::Io(error)) => Err(fail(format!(
            "ran, but its output or exit status can't be read: {}; {by_hand}",
            error.kind()
        ))),
        Ok(ended) if !ended.status.success() => Err(fail(format!("failed ({}); {by_hand}", ended.status))),
        Ok(ended) => protocol::output(&ended.stdout, config.version).map_err(|problem| {
            fail(format!(
                "{problem}; check that it is the right program and version, and its arguments"
            ))
        }),
    }
}

/// Calls the service of a plugin in a place. It uses no time of the processor here while it is waited for.
async fn call(service: &PluginService, config: &PluginConfig, place: &Place) -> Result<Credential, Failure> {
    let call = AssertUnwindSafe(async { service.call(protocol::input(config)).await }).catch_unwind();
    let fail = |message| Err(failed(config, message));
    let answer = match place.hold(timeout(config.deadline, call), || true).await {
        Err(_) => {
            return fail(format!(
                "did not answer within {:?}; check its service, or raise AccessPolicy::plugin_deadline",
                config.deadline
            ));
        }
        Ok(Err(_)) => {
            let text = "panicked, which is a fault in its code; what this process has written to its standard error says where";
            return fail(text.to_owned());
        }
        Ok(Ok(Err(error))) => return fail(format!("failed: {}", reason(&error.to_string()))),
        Ok(Ok(Ok(answer))) if answer.len() > MAX_ANSWER => {
            return fail("answered with more than 1 MiB; it does not seem to be a credential plugin".into());
        }
        Ok(Ok(Ok(answer))) => answer,
    };
    protocol::output(&answer, config.version).or_else(|problem| {
        // The problems of programs, which print their answer.
        let problem = problem.replacen("printed", "answered with", 1);
        fail(format!(
            "{problem}; check that it is the right service and version"
        ))
    })
}

fn failed(config: &PluginConfig, message: String) -> Failure {
    let name = quote(&config.command.to_string_lossy());
    Failure {
        message: format!("exec plugin {name} {message}"),
        permanent: false,
    }
}

fn command(config: &PluginConfig) -> Command {
    let mut command = Command::new(&config.command);
    command
        .args(&config.args)
        .envs(config.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", protocol::input(config));
    command
}
