//! A simulated operator of MongoDB. It behaves towards the API as the real one: phases, the four status fields that the CRD
//! requires, and a Secret with the way to connect. It runs no database.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use clap::{Parser, ValueEnum};
use examples::OutputArgs;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use mcr::{
    Action, BoxError, BuildError, BuiltController, Controller, ObjectKey, Request, WatchOptions,
    WatchRequest, Watched,
    args::{HubArgs, ManagerArgs},
};
use serde_json::json;

#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "the operator does not read all fields, and a test has both programs"
)]
mod mongodb;

use mongodb::{MongoDBCommunity, MongoDBCommunityStatus, User};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --example kcp-mongodb-operator -- --hub-kubeconfig service.kubeconfig --mood slow";

/// Simulate the operator of MongoDB on the hub.
///
/// It runs no database. For each MongoDBCommunity it writes the status and the Secret with the way to connect, as the real
/// operator does.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    /// How the operator behaves
    #[arg(long, value_enum, default_value_t)]
    mood: Mood,
    /// The namespace whose databases it runs
    #[arg(long, value_name = "NAME", default_value = "mongodb")]
    namespace: String,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    /// A database runs after a moment.
    #[default]
    Quick,
    /// A database stays Pending.
    Slow,
    /// A database becomes Failed.
    Failing,
}

/// How long a database is Pending.
const MOMENT: Duration = Duration::from_millis(50);

pub(crate) fn operator(mood: Mood, namespace: &str) -> Result<BuiltController, BuildError> {
    let databases = WatchRequest::of::<MongoDBCommunity>().namespace(namespace);
    let secrets = namespace.to_owned();
    Controller::<MongoDBCommunity>::new("mongodb-operator")
        .clusters(mcr::ClusterSelector::all())
        .watch_request(|watch| watch.namespace(namespace))
        .watches_with(
            &(),
            move |secret: Watched<Secret>| users_of(&secret, &databases),
            WatchOptions::new().request(|watch| watch.namespace(secrets)),
        )
        .timeout(Duration::from_secs(30))
        .build(reconcile, Arc::new(mood))
}

/// The databases whose password is in this Secret.
fn users_of(secret: &Watched<Secret>, databases: &WatchRequest) -> Vec<ObjectKey> {
    let all = secret.cluster.store_of::<MongoDBCommunity>(databases);
    let all = all.and_then(|store| store.list()).unwrap_or_default();
    let uses = |mongodb: &&Arc<MongoDBCommunity>| {
        let mut users = mongodb.spec.users.iter();
        users.any(|user| user.password_secret_ref.name == secret.object.name_any())
    };
    all.iter()
        .filter(uses)
        .filter_map(|mongodb| ObjectKey::of(&**mongodb))
        .collect()
}

async fn reconcile(request: Request<MongoDBCommunity>, mood: Arc<Mood>) -> Result<Action, BoxError> {
    let (Some(mongodb), Some(namespace)) = (request.live(), request.namespace()) else {
        return Ok(Action::await_change());
    };
    let secrets: Api<Secret> = request.cluster.namespaced(namespace);
    let spec = &mongodb.spec;
    let uri = format!(
        "mongodb://{}-svc.{namespace}.svc.cluster.local:27017",
        request.name()
    );
    let mut status = MongoDBCommunityStatus {
        phase: "Pending".into(),
        mongo_uri: uri.clone(),
        current_mongodb_members: 0,
        current_stateful_set_replicas: 0,
        version: mongodb.status.as_ref().and_then(|status| status.version.clone()),
        message: None,
    };
    let mut next = Action::await_change();
    let is_begun = mongodb
        .status
        .as_ref()
        .is_some_and(|status| status.phase != "Failed");
    let missing = missing(&secrets, &spec.users).await?;
    if let Some(missing) = missing {
        status.message = Some(format!("the Secret {missing} with the password does not exist"));
    } else if *mood == Mood::Failing {
        status.phase = "Failed".into();
        status.message = Some("no node has enough memory for the database".into());
    } else if *mood == Mood::Slow {
        status.message = Some(format!("0 of {} members are ready", spec.members));
    } else if is_begun {
        for user in &spec.users {
            connect(&secrets, mongodb, user, &uri).await?;
        }
        status.phase = "Running".into();
        status.current_mongodb_members = spec.members;
        status.current_stateful_set_replicas = spec.members;
        status.version = Some(spec.version.clone());
    } else {
        next = Action::requeue(MOMENT);
    }
    if mongodb.status.as_ref() != Some(&status) {
        let mut patch = json!({"status": status});
        if status.message.is_none() {
            patch["status"]["message"] = serde_json::Value::Null;
        }
        request
            .api::<MongoDBCommunity>()
            .patch_status(request.name(), &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    Ok(next)
}

/// The first Secret with a password that does not exist.
async fn missing(secrets: &Api<Secret>, users: &[User]) -> Result<Option<String>, kube::Error> {
    for user in users {
        let name = &user.password_secret_ref.name;
        if secrets.get_opt(name).await?.is_none() {
            return Ok(Some(name.clone()));
        }
    }
    Ok(None)
}

/// Writes the Secret with the way to connect. Its owner is the database, so the garbage collector deletes it.
async fn connect(
    secrets: &Api<Secret>,
    mongodb: &MongoDBCommunity,
    user: &User,
    uri: &str,
) -> Result<(), BoxError> {
    let password = secrets.get(&user.password_secret_ref.name).await?;
    let password = password.data.and_then(|mut data| data.remove("password"));
    let password = password.ok_or("the Secret has no key password")?;
    let text = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        ("connectionString.standard", text(uri)),
        ("username", text(&user.name)),
        ("password", password),
    ]);
    let name = &user.connection_string_secret_name;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": data,
        "metadata": {"name": name, "ownerReferences": [mongodb.controller_owner_ref(&())]},
    });
    let apply = PatchParams::apply("mongodb-operator").force();
    secrets.patch(name, &apply, &Patch::Apply(secret)).await?;
    Ok(())
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (_, stop) = args.output.start()?;
    let manager = args.manager.manager_in(&args.hub).provider(args.hub.hub()?);
    let manager = manager.controller(operator(args.mood, &args.namespace)).build()?;
    Ok(manager.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
