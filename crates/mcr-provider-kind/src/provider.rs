use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
};

use futures::{StreamExt, stream};
use mcr_core::{BoxError, Discovery, Provider, doctor::Doctor};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, discovery::Running, doctor::KindDoctor};

/// A provider of the clusters that kind has created in a container engine.
///
/// # Cancellation
/// A discovery has no task of its own. Dropping it, or cancelling its token, kills the command line programs that it
/// runs.
#[derive(Clone)]
pub struct KindProvider {
    pub(crate) name: Arc<str>,
    pub(crate) config: Arc<Config>,
    /// Whether the last discovery has ended with an error.
    pub(crate) failed: Arc<AtomicBool>,
}

impl fmt::Debug for KindProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The environment is left out, because it may contain secrets.
        f.debug_struct("KindProvider")
            .field("name", &self.name)
            .field("engine", &self.config.engine)
            .field("program", &self.config.program)
            .field("prefix", &self.config.prefix)
            .finish_non_exhaustive()
    }
}

impl Provider for KindProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        Some(Arc::new(KindDoctor))
    }

    fn searched(&self) -> String {
        let engine = match (&self.config.program, self.config.engine) {
            (Some(program), _) => format!("{program:?}"),
            (None, Some(engine)) => engine.to_string(),
            (None, None) => "$KIND_EXPERIMENTAL_PROVIDER, or else docker, nerdctl or podman".to_owned(),
        };
        let prefix = match &*self.config.prefix {
            "" => String::new(),
            prefix => format!(" whose names begin with {prefix:?}"),
        };
        format!(
            "kind clusters{prefix} in the container engine ({engine}). To add a cluster, run kind create cluster; if kind \
             get clusters shows one, check the engine, its address and the prefix"
        )
    }

    /// Starts a discovery. Poll it within a tokio runtime that has its time and I/O drivers enabled.
    fn discover(&self, stop: CancellationToken) -> Discovery {
        let running = Running::new(self.config.clone(), self.failed.clone());
        stream::try_unfold(running, async |mut running| {
            let change = running.next().await?;
            Ok::<_, BoxError>(Some((change, running)))
        })
        .take_until(stop.cancelled_owned())
        .boxed()
    }
}
