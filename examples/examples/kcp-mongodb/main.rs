//! A database service for kcp workspaces: each `Database` of a workspace becomes a `MongoDBCommunity` on the service cluster, where
//! the operator of MongoDB runs it.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use examples::OutputArgs;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use mcr::{
    BuiltController, ClusterName, HUB, ManagerBuilder, Provider,
    args::{HubArgs, ManagerArgs},
};
use mcr_provider_kcp::{KcpProvider, Readiness};
use mcr_sync::{ObjectSync, Related, SourceName, TargetNamespace, hashed};

mod api;
mod events;
mod mongodb;

use api::{Database, DatabaseStatus, Phase, Size};
use mongodb::{Authentication, MongoDBCommunity, MongoDBCommunitySpec, Role, SecretRef, Security, User};

const EXAMPLES: &str = "\
Examples:
  cargo run -p examples --features kcp --example kcp-mongodb -- --kcp-kubeconfig controller.kubeconfig --hub-kubeconfig service.kubeconfig";

/// Offer databases to kcp workspaces.
///
/// Each Database of a workspace that binds the APIExport becomes a MongoDBCommunity on the service cluster. Its status comes
/// back to the Database, and the Secret with the way to connect is copied beside it.
///
/// The hub is the service cluster. The server in the kubeconfig of kcp is the workspace of the APIExport: it ends with
/// /clusters/WORKSPACE.
#[derive(Parser)]
#[command(after_long_help = EXAMPLES)]
struct Args {
    /// The kubeconfig file for kcp
    #[arg(long, value_name = "PATH", help_heading = "Clusters")]
    kcp_kubeconfig: PathBuf,
    /// The APIExportEndpointSlice, which kcp creates with the name of the APIExport
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mongodb",
        help_heading = "Clusters"
    )]
    slice: String,
    /// The namespace on the service cluster in which the operator runs databases
    #[arg(
        long,
        value_name = "NAME",
        default_value = "mongodb",
        help_heading = "Clusters"
    )]
    namespace: String,
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The consumers let the controller see the Secrets with this label.
const SECRETS: &str = "db.example.io/secret=true";

/// What the service is: where databases are placed, what is made of them, and what comes back.
fn databases(namespace: String) -> anyhow::Result<BuiltController> {
    // The password that the consumer has chosen is copied beside the database, before that is made.
    let password = Related::<Database, MongoDBCommunity, Secret>::down("password")
        .watch_labels(SECRETS)
        .named(|database, _| Some(database.spec.password_secret.clone()))
        .name_by(|database, _| format!("{}-password", name(database)));
    // The Secret that the operator writes is copied beside the Database of the consumer.
    let connection = Related::<Database, MongoDBCommunity, Secret>::up("connection")
        .named(|_, mongodb| Some(mongodb?.spec.users.first()?.connection_string_secret_name.clone()))
        .name_by(|database, _| connection(database));
    let databases = ObjectSync::new("databases")
        .to(ClusterName::new(HUB)?)
        .namespace(TargetNamespace::Fixed(namespace))
        .create_namespaces(false)
        .project(|database, _| project(database))
        .status(status)
        .condition("Synced")
        .related(password)
        .related(connection);
    Ok(databases.build()?)
}

/// The name on the service cluster. The same namespace and name may exist in each workspace, so it has a hash with the workspace.
fn name(database: &Database) -> String {
    // kcp sets the annotation on each object.
    let cluster = database.annotations().get("kcp.io/cluster");
    hashed(SourceName {
        cluster: cluster.map_or("", String::as_str),
        namespace: database.metadata.namespace.as_deref(),
        name: &database.name_any(),
    })
}

fn project(database: &Database) -> MongoDBCommunity {
    let name = name(database);
    let admin = |role: &str| Role {
        name: role.into(),
        db: "admin".into(),
    };
    let user = User {
        name: "admin".into(),
        db: "admin".into(),
        password_secret_ref: SecretRef {
            name: format!("{name}-password"),
        },
        roles: vec![admin("readWriteAnyDatabase"), admin("dbAdminAnyDatabase")],
        scram_credentials_secret_name: name.clone(),
        connection_string_secret_name: format!("{name}-connection"),
    };
    let spec = MongoDBCommunitySpec {
        members: match database.spec.size {
            Size::Small => 1,
            Size::Large => 3,
        },
        kind: "ReplicaSet".into(),
        version: database.spec.version.clone(),
        security: Security {
            authentication: Authentication {
                modes: vec!["SCRAM".into()],
            },
        },
        users: vec![user],
    };
    MongoDBCommunity::new(&name, spec)
}

/// Consumers see the state of their database, and nothing of how it is run.
fn status(database: &Database, targets: &[(ClusterName, MongoDBCommunity)]) -> DatabaseStatus {
    let status = targets.first().and_then(|(_, mongodb)| mongodb.status.as_ref());
    let version = status.and_then(|status| status.version.clone());
    let phase = match status.map(|status| &*status.phase) {
        Some("Failed") => Phase::Failed,
        Some("Running") if version.as_ref() == Some(&database.spec.version) => Phase::Ready,
        _ if version.is_some() => Phase::Updating,
        _ => Phase::Creating,
    };
    let unseen = "the operator has not observed the database yet";
    DatabaseStatus {
        phase: Some(phase),
        version,
        members: status.map(|status| status.current_mongodb_members),
        message: status.map_or_else(|| Some(unseen.into()), |status| status.message.clone()),
        connection_secret: status.map(|_| connection(database)),
    }
}

/// The name of the Secret with the way to connect, in the workspace.
fn connection(database: &Database) -> String {
    format!("{}-connection", database.name_any())
}

/// The program over the consumers in kcp and the service cluster.
pub(crate) fn manager(
    manager: ManagerBuilder,
    consumers: KcpProvider,
    service: impl Provider,
    namespace: String,
) -> anyhow::Result<ManagerBuilder> {
    Ok(manager
        .provider(consumers)
        .provider(service)
        .controller(databases(namespace)?)
        .controller(events::events()))
}

/// The workspaces that bind the export and have accepted its claims.
pub(crate) fn consumers(access: impl Into<mcr::Access>, slice: String) -> anyhow::Result<KcpProvider> {
    let provider = KcpProvider::builder().access(access).slice(slice);
    Ok(provider.readiness(Readiness::PermissionClaimsApplied).build()?)
}

async fn run(args: Args) -> anyhow::Result<()> {
    let (_, stop) = args.output.start()?;
    let mut kcp = HubArgs::default();
    kcp.hub_kubeconfig = Some(args.kcp_kubeconfig);
    let consumers = consumers(kcp.hub()?, args.slice)?;
    let builder = args.manager.manager_in(&args.hub);
    let program = manager(builder, consumers, args.hub.hub()?, args.namespace)?;
    Ok(program.build()?.run_until(stop).await?)
}

#[tokio::main]
async fn main() -> ExitCode {
    examples::exit(run(Args::parse()).await)
}
