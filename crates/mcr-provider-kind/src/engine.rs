//! The container engines that kind can use.

use std::fmt;

/// A container engine that kind can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Docker, and engines with the same command line (OrbStack, Colima, Rancher Desktop with dockerd).
    Docker,
    /// nerdctl over containerd, and engines with the same command line (Finch, with `program("finch")`).
    Nerdctl,
    /// Podman.
    Podman,
}

impl Engine {
    /// The name of the command line program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Nerdctl => "nerdctl",
            Self::Podman => "podman",
        }
    }

    /// The engine of a program with this output of `-v`. A `docker` that is an alias of Podman prints `podman
    /// version`.
    pub(crate) fn from_version_output(output: &str) -> Option<Self> {
        const VERSION_PREFIXES: [(&str, Engine); 4] = [
            ("Docker version", Engine::Docker),
            ("nerdctl version", Engine::Nerdctl),
            ("finch version", Engine::Nerdctl),
            ("podman version", Engine::Podman),
        ];
        let mut known = VERSION_PREFIXES.iter();
        known
            .find(|(prefix, _)| output.starts_with(prefix))
            .map(|(_, engine)| *engine)
    }

    /// The arguments that print the events of the engine, as one JSON object per line.
    ///
    /// Only Docker filters by label. Podman finds no events for a label without a value (tested with 4.3), and nerdctl
    /// has no such filter. [`causes_observation`](crate::events::causes_observation) filters the events of both.
    pub(crate) fn events(self) -> &'static [&'static str] {
        match self {
            Self::Docker => &[
                "events",
                "--filter",
                "type=container",
                "--filter",
                "label=io.x-k8s.kind.cluster",
                "--format",
                "{{json .}}",
            ],
            Self::Podman => &["events", "--filter", "type=container", "--format", "json"],
            Self::Nerdctl => &["events", "--format", "{{json .}}"],
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program())
    }
}
