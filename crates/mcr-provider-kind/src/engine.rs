//! Which engine is asked.

use std::{fmt, time::Duration};

use crate::{EngineError, builder::Config, cli::Cli};

/// A container engine that kind can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Engine {
    /// Docker, and what has its command line (OrbStack, Colima, Rancher Desktop with dockerd).
    Docker,
    /// nerdctl over containerd, and what has its command line (Finch, with `program("finch")`).
    Nerdctl,
    /// Podman.
    Podman,
}

/// In this order kind looks for them, so that both find the same one.
const ORDER: [Engine; 3] = [Engine::Docker, Engine::Nerdctl, Engine::Podman];

/// The variable that kind's command line reads, too.
const VARIABLE: &str = "KIND_EXPERIMENTAL_PROVIDER";

impl Engine {
    /// The name of its command line program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Nerdctl => "nerdctl",
            Self::Podman => "podman",
        }
    }

    /// The engine whose program answers `-v` so. A `docker` that is Podman in disguise says `podman version`.
    fn greeted(said: &str) -> Option<Self> {
        const GREETINGS: [(&str, Engine); 4] = [
            ("Docker version", Engine::Docker),
            ("nerdctl version", Engine::Nerdctl),
            ("finch version", Engine::Nerdctl),
            ("podman version", Engine::Podman),
        ];
        let mut known = GREETINGS.iter();
        known
            .find(|(greeting, _)| said.starts_with(greeting))
            .map(|(_, engine)| *engine)
    }

    /// How its events are asked for, one JSON object in each line.
    ///
    /// Only Docker is asked to choose by label: Podman finds none for a label without a value (seen with 4.3), and nerdctl
    /// knows no such filter. [`events::matters`](crate::events::matters) chooses for them.
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

/// What was chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) engine: Engine,
    pub(crate) cli: Cli,
    /// Installed besides, when nobody chose.
    pub(crate) others: Vec<Engine>,
}

/// Chooses: the option, the variable, else the first in kind's order that is installed.
pub(crate) async fn choose(config: &Config) -> Result<Chosen, EngineError> {
    let cli = |engine: Engine| {
        let program = config.program.clone().unwrap_or_else(|| engine.program().into());
        Cli::new(program, config.env.clone(), config.deadline)
    };
    if let Some(engine) = config.engine {
        return wanted(engine, cli(engine), "chosen by the option `engine`").await;
    }
    let variable = config.env.iter().rev().find(|(name, _)| name == VARIABLE);
    let variable = match variable {
        Some((_, value)) => value.to_str().map(str::to_owned),
        None => std::env::var(VARIABLE).ok(),
    };
    if let Some(name) = variable.filter(|name| !name.is_empty()) {
        let Some(engine) = ORDER.into_iter().find(|engine| engine.program() == name) else {
            return Err(EngineError::Unknown(name));
        };
        return wanted(engine, cli(engine), "chosen by KIND_EXPERIMENTAL_PROVIDER").await;
    }
    if config.program.is_some() {
        // A program that nobody said the engine of: what it says of itself, and Docker's manners otherwise.
        let probe = cli(Engine::Docker);
        let said = probe
            .greeting()
            .await
            .map_err(|error| error.of(&probe, "chosen by the option `program`"))?;
        let engine = Engine::greeted(&said).unwrap_or(Engine::Docker);
        tracing::info!(%engine, program = %probe.program(), "looking for kind clusters");
        return Ok(Chosen {
            engine,
            cli: probe,
            others: Vec::new(),
        });
    }
    let mut installed = Vec::new();
    for engine in ORDER {
        let said = cli(engine).greeting().await;
        if said.is_ok_and(|said| Engine::greeted(&said) == Some(engine)) {
            installed.push(engine);
        }
    }
    let mut installed = installed.into_iter();
    let engine = installed.next().ok_or(EngineError::NoneInstalled)?;
    let others: Vec<Engine> = installed.collect();
    let besides: Vec<&str> = others.iter().map(|other| other.program()).collect();
    tracing::info!(
        %engine, installed_too = ?besides,
        "looking for kind clusters in the engine that kind would use; choose another with the option `engine` or with {VARIABLE}"
    );
    Ok(Chosen {
        engine,
        cli: cli(engine),
        others,
    })
}

async fn wanted(engine: Engine, cli: Cli, why: &str) -> Result<Chosen, EngineError> {
    cli.greeting().await.map_err(|error| error.of(&cli, why))?;
    tracing::info!(%engine, program = %cli.program(), chosen_by = why, "looking for kind clusters");
    Ok(Chosen {
        engine,
        cli,
        others: Vec::new(),
    })
}

/// How long a program may take to say its version. It asks no engine.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
