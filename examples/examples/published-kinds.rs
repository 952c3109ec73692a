//! A controller for each row of the hub. A `PublishedKind` names a kind, and from then on its objects are reconciled in all members;
//! when the row is deleted, their controller stops, and their watches end.
//!
//! Programs that publish APIs have this shape: which kinds they work on is known only while they run.

use std::{collections::HashMap, sync::Arc};

use kube::{
    CustomResource,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use mcr::{
    BoxError, BuildError, BuiltController, ClusterSelector, Controller, ControllerError, Fleet,
    ManagerBuilder, Request, args::Args,
};
use mcr_provider_file::FileProvider;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// A row: the kind whose objects are reconciled in all members.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[kube(group = "example.io", version = "v1", kind = "PublishedKind")]
pub(crate) struct PublishedKindSpec {
    #[serde(default)]
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
}

/// What is done about an object of a published kind.
type Work = dyn Fn(&Request<DynamicObject>) + Send + Sync;

/// The controllers of all rows.
pub(crate) struct Kinds {
    fleet: Fleet,
    work: Arc<Work>,
    running: Mutex<HashMap<String, Running>>,
}

/// The controller of a row.
struct Running {
    row: PublishedKindSpec,
    stop: CancellationToken,
    // Aborted if it is dropped, so that no controller outlives its row.
    task: AbortOnDropHandle<Result<(), ControllerError>>,
}

impl Kinds {
    pub(crate) fn new(fleet: &Fleet, work: impl Fn(&Request<DynamicObject>) + Send + Sync + 'static) -> Self {
        Self {
            fleet: fleet.clone(),
            work: Arc::new(work),
            running: Mutex::default(),
        }
    }

    /// Adds the controller of the rows, and a task that stops the controllers of the kinds before the fleet stops.
    pub(crate) fn add_to(self, manager: ManagerBuilder) -> Result<ManagerBuilder, BuildError> {
        let kinds = Arc::new(self);
        let rows = Controller::<PublishedKind>::new("published-kinds")
            .clusters(ClusterSelector::hub())
            .build(reconcile, kinds.clone())?;
        let manager = manager
            .controller(Ok(rows))
            .task("published-kinds", move |_, stop| async move {
                stop.cancelled().await;
                for (_, running) in kinds.running.lock().await.drain() {
                    running.end().await?;
                }
                Ok(())
            });
        Ok(manager)
    }

    fn start(&self, row: PublishedKindSpec) -> Result<Running, BuildError> {
        let kind = GroupVersionKind::gvk(&row.group, &row.version, &row.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &row.plural);
        let controller = of_kind(&resource, self.work.clone())?;
        let (fleet, stop) = (self.fleet.clone(), CancellationToken::new());
        let until = stop.clone();
        let task = tokio::spawn(async move { controller.run(fleet, until).await });
        Ok(Running {
            row,
            stop,
            task: AbortOnDropHandle::new(task),
        })
    }
}

impl Running {
    /// Lets the reconciles end that are running.
    async fn end(self) -> Result<(), BoxError> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}

/// The controller of a kind. It is as any other: it could own and watch other kinds, too.
fn of_kind(resource: &ApiResource, work: Arc<Work>) -> Result<BuiltController, BuildError> {
    Controller::<DynamicObject>::with(format!("kind-{}", resource.plural), resource)
        .build(work_on, Arc::new(work))
}

async fn work_on(request: Request<DynamicObject>, work: Arc<Arc<Work>>) -> Result<(), BoxError> {
    work(&request);
    Ok(())
}

/// Starts, replaces or stops the controller of a row. Two requests of one row never run at the same time.
async fn reconcile(request: Request<PublishedKind>, kinds: Arc<Kinds>) -> Result<(), BoxError> {
    let wanted = request.live().map(|row| row.spec.clone());
    let is_wanted = |running: &Running| Some(&running.row) == wanted.as_ref() && !running.task.is_finished();
    let old = {
        let mut running = kinds.running.lock().await;
        if running.get(request.name()).is_some_and(is_wanted) {
            return Ok(());
        }
        running.remove(request.name())
    };
    if let Some(old) = old {
        old.end().await?;
    }
    if let Some(row) = wanted {
        let new = kinds.start(row)?;
        kinds.running.lock().await.insert(request.name().to_owned(), new);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args = Args::parse();
    args.init_log();
    let from = args.clusters();
    let members = FileProvider::builder()
        .files(&from.kubeconfigs)
        .dirs(&from.kubeconfig_dirs)
        .globs(&from.globs)
        .build()?;
    let fleet = args.fleet(members)?.build();
    let kinds = Kinds::new(&fleet, |request| {
        let is_there = request.live().is_some();
        println!("{} {}: {is_there}", request.cluster.name(), request.key.object);
    });
    kinds
        .add_to(args.manager().fleet(fleet.clone()))?
        .build()?
        .run()
        .await?;
    Ok(())
}
