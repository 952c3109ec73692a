//! Rolls a Deployment out to a fleet, in waves of clusters: a `Rollout` in the hub has the Deployment and the waves.
//!
//! A request is a Rollout. Whatever happens (its spec changes, a Deployment of some cluster becomes healthy, a cluster joins)
//! leads to one question, which [`decide`] answers without I/O: which clusters get the version now, and what is the status?
//! First the status is written, then the clusters get the version. The program keeps nothing in memory.

pub(crate) mod api;
pub(crate) mod decide;
pub(crate) mod member;
mod wave;

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use examples::FleetArgs;
use futures::future::join_all;
use k8s_openapi::{api::apps::v1::Deployment, jiff::Timestamp};
use kube::{
    api::PostParams,
    runtime::{controller::Action, finalizer},
};
use mcr::{
    Backoff, BoxError, BuildError, BuiltController, ClusterSelector, Controller, Fleet, HUB, Request,
    RequestKey, WatchOptions, Watched, args::LogArgs,
};

use self::{
    api::{Rollout, RolloutStatus, Unreachable},
    decide::decide,
    member::{Answer, Contact, MANAGED, apply, members, remove},
};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example progressive-rollout -- --hub-context hub
  cargo run -p examples --features kind --example progressive-rollout -- --provider kind --prefix fleet- --hub-context hub";

/// Roll Deployments out to a fleet of clusters, in waves, and stop when a cluster fails.
///
/// The Deployments and their waves are in objects of the kind Rollout in the hub; rollout-crd.yaml has its definition.
/// `kubectl get rollouts` shows how far they are.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// kube's `finalizer` takes no error in a box.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Error(BoxError);

/// A cluster that does not answer in this time delays the others no longer.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn controller() -> Result<BuiltController, BuildError> {
    let managed = format!("{}={}", MANAGED.0, MANAGED.1);
    let in_members = WatchOptions::new().clusters(!ClusterSelector::hub());
    Controller::<Rollout>::new("rollouts")
        .clusters(ClusterSelector::hub())
        .watches_with(
            &(),
            rollout_of,
            in_members.request(|deployments| deployments.labels(managed)),
        )
        .watches_fleet(|_, fleet| all_rollouts(fleet).unwrap_or_default())
        .timeout(6 * LIMIT)
        .backoff(Backoff {
            cap: 6 * LIMIT,
            ..Backoff::default()
        })
        .build(reconcile, Arc::new(()))
}

/// The Rollout in the hub that has the name and the namespace of a Deployment.
fn rollout_of(deployment: Watched<Deployment>) -> Option<RequestKey> {
    RequestKey::of(&deployment.fleet.get(HUB).ok()?, &*deployment.object)
}

/// A cluster that joins, leaves, or has another state or other labels may concern every Rollout.
fn all_rollouts(fleet: &Fleet) -> Result<Vec<RequestKey>, BoxError> {
    let hub = fleet.get(HUB)?;
    let keys = hub.store::<Rollout>()?.keys()?.into_iter();
    Ok(keys.map(|key| RequestKey::new(hub.name().clone(), key)).collect())
}

async fn reconcile(request: Request<Rollout>, _: Arc<()>) -> Result<Action, BoxError> {
    let Some(rollout) = request.live() else {
        return Ok(Action::await_change());
    };
    // A cluster that is not announced yet looks like one that has left, and its wave like an empty one.
    if !request.fleet.is_discovered() {
        return Ok(Action::requeue(Duration::from_secs(1)));
    }
    let rollouts = request.api();
    let reconciled = finalizer::finalizer(
        &rollouts,
        "fleet.example.com/rollout",
        rollout.clone(),
        async |event| {
            let reconciled = match event {
                finalizer::Event::Apply(rollout) => progress(&request, &rollout).await,
                finalizer::Event::Cleanup(rollout) => clean_up(&request, &rollout).await,
            };
            reconciled.map_err(Error)
        },
    );
    Ok(reconciled.await?)
}

