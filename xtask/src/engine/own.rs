//! A container engine only for this run, started by `.ci/engine`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{CONTROL, Engine, PLACE};
use crate::process::{self, Rules};
use crate::workspace;

/// The start may include the installation of Docker.
const START: Duration = Duration::from_secs(600);
const STOP: Duration = Duration::from_secs(180);

/// The engine that `.ci/engine` starts. If this process has started the engine, dropping this value stops the engine
/// and removes everything in it.
pub(crate) struct OwnEngine {
    engine: Engine,
    /// Whether this process has started the engine.
    ours: bool,
}

impl OwnEngine {
    /// Starts an engine, or uses the one that `.ci/engine` has started before.
    pub(crate) fn start() -> Result<Self> {
        if !cfg!(target_os = "linux") {
            bail!("`.ci/engine` starts one on Linux only");
        }
        let was_running =
            process::run(script().arg("status"), Rules::within(Duration::from_secs(30)))?.is_success();
        let started = process::run(script().arg("start"), Rules::within(START))?;
        if !started.is_success() {
            eprint!("{}", started.output);
            // The last line of the output contains the reason.
            let last = started.output.lines().rfind(|line| !line.trim().is_empty());
            bail!("{}", last.map_or_else(|| started.why(), str::to_owned));
        }
        let place = started
            .output
            .lines()
            .find_map(|line| line.strip_prefix("DOCKER_HOST="))
            .context("`.ci/engine start` does not print where the engine is")?;
        eprintln!("engine: {}, by .ci/engine", place);
        let mut env = vec![(PLACE, place.into())];
        // Tests may stop and start this engine, because nobody else uses it.
        if !was_running {
            env.push((CONTROL, path().into()));
        }
        Ok(Self {
            engine: Engine::new("docker", env),
            ours: !was_running,
        })
    }

    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        if !self.ours {
            return;
        }
        if let Err(error) = process::run_checked(script().arg("stop"), Rules::in_any_case(STOP)) {
            eprintln!("the engine is not stopped; `.ci/engine stop` does it: {error:#}");
        }
    }
}

fn path() -> PathBuf {
    workspace::root().join(".ci/engine")
}

fn script() -> Command {
    Command::new(path())
}
