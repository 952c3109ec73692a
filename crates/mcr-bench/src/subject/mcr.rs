//! mcr as its users have it: a manager, the file provider, a controller.

use std::{path::PathBuf, sync::Arc};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, ClusterSelector, Controller, Manager, Request};
use mcr_provider_file::FileProvider;
use tokio_util::sync::CancellationToken;

use super::Tally;

pub(super) async fn run(kubeconfig: PathBuf, tally: Tally) -> Result<()> {
    let controller = Controller::<ConfigMap>::new("bench")
        .clusters(ClusterSelector::all())
        .build(
            |request: Request<ConfigMap>, tally: Arc<Tally>| async move {
                if let Some(object) = request.live() {
                    tally.reconciled(object);
                }
                Ok::<_, BoxError>(Action::done())
            },
            Arc::new(tally),
        );
    Manager::builder()
        .provider(FileProvider::builder().file(kubeconfig).build()?)
        .controller(controller)
        .build()?
        .run_until(CancellationToken::new())
        .await?;
    Ok(())
}
