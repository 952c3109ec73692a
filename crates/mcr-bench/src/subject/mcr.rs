//! mcr as its users have it: a manager, the file provider, a controller.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Action, BoxError, BuildError, BuiltController, ClusterSelector, Controller, Manager, Request};
use mcr_provider_file::FileProvider;
use tokio_util::sync::CancellationToken;

use super::{Gzip, SubjectArgs, Tally, work};
use crate::kind::{Kind, with_type};

/// The subject.
///
/// # Errors
///
/// When the manager can't start, or fails.
pub async fn run(args: SubjectArgs, tally: Tally) -> Result<()> {
    if args.kinds != [Kind::ConfigMaps] {
        let controllers: Result<Vec<_>, _> = args.kinds.iter().map(|kind| of_kind(*kind, &tally)).collect();
        return manage(args.kubeconfig, controllers?, args.gzip).await;
    }
    let mut controller = Controller::<ConfigMap>::new("bench").clusters(ClusterSelector::all());
    if let Some(workers) = args.workers {
        controller = controller.concurrency(workers);
    }
    let controller = match args.round {
        Some(round) => applying(controller, round, tally),
        None => counting(controller, Duration::from_micros(args.work), tally),
    };
    manage(args.kubeconfig, vec![controller?], args.gzip).await
}

fn counting(
    controller: Controller<ConfigMap>,
    work: Duration,
    tally: Tally,
) -> Result<BuiltController, BuildError> {
    controller.build(
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
    )
}

/// A controller for each kind, as a program with several of them has it.
fn of_kind(kind: Kind, tally: &Tally) -> Result<BuiltController, BuildError> {
    with_type!(kind, K => {
        Controller::<K>::new(kind.plural()).clusters(ClusterSelector::all()).build(
            |request: Request<K>, tally: Arc<Tally>| async move {
                if let Some(object) = request.live() {
                    tally.reconciled_of(request.cluster.name().as_str(), &**object);
                }
                Ok::<_, BoxError>(Action::done())
            },
            Arc::new(tally.clone()),
        )
    })
}

fn applying(
    controller: Controller<ConfigMap>,
    round: u64,
    tally: Tally,
) -> Result<BuiltController, BuildError> {
    let controller = controller.watch_request(|request| request.namespace(work::SOURCE));
    controller.build(
        move |request: Request<ConfigMap>, tally: Arc<Tally>| async move {
            let Some(object) = request.live() else {
                return Ok::<_, BoxError>(Action::done());
            };
            let cluster = request.cluster.name().as_str();
            tally.reconciled(cluster, object);
            if work::is_due(object, round) {
                let applied = work::apply(&request.cluster.namespaced(cluster), object).await;
                tally.applied(&applied);
                applied?;
            }
            Ok(Action::done())
        },
        Arc::new(tally),
    )
}

pub(super) async fn manage(kubeconfig: PathBuf, controllers: Vec<BuiltController>, gzip: Gzip) -> Result<()> {
    let manager = Manager::builder()
        .provider(FileProvider::builder().file(kubeconfig).build()?)
        // The contexts may all be of one API server.
        .settings(|settings| {
            settings.allow_duplicates = true;
            Arc::make_mut(&mut settings.transport).gzip_lists = gzip != Gzip::Off;
        });
    controllers
        .into_iter()
        .fold(manager, mcr::ManagerBuilder::controller)
        .build()?
        .run_until(CancellationToken::new())
        .await?;
    Ok(())
}
