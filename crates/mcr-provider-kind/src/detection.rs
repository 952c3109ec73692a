//! Chooses the engine of a discovery.

use crate::{cli::Cli, config::Config, engine::Engine, error::EngineError};

/// The order in which kind searches for engines. With the same order, this provider finds the same engine.
const ORDER: [Engine; 3] = [Engine::Docker, Engine::Nerdctl, Engine::Podman];

/// The environment variable. kind's command line reads the same one.
const VARIABLE: &str = "KIND_EXPERIMENTAL_PROVIDER";

/// The engine that was chosen, with its program.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) engine: Engine,
    pub(crate) cli: Cli,
    /// The other engines that are installed. Empty if an option or the variable has chosen the engine.
    pub(crate) others: Vec<Engine>,
}

/// Chooses the engine: that of the option, otherwise that of the variable, otherwise the first installed one in kind's
/// order.
pub(crate) async fn choose(config: &Config) -> Result<Chosen, EngineError> {
    let cli = |engine: Engine| {
        let program = config.program.clone().unwrap_or_else(|| engine.program().into());
        Cli::new(program, config.env.clone().into(), config.deadline)
    };
    if let Some(engine) = config.engine {
        return explicitly_chosen(engine, cli(engine), "chosen by the option `engine`").await;
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
        return explicitly_chosen(engine, cli(engine), "chosen by KIND_EXPERIMENTAL_PROVIDER").await;
    }
    if config.program.is_some() {
        // The option names a program, but no engine. The output of `-v` shows which engine it is. If that is unknown,
        // it counts as Docker.
        let probe = cli(Engine::Docker);
        let output = probe.version_output("chosen by the option `program`").await?;
        let engine = Engine::from_version_output(&output).unwrap_or(Engine::Docker);
        tracing::info!(%engine, program = %probe.program(), "looking for kind clusters");
        return Ok(Chosen {
            engine,
            cli: probe,
            others: Vec::new(),
        });
    }
    let mut installed = Vec::new();
    for engine in ORDER {
        let output = cli(engine).version_output("").await;
        if output.is_ok_and(|output| Engine::from_version_output(&output) == Some(engine)) {
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

/// The engine that an option or the variable has chosen.
async fn explicitly_chosen(engine: Engine, cli: Cli, why: &str) -> Result<Chosen, EngineError> {
    cli.version_output(why).await?;
    tracing::info!(%engine, program = %cli.program(), chosen_by = why, "looking for kind clusters");
    Ok(Chosen {
        engine,
        cli,
        others: Vec::new(),
    })
}
