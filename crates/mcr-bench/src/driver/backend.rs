//! The clusters that subjects work on.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::{Counts, real::Real, sim::Sim};
use crate::kind::Kind;

/// The clusters that subjects work on.
pub enum Backend {
    /// A real API server, once for each context.
    Real(Real),
    /// Simulated API servers in a process of their own.
    Sim(Box<Sim>),
    /// Clusters of a given kubeconfig.
    Brought {
        /// Their kubeconfig.
        kubeconfig: PathBuf,
        /// How many contexts it has.
        clusters: usize,
        /// How many ConfigMaps they hold together.
        objects: usize,
    },
}

impl Backend {
    /// Clusters that someone brings: their ConfigMaps are counted.
    ///
    /// # Errors
    ///
    /// When the file can't be read or a cluster does not answer.
    pub async fn brought(kubeconfig: &Path) -> Result<Self> {
        use k8s_openapi::api::core::v1::ConfigMap;
        use kube::{
            Api, Client, Config,
            api::ListParams,
            config::{KubeConfigOptions, Kubeconfig},
            core::PartialObjectMeta,
        };
        let read = Kubeconfig::read_from(kubeconfig)?;
        let mut objects = 0;
        for context in &read.contexts {
            let options = KubeConfigOptions {
                context: Some(context.name.clone()),
                ..KubeConfigOptions::default()
            };
            let config = Config::from_custom_kubeconfig(read.clone(), &options).await?;
            let maps = Api::<PartialObjectMeta<ConfigMap>>::all(Client::try_from(config)?);
            let listed = maps.list(&ListParams::default()).await;
            objects += listed
                .with_context(|| format!("listing the ConfigMaps of {}", context.name))?
                .items
                .len();
        }
        Ok(Self::Brought {
            kubeconfig: kubeconfig.to_owned(),
            clusters: read.contexts.len(),
            objects,
        })
    }

    /// Its kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        match self {
            Self::Real(real) => real.kubeconfig(),
            Self::Sim(sim) => sim.kubeconfig(),
            Self::Brought { kubeconfig, .. } => kubeconfig,
        }
    }

    /// How many clusters there are.
    pub fn clusters(&self) -> usize {
        match self {
            Self::Real(real) => real.clusters(),
            Self::Sim(sim) => sim.clusters(),
            Self::Brought { clusters, .. } => *clusters,
        }
    }

    /// The kinds that subjects watch there.
    pub fn kinds(&self) -> &[Kind] {
        match self {
            Self::Real(real) => real.kinds(),
            Self::Sim(sim) => sim.kinds(),
            Self::Brought { .. } => &[Kind::ConfigMaps],
        }
    }

    /// How many objects of these kinds they hold together.
    pub fn objects(&self) -> usize {
        match self {
            Self::Real(real) => real.clusters() * real.objects(),
            Self::Sim(sim) => sim.clusters() * sim.objects(),
            Self::Brought { objects, .. } => *objects,
        }
    }

    /// The requests that the servers have counted so far. `None` if they can't be read.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn counts(&mut self) -> Result<Option<Counts>> {
        match self {
            Self::Real(real) => real.counts().await.map(Some),
            Self::Sim(sim) => sim.counts().await.map(Some),
            Self::Brought { .. } => Ok(None),
        }
    }

    /// The CPU time of the servers so far. `None` if it can't be read.
    pub fn server_cpu(&self) -> Option<Duration> {
        let pid = match self {
            Self::Real(real) => real.pid()?,
            Self::Sim(_) | Self::Brought { .. } => return None,
        };
        Some(crate::proc::Usage::of(pid).ok()?.cpu)
    }

    /// Waits until a subject has opened a watch of each kind of every cluster, beside the `open` ones that were there before it. What was asked
    /// of the servers by then; none where that can't be known.
    ///
    /// A subject has seen every object when its lists are read, and some open their watches only then.
    ///
    /// # Errors
    ///
    /// When fewer watches are open after a minute.
    pub async fn watched(&mut self, open: u64) -> Result<Option<Counts>> {
        let wanted = open + (self.clusters() * self.kinds().len()) as u64;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match self.counts().await? {
                Some(counts) if counts.open < wanted => {
                    if Instant::now() >= deadline {
                        let (open, clusters) = (counts.open.saturating_sub(open), self.clusters());
                        bail!(
                            "after a minute the subject has {open} watches of {} kinds in {clusters} clusters open",
                            self.kinds().len()
                        )
                    }
                    sleep(Duration::from_millis(50)).await;
                }
                // Once more: the last watch may have begun after the requests were counted.
                Some(_) => return self.counts().await,
                None => return Ok(None),
            }
        }
    }

    /// Waits until no subject is connected any more, so that the next one finds the server as the last one did.
    ///
    /// # Errors
    ///
    /// When watches are still open after a minute.
    pub async fn quiet(&mut self, open: u64) -> Result<()> {
        for _ in 0..300 {
            match self.counts().await? {
                Some(counts) if counts.open > open => sleep(Duration::from_millis(200)).await,
                _ => return Ok(()),
            }
        }
        bail!("watches of a process that has ended are still open after a minute")
    }
}
