//! Finds the container engine for kind's nodes, or reports what to do if there is none.

mod own;

pub(crate) use own::OwnEngine;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use sha2::{Digest, Sha256};

use crate::assets::hex;
use crate::process::{self, Rules};

/// The engines that kind supports, in the order in which they are tried.
const PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// The variable that tells kind which engine to use, if it is not Docker.
const CHOICE: &str = "KIND_EXPERIMENTAL_PROVIDER";

/// The variable with the address of Docker's engine, if it is not the default.
const PLACE: &str = "DOCKER_HOST";

/// The variable with the script by which tests may stop and start the engine.
const CONTROL: &str = "MCR_ENGINE";

/// How long the check whether an engine answers may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// A container engine that answers.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    program: String,
    /// Environment variables for all programs that use the engine.
    env: Vec<(&'static str, OsString)>,
}

impl Engine {
    /// The engine with this name, otherwise the one in `KIND_EXPERIMENTAL_PROVIDER`, otherwise the first that answers.
    pub(crate) fn find(named: Option<&str>) -> Result<Self> {
        let chosen = named
            .map(str::to_owned)
            .or_else(|| std::env::var(CHOICE).ok().filter(|choice| !choice.is_empty()));
        let programs = match &chosen {
            Some(program) => vec![program.as_str()],
            None => PROGRAMS.to_vec(),
        };
        let mut silent = Vec::new();
        for program in programs {
            let engine = Self::new(program, Vec::new());
            match engine.answers(Rules::within(PATIENCE))? {
                Answer::Yes => return Ok(engine),
                Answer::NotInstalled if chosen.is_none() => {}
                Answer::NotInstalled => {
                    bail!(
                        "{program} is not installed: install it, or choose another with --engine or {CHOICE}"
                    )
                }
                Answer::No(why) => silent.push((program.to_owned(), why)),
            }
        }
        bail!("{}", no_engine_answers(&silent))
    }

    fn new(program: &str, mut env: Vec<(&'static str, OsString)>) -> Self {
        let name = Path::new(program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        if name != "docker" {
            env.push((CHOICE, name.into_owned().into()));
        }
        Self {
            program: program.to_owned(),
            env,
        }
    }

    /// The name of the engine's program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// A command that runs the engine's program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.env());
        command
    }

    /// Environment variables for other programs that use the engine.
    pub(crate) fn env(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.env.iter().map(|(name, value)| (*name, value))
    }

    /// A folder name that identifies the engine.
    pub(crate) fn folder(&self) -> String {
        let place = self.env().find(|(name, _)| *name == PLACE);
        let place = place
            .map(|(_, value)| value.clone())
            .or_else(|| std::env::var_os(PLACE));
        let name = Path::new(&self.program)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        match place.filter(|place| !place.is_empty()) {
            Some(place) => {
                let hash = hex(&Sha256::digest(place.to_string_lossy().as_bytes()));
                format!("{name}-{}", &hash[..8])
            }
            None => name.into_owned(),
        }
    }

    /// Starts the engine again if a test has stopped it and did not start it. Does nothing if tests may not stop the
    /// engine.
    pub(crate) fn restart_if_stopped(&self) -> Result<()> {
        if matches!(self.answers(Rules::in_any_case(PATIENCE))?, Answer::Yes) {
            return Ok(());
        }
        let ours = self.env().find(|(name, _)| *name == CONTROL);
        let script = ours
            .map(|(_, script)| script.clone())
            .or_else(|| std::env::var_os(CONTROL));
        if let Some(script) = script {
            eprintln!("engine: starting it again");
            process::run_checked(
                Command::new(script).arg("start"),
                Rules::in_any_case(PATIENCE * 6),
            )?;
        }
        Ok(())
    }

    fn answers(&self, rules: Rules) -> Result<Answer> {
        let ended = match process::run(self.command().args(["ps", "-q"]), rules) {
            Ok(ended) => ended,
            Err(error) => {
                let missing = error
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|error| error.kind() == ErrorKind::NotFound);
                return if missing {
                    Ok(Answer::NotInstalled)
                } else {
                    Err(error)
                };
            }
        };
        if ended.is_success() {
            return Ok(Answer::Yes);
        }
        let announced = ended.output.trim().trim_end_matches(['?', '.']);
        Ok(Answer::No(if announced.is_empty() {
            ended.why()
        } else {
            announced.to_owned()
        }))
    }
}

enum Answer {
    Yes,
    NotInstalled,
    No(String),
}

/// The error if no engine answers: the installed programs with their messages, and what to do.
fn no_engine_answers(silent: &[(String, String)]) -> String {
    let mut text = String::from("no container engine answers, and kind's nodes run in one.");
    for (program, why) in silent {
        text.push_str(&format!("\n  {program}: {why}"));
    }
    if silent.is_empty() {
        text.push_str(
            "\n  Debian, Ubuntu: apt-get install docker.io\n  Fedora: dnf install moby-engine && systemctl start docker\n  \
             macOS: Docker Desktop, or brew install colima docker && colima start",
        );
    } else {
        text.push_str(
            "\n  Start one of these, set DOCKER_HOST to where it is, or join the group that may use it",
        );
    }
    text.push_str(
        "\n  As root on Debian without an init system, also in a container: export \"$(.ci/engine start)\" starts one",
    );
    text
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Programs(tempfile::TempDir);

    impl Programs {
        fn add(&self, name: &str, script: &str) -> std::io::Result<String> {
            let path = self.0.path().join(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
            Ok(path.display().to_string())
        }
    }

    #[test]
    fn one_that_answers_is_taken_and_named_to_kind() {
        let programs = Programs(tempfile::tempdir().unwrap());
        let docker = Engine::find(Some(&programs.add("docker", "exit 0").unwrap())).unwrap();
        assert_eq!(docker.env().find(|(name, _)| *name == CHOICE), None);
        let podman = Engine::find(Some(&programs.add("podman", "exit 0").unwrap())).unwrap();
        assert_eq!(podman.env().next(), Some((CHOICE, &"podman".into())));
        assert_ne!(docker.folder(), podman.folder());
    }

    #[test]
    fn one_that_does_not_answer_is_quoted() {
        let programs = Programs(tempfile::tempdir().unwrap());
        let refuses = "echo 'Cannot connect. Is it running?' >&2; exit 1";
        let silent = programs.add("docker", refuses).unwrap();
        let error = Engine::find(Some(&silent)).unwrap_err().to_string();
        assert!(
            error.contains("docker: Cannot connect. Is it running\n"),
            "{error}"
        );
        assert!(!error.contains("apt-get"), "it is installed: {error}");
    }

    #[test]
    fn where_there_is_none_it_is_reported_what_to_install() {
        let text = no_engine_answers(&[]);
        for word in ["Debian", "docker.io", "Fedora", "macOS", ".ci/engine start"] {
            assert!(text.contains(word), "{text}");
        }
        let error = Engine::find(Some("/nowhere/podman")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/podman is not installed: "), "{error}");
    }
}
