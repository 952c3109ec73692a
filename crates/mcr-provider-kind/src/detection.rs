//! Chooses the engine of a discovery.

use crate::{cli::Cli, config::Config, engine::Engine, error::EngineError};

/// The order in which kind looks for engines, so that this provider finds the same engine.
const ORDER: [Engine; 3] = [Engine::Docker, Engine::Nerdctl, Engine::Podman];

/// The environment variable that kind's command line reads, too.
const VARIABLE: &str = "KIND_EXPERIMENTAL_PROVIDER";

/// The engine that was chosen, with its program.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) engine: Engine,
    pub(crate) cli: Cli,
    /// The other engines that are installed. Empty if an option or the variable chose the engine.
    pub(crate) others: Vec<Engine>,
}

/// Chooses the engine: the option, or else the variable, or else the first installed engine in kind's order.
pub(crate) async fn choose(config: &Config) -> Result<Chosen, EngineError> {
    let cli = |engine: Engine| {
        let program = config.program.clone().unwrap_or_else(|| engine.program().into());
        Cli::new(program, config.env.clone().into(), config.deadline)
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
        // The option names a program without an engine: its version text names the engine. A program with an unknown
        // text counts as Docker.
        let probe = cli(Engine::Docker);
        let announced = probe.greeting("chosen by the option `program`").await?;
        let engine = Engine::greeted(&announced).unwrap_or(Engine::Docker);
        tracing::info!(%engine, program = %probe.program(), "looking for kind clusters");
        return Ok(Chosen {
            engine,
            cli: probe,
            others: Vec::new(),
        });
    }
    let mut installed = Vec::new();
    for engine in ORDER {
        let announced = cli(engine).greeting("").await;
        if announced.is_ok_and(|announced| Engine::greeted(&announced) == Some(engine)) {
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
    cli.greeting(why).await?;
    tracing::info!(%engine, program = %cli.program(), chosen_by = why, "looking for kind clusters");
    Ok(Chosen {
        engine,
        cli,
        others: Vec::new(),
    })
}