async fn progress(request: &Request<Rollout>, rollout: &Rollout) -> Result<Action, BoxError> {
    let (mut rollout, mut members) = (rollout.clone(), members(&request.fleet, &request.key.object));
    let decision = decide(&rollout, &members, Timestamp::now());
    if !write(request, &mut rollout, decision.status).await? {
        return Ok(Action::await_change());
    }
    let given = decision.apply.iter().map(async |name| {
        let cluster = request
            .fleet
            .get(name)
            .map_err(|error| Answer::Error(error.to_string()))?;
        let applied = tokio::time::timeout(LIMIT, apply(&cluster, &rollout)).await;
        applied.unwrap_or_else(|_| Err(Answer::Error(format!("no answer within {LIMIT:?}"))))
    });
    let mut failed = None;
    for (name, answer) in decision.apply.iter().zip(join_all(given).await) {
        let revision = rollout.spec.revision();
        match &answer {
            Ok(()) => tracing::info!(cluster = %name, revision, "applied"),
            Err(Answer::Refused(why)) => tracing::warn!(cluster = %name, revision, why, "refused"),
            Err(Answer::Error(why)) => failed = Some(format!("{name}: {why}")),
        }
        if let Some(member) = members.get_mut(name) {
            member.answer = answer.err();
        }
    }
    let status = decide(&rollout, &members, Timestamp::now()).status;
    write(request, &mut rollout, status).await?;
    match (failed, decision.again) {
        // The back-off decides when to try again.
        (Some(failed), _) => Err(failed.into()),
        (None, Some(after)) => Ok(Action::requeue(after)),
        (None, None) => Ok(Action::await_change()),
    }
}

/// Writes the status if it has changed. Returns false if the Rollout in the hub is newer than this one, which leads to another
/// request: nothing is decided by an old state.
async fn write(
    request: &Request<Rollout>,
    rollout: &mut Rollout,
    status: RolloutStatus,
) -> Result<bool, BoxError> {
    if rollout.status.as_ref() == Some(&status) {
        return Ok(true);
    }
    rollout.status = Some(status);
    let rollouts = request.api::<Rollout>();
    match rollouts
        .replace_status(request.name(), &PostParams::default(), rollout)
        .await
    {
        Ok(written) => *rollout = written,
        Err(kube::Error::Api(status)) if status.code == 409 => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Deletes the Deployments. A cluster that leaves the fleet keeps its Deployment, and so does an unreachable one with `Skip`.
async fn clean_up(request: &Request<Rollout>, rollout: &Rollout) -> Result<Action, BoxError> {
    let removed = members(&request.fleet, &request.key.object)
        .into_iter()
        .map(async |(name, member)| {
            match member.contact {
                Contact::Connected => {}
                Contact::Unlisted(None) => return Err(format!("{name} is not listed yet")),
                Contact::Unreachable(why) | Contact::Unlisted(Some(why)) => {
                    if rollout.spec.unreachable == Unreachable::Wait {
                        return Err(format!("{name}: {why}"));
                    }
                    tracing::warn!(cluster = name, why, "left behind");
                    return Ok(());
                }
            }
            let cluster = request.fleet.get(&name).map_err(|error| error.to_string())?;
            let removed = tokio::time::timeout(LIMIT, remove(&cluster, rollout)).await;
            let removed = removed.map_err(|_| format!("{name}: no answer within {LIMIT:?}"))?;
            if removed.map_err(|error| format!("{name}: {error}"))? {
                tracing::info!(cluster = name, "deleted");
            }
            Ok(())
        });
    match join_all(removed)
        .await
        .into_iter()
        .collect::<Result<Vec<()>, String>>()
    {
        Ok(_) => Ok(Action::await_change()),
        Err(error) => Err(error.into()),
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    args.log.init_log();
    let manager = args.fleet.manager_with_hub().await?;
    Ok(manager.controller(controller()).build()?.run().await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
