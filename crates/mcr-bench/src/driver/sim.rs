//! Simulated API servers in a process of their own: `mcr-bench sim`, and how the driver speaks with it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::{Counts, Programs, Running};
use crate::{alone::Figures, kind::Kind, subject::message::Message};

/// The process of the simulator.
pub struct Sim {
    process: Running,
    clusters: usize,
    kinds: Vec<Kind>,
    objects: usize,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Sim {
    /// Starts `clusters` simulated API servers with `objects` ConfigMaps each.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn start(programs: &Programs, clusters: usize, objects: usize) -> Result<Self> {
        Self::start_with(programs, clusters, objects, &[]).await
    }

    /// The same with more of the simulator's options.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn start_with(
        programs: &Programs,
        clusters: usize,
        objects: usize,
        options: &[String],
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("mcr-bench-").tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        let mut args = vec![
            "sim".to_owned(),
            format!("--clusters={clusters}"),
            format!("--objects={objects}"),
            format!("--kubeconfig={}", kubeconfig.display()),
        ];
        args.extend_from_slice(options);
        let mut process = Running::start("the simulator", &programs.bench, &args)?;
        match process.next(Duration::from_secs(300)).await? {
            Message::Serving => {}
            other => bail!("the simulator said {other:?}"),
        }
        Ok(Self {
            process,
            clusters,
            kinds: vec![Kind::ConfigMaps],
            objects,
            kubeconfig,
            _folder: folder,
        })
    }

    /// The same with `objects` objects of each of these kinds. There are four Namespaces at least.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn with_kinds(
        programs: &Programs,
        clusters: usize,
        objects: usize,
        kinds: &[Kind],
    ) -> Result<Self> {
        let options = [format!("--kinds={}", Kind::list(kinds))];
        let mut sim = Self::start_with(programs, clusters, objects, &options).await?;
        sim.objects = match sim.process.ask("objects").await? {
            Message::Seen { count } => usize::try_from(count)?,
            other => bail!("the simulator answered {other:?}"),
        };
        sim.kinds = kinds.to_vec();
        Ok(sim)
    }

    /// Starts `clusters` simulated API servers with `pods` large Pods each, those of each different from those of the others.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub async fn with_large_pods(programs: &Programs, clusters: usize, pods: usize) -> Result<Self> {
        let options = ["--kinds=pods".to_owned(), format!("--large-pods={pods}")];
        let sim = Self::start_with(programs, clusters, 0, &options).await?;
        Ok(Self {
            kinds: vec![Kind::Pods],
            objects: pods,
            ..sim
        })
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// How many clusters.
    pub fn clusters(&self) -> usize {
        self.clusters
    }

    /// The kinds whose requests it counts.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// How many objects of these kinds in each.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// The requests to all clusters, added up.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn counts(&mut self) -> Result<Counts> {
        match self.process.ask("counts").await? {
            Message::Counts { lists, watches, open } => Ok(Counts { lists, watches, open }),
            other => bail!("the simulator answered {other:?}"),
        }
    }

    /// Asks for figures.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub async fn figures(&mut self, line: &str) -> Result<Figures> {
        match self.process.ask(line).await? {
            Message::Figures { figures } => Ok(figures),
            other => bail!("the simulator answered {other:?}"),
        }
    }

    /// Sends a command of the [`simulator`](crate::simulator). Returns the time at which it was done.
    ///
    /// # Errors
    ///
    /// When it does not answer within a minute.
    pub async fn command(&mut self, line: &str) -> Result<u64> {
        self.command_for(line, Duration::from_secs(60)).await
    }

    /// As [`command`](Self::command), with a limit of the caller.
    ///
    /// # Errors
    ///
    /// When it does not answer within `limit`.
    pub async fn command_for(&mut self, line: &str, limit: Duration) -> Result<u64> {
        match self.process.ask_for(line, limit).await? {
            Message::Done { at } => Ok(at),
            other => bail!("the simulator answered {other:?}"),
        }
    }
}
