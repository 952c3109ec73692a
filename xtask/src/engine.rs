//! The container engine that nodes run in: which one answers, and what to do where none does.

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

/// What kind can use, in the order in which it is tried.
const PROGRAMS: [&str; 3] = ["docker", "podman", "nerdctl"];

/// Names the engine for kind, if it is not Docker.
const CHOICE: &str = "KIND_EXPERIMENTAL_PROVIDER";

/// Where Docker's engine is, if not at the default place.
const PLACE: &str = "DOCKER_HOST";

/// The script that tests may end and start the engine with.
const CONTROL: &str = "MCR_ENGINE";

/// An engine that answers is asked for no longer than this.
const PATIENCE: Duration = Duration::from_secs(15);

/// An engine that answers.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    program: String,
    /// For all that talks to it.
    env: Vec<(&'static str, OsString)>,
}

impl Engine {
    /// The one that is named, or that `KIND_EXPERIMENTAL_PROVIDER` names, else the first that answers.
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
        bail!("{}", nobody(&silent))
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

    /// Its program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Its program, to be given arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.env());
        command
    }

    /// What others that use it have to have in their environment.
    pub(crate) fn env(&self) -> impl Iterator<Item = (&'static str, &OsString)> {
        self.env.iter().map(|(name, value)| (*name, value))
    }

    /// A name for a folder with what is known of it.
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

    /// Starts it again if a test had ended it and could not start it any more. Does nothing for one that no test may end.
    pub(crate) fn revive(&self) -> Result<()> {
        if matches!(self.answers(Rules::in_any_case(PATIENCE))?, Answer::Yes) {
            return Ok(());
        }
        let ours = self.env().find(|(name, _)| *name == CONTROL);
        let script = ours
            .map(|(_, script)| script.clone())
            .or_else(|| std::env::var_os(CONTROL));
        if let Some(script) = script {
            eprintln!("engine: starting it again");
            process::must(
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

/// What to do where no engine answers: those that are installed, with what they said.
fn nobody(silent: &[(String, String)]) -> String {
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
        let text = nobody(&[]);
        for word in ["Debian", "docker.io", "Fedora", "macOS", ".ci/engine start"] {
            assert!(text.contains(word), "{text}");
        }
        let error = Engine::find(Some("/nowhere/podman")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/podman is not installed: "), "{error}");
    }
}
