//! Errors of the options and of the engine.

use std::time::Duration;

/// The error of building a [`KindProvider`](crate::KindProvider): an invalid option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KindError {
    /// An interval or deadline is zero.
    #[error("{0} is zero, which would keep a processor busy all the time; give at least a millisecond")]
    Zero(&'static str),
    /// The program is an empty path.
    #[error("the program is an empty path; give the engine's command line program, such as /usr/bin/docker")]
    Program,
}

/// The error of a query to the container engine. Every discovery that fails ends with this error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// No engine is installed.
    #[error(
        "none of docker, nerdctl and podman is on PATH; install one of them, or name its program with `program`"
    )]
    NoneInstalled,
    /// The program of the chosen engine is not installed.
    #[error("{program} is not installed ({chosen}); install it, or choose another engine with `engine`")]
    NotInstalled {
        /// The program.
        program: String,
        /// The reason for the choice of this engine.
        chosen: String,
    },
    /// `KIND_EXPERIMENTAL_PROVIDER` names no engine.
    #[error(
        "KIND_EXPERIMENTAL_PROVIDER is {0:?}, which is no engine; set it to docker, nerdctl or podman, or unset it"
    )]
    Unknown(String),
    /// The program exists, but this process may not execute it.
    #[error("{program} can't be started: {why}")]
    Start {
        /// The program.
        program: String,
        /// The error of the operating system.
        why: String,
    },
    /// The engine does not run, or has another address.
    #[error(
        "{program} can't reach its engine: {announced}; start the engine, or correct DOCKER_HOST or the context{hint}"
    )]
    Unreachable {
        /// The program.
        program: String,
        /// The last line of its error output.
        announced: String,
        /// The names of the other installed engines, as part of a sentence. May be empty.
        hint: String,
    },
    /// This user may not use the socket of the engine.
    #[error(
        "{program} may not talk to its engine: {announced}; add the user of this process to the socket's group (for \
         Docker: usermod -aG docker), or use a rootless engine{hint}"
    )]
    Forbidden {
        /// The program.
        program: String,
        /// The last line of its error output.
        announced: String,
        /// The names of the other installed engines, as part of a sentence. May be empty.
        hint: String,
    },
    /// The command did not finish before its deadline.
    #[error(
        "`{command}` did not finish within {deadline:?} and was killed; see whether the engine is overloaded or hangs, \
         or raise `command_deadline`"
    )]
    TimedOut {
        /// The command.
        command: String,
        /// The deadline.
        deadline: Duration,
    },
    /// The output is longer than the limit.
    #[error("`{command}` printed more than {most} bytes and was killed")]
    TooMuch {
        /// The command.
        command: String,
        /// The limit, in bytes.
        most: u64,
    },
    /// The program failed in another way.
    #[error("`{command}` failed: {announced}")]
    Failed {
        /// The command.
        command: String,
        /// The last line of its error output.
        announced: String,
    },
    /// The output has an unexpected form.
    #[error("`{command}` printed what can't be read: {problem}; check that the program is the engine's own")]
    Garbage {
        /// The command.
        command: String,
        /// What is wrong with the output.
        problem: String,
    },
}

impl EngineError {
    /// Derives the error from the error output of a failed program. The exit code does not distinguish these errors:
    /// it is always 1 or 125.
    pub(crate) fn from_output(program: &str, command: String, stderr: &str) -> Self {
        let announced = one_line(stderr);
        let low = stderr.to_lowercase();
        let any = |words: &[&str]| words.iter().any(|word| low.contains(word));
        let (program, hint) = (program.to_owned(), String::new());
        if low.contains("permission denied") && any(&["sock", "daemon", "connect", "/run/"]) {
            Self::Forbidden {
                program,
                announced,
                hint,
            }
        } else if any(&[
            "cannot connect",
            "daemon running",
            "failed to connect",
            "connection refused",
            "error during connect",
            "cannot access containerd socket",
            "unable to connect",
            "rootless containerd not running",
            "podman machine",
        ]) {
            Self::Unreachable {
                program,
                announced,
                hint,
            }
        } else {
            Self::Failed { command, announced }
        }
    }

    /// Adds the names of the other installed engines to errors that another engine may solve.
    pub(crate) fn with_others(mut self, others: &[crate::engine::Engine]) -> Self {
        if let (Self::Unreachable { hint, .. } | Self::Forbidden { hint, .. }, false) =
            (&mut self, others.is_empty())
        {
            let names: Vec<String> = others.iter().map(ToString::to_string).collect();
            let verb = if names.len() == 1 { "is" } else { "are" };
            *hint = format!(
                "; {} {verb} installed too: choose with `engine`, or as kind does with KIND_EXPERIMENTAL_PROVIDER",
                names.join(" and ")
            );
        }
        self
    }
}

/// The last non-empty line of an output, as part of a sentence.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    match line {
        Some(line) => mcr_core::reason(line),
        None => "it reported no reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(stderr: &str) -> String {
        EngineError::from_output("docker", "docker ps".to_owned(), stderr)
            .with_others(&[crate::engine::Engine::Podman])
            .to_string()
    }

    #[test]
    fn what_engines_report_is_reported_with_what_to_do() {
        let stopped =
            sorted("Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?\n");
        assert!(
            stopped.contains("x.sock") && stopped.contains("start the engine"),
            "{stopped}"
        );
        assert!(stopped.ends_with("podman is installed too: choose with `engine`, or as kind does with KIND_EXPERIMENTAL_PROVIDER"), "{stopped}");
        let forbidden = sorted(
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get …",
        );
        assert!(forbidden.contains("usermod -aG docker"), "{forbidden}");
        let refused = sorted(
            "error during connect: Get \"http://x/v1.24/containers/json\": dial tcp: lookup x: no such host",
        );
        assert!(refused.contains("DOCKER_HOST"), "{refused}");
        assert_eq!(
            sorted("template: \u{7}oops\n\n"),
            "`docker ps` failed: template: \\u{7}oops"
        );
        assert_eq!(sorted(""), "`docker ps` failed: it reported no reason");
    }
}
