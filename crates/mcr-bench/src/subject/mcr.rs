//! mcr as its users have it: a manager, the file provider, a controller.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, ClusterSelector, Controller, Manager, Request};
use mcr_provider_file::FileProvider;
use tokio_util::sync::CancellationToken;

use super::{SubjectArgs, Tally};

/// The subject.
///
/// # Errors
///
/// When the manager can't start, or fails.
pub async fn run(args: SubjectArgs, tally: Tally) -> Result<()> {
    let work = Duration::from_micros(args.work);
    let mut controller = Controller::<ConfigMap>::new("bench").clusters(ClusterSelector::all());
    if let Some(workers) = args.workers {
        controller = controller.concurrency(workers);
    }
    let controller = controller.build(
        move |request: Request<ConfigMap>, tally: Arc<Tally>| async move {
            if !work.is_zero() {
                tokio::time::sleep(work).await;
            }
            if let Some(object) = request.live() {
                tally.reconciled(request.cluster.name().as_str(), object);
            }
            Ok::<_, BoxError>(Action::done())
        },
        Arc::new(tally),
    );
    Manager::builder()
        .provider(FileProvider::builder().file(args.kubeconfig).build()?)
        .controller(controller)
        .build()?
        .run_until(CancellationToken::new())
        .await?;
    Ok(())
}
