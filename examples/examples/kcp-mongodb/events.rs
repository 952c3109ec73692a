//! Events in the workspaces of the consumers: a database has become Ready, or has Failed.

use std::sync::Arc;

use kube::{
    Resource,
    runtime::events::{Event, EventType},
};
use mcr::{Action, BoxError, BuildError, BuiltController, Controller, Predicate, Request};

use super::api::{Database, Phase};

pub(crate) fn events() -> Result<BuiltController, BuildError> {
    // The state of a database that is seen for the first time was reported before.
    let changes = |old: Option<&Database>, new: Option<&Database>| old.is_some() && state(old) != state(new);
    Controller::<Database>::new("events")
        .predicate(Predicate::of(changes))
        .build(report, Arc::new(()))
}

fn state(database: Option<&Database>) -> Option<(Phase, Option<&str>)> {
    let status = database?.status.as_ref()?;
    Some((status.phase?, status.version.as_deref()))
}

async fn report(request: Request<Database>, _: Arc<()>) -> Result<Action, BoxError> {
    let Some(database) = request.live() else {
        return Ok(Action::await_change());
    };
    let (type_, reason, note) = match state(Some(database)) {
        Some((Phase::Ready, _)) => (EventType::Normal, "Ready", Some("the database runs".into())),
        Some((Phase::Failed, _)) => {
            let message = database.status.as_ref().and_then(|status| status.message.clone());
            (EventType::Warning, "Failed", message)
        }
        _ => return Ok(Action::await_change()),
    };
    let event = Event {
        type_,
        reason: reason.into(),
        note,
        action: "Run".into(),
        secondary: None,
    };
    let recorder = request.cluster.recorder();
    match recorder.publish(&event, &database.object_ref(&())).await {
        // The consumer has not accepted the claim on events.
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Action::await_change()),
        reported => Ok(reported.map(|()| Action::await_change())?),
    }
}
