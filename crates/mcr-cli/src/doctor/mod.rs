//! `mcr doctor`: why a cluster is not there or does not work, and what to do.
//!
//! Probes collect facts, and a diagnosis without I/O turns facts into findings.

mod advice;
mod ask;
mod cluster_api;
mod command;
mod diagnosis;
mod diagnosis_cluster_api;
mod diagnosis_gardener;
mod diagnosis_inventory;
mod diagnosis_kcp;
mod diagnosis_sources;
mod facts;
mod finding;
mod fix;
mod gardener;
mod hub_objects;
mod inventory;
mod kcp;
#[cfg(test)]
mod only_finding;
mod probe;
mod proxy_variable;
#[cfg(test)]
mod sample_cluster;
mod sources;
pub(crate) mod target;

use std::time::{Duration, SystemTime};

use futures::{StreamExt, stream};
use mcr_core::{AddressPolicy, ClusterStatus, Trust};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    ask::GroupResource,
    facts::{ClusterFacts, Connection, Origin},
    finding::Findings,
    hub_objects::Selected,
    target::Target,
};
use crate::{
    colour::Colours,
    level::Level,
    names::Wanted,
    output::{self, Progress},
    providers::{ClusterFlags, Kind, Linked, ProviderOptions, Running, choose},
    stop, values,
};

pub(crate) use sources::LABEL;

/// The most clusters that are examined at once.
const AT_ONCE: usize = 16;

/// The flags of `mcr doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    clusters: ClusterFlags,
    /// Examine only these clusters: names, or unique ends of names, such as eu for all-clusters#eu; also explains why a
    /// name is missing
    #[arg(value_name = "CLUSTER")]
    names: Vec<String>,
    /// The resources that controllers work on; checks the rights for them
    #[arg(
        long = "for",
        value_name = "RESOURCE[,RESOURCE]",
        value_delimiter = ',',
        default_value = "configmaps",
        help_heading = "Checks"
    )]
    wanted: Vec<GroupResource>,
    /// The verbs that controllers use on these resources
    #[arg(
        long,
        value_name = "VERB[,VERB]",
        value_delimiter = ',',
        default_value = "get,list,watch",
        help_heading = "Checks"
    )]
    verbs: Vec<String>,
    /// The namespace that controllers work in [default: all namespaces]
    #[arg(long, value_name = "NAMESPACE", help_heading = "Checks")]
    in_namespace: Option<String>,
    /// How long to wait for providers and clusters to answer; a single request may take a third of it
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = values::duration, help_heading = "Checks")]
    timeout: Duration,
    /// The output format
    #[arg(long, short = 'o', value_enum, default_value_t, help_heading = "Output")]
    output: Format,
    /// Show only warnings and problems
    #[arg(long, short = 'q', help_heading = "Output")]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Format {
    /// Text
    #[default]
    Table,
    /// JSON
    Json,
}

/// Whether no problem was found.
pub(crate) async fn run(args: DoctorArgs, linked: &[Linked]) -> anyhow::Result<bool> {
    let stop = stop::at_signal();
    let chosen = choose(&args.clusters, linked)?;
    let options = ProviderOptions::new(args.clusters.clone());
    let running = crate::providers::start(chosen, options.clone()).await?;
    let looked = tokio::select! {
        found = examine(&args, &running, &options, &stop) => Some(found),
        () = stop.cancelled() => None,
    };
    drop(options);
    running.stop().await;
    let Some(found) = looked else {
        anyhow::bail!("stopped before everything was looked at");
    };
    let mut found = found?;
    let good = found.problems == 0;
    if args.quiet {
        found.findings.retain(|finding| finding.result != Level::Ok);
    }
    match args.output {
        Format::Json => output::print(&output::json(&found)?)?,
        Format::Table => output::print(&found.text(Colours::of_stdout()))?,
    }
    Ok(good)
}

async fn examine(
    args: &DoctorArgs,
    running: &Running,
    options: &ProviderOptions,
    stop: &CancellationToken,
) -> anyhow::Result<Findings> {
    let deadline = Instant::now() + args.timeout;
    let limit = (args.timeout / 3).max(Duration::from_millis(100));
    let mut progress = Progress::new();
    let snapshot = running.decided(deadline, stop, |text| progress.show(text)).await;
    let known: Vec<String> = snapshot
        .clusters
        .iter()
        .map(|cluster| cluster.name.to_string())
        .collect();
    let mut wanted = Wanted::new(&args.names);
    wanted.find(&known.iter().map(String::as_str).collect::<Vec<_>>(), true)?;

    progress.show("looking at providers");
    let mut found = Vec::new();
    for facts in sources::providers(running, options, limit).await {
        found.extend(diagnosis_sources::provider(&facts));
    }
    let asked = |status: &ClusterStatus| wanted.means(&status.name);
    let asked_clusters: Vec<ClusterStatus> = snapshot.clusters.into_iter().filter(asked).collect();
    let all = asked_clusters.len();
    let mut looking = stream::iter(asked_clusters)
        .map(|status| cluster(status, args, running, options, limit))
        .buffered(AT_ONCE)
        .enumerate();
    progress.show(&format!("looking at {all} clusters"));
    while let Some((number, facts)) = looking.next().await {
        progress.show(&format!("looked at {} of {all} clusters", number + 1));
        found.extend(diagnosis::diagnose(&facts));
    }
    for name in wanted.missing() {
        progress.show(&format!("looking for {name}"));
        let facts = sources::missing(name, &known, running, options, limit).await;
        found.extend(diagnosis_sources::missing(&facts));
    }
    Ok(Findings::new(found))
}

/// Collects the facts about a cluster.
async fn cluster(
    status: ClusterStatus,
    args: &DoctorArgs,
    running: &Running,
    options: &ProviderOptions,
    limit: Duration,
) -> ClusterFacts {
    let name = status.name.to_string();
    let spec = running.spec(&name);
    let target = spec.as_ref().and_then(|spec| target::of(&spec.access));
    // Does not send credentials to a cluster that the fleet does not use.
    let usable = !matches!(status.state, "Broken" | "Suspended");
    let is_kcp = running
        .origin(&name)
        .is_some_and(|(tap, _)| matches!(tap.kind, Kind::Kcp(_)));
    let connection = async {
        match &target {
            Some(target) if usable => Some(connection(target, args, limit).await),
            _ => None,
        }
    };
    let api = async {
        let cluster = running
            .fleet
            .get(&name)
            .ok()
            // kcp has no reviews there, and refuses /version to users with few rights. The rights in a workspace are those to
            // the content of the export or the type, which the findings about the provider have.
            .filter(|_| status.state == "Ready" && !is_kcp)?;
        let client = cluster.client();
        Some(
            ask::api(
                &client,
                &args.wanted,
                &args.verbs,
                args.in_namespace.as_deref(),
                limit,
            )
            .await,
        )
    };
    let origin = origin(&name, &status, running, options).await;
    let cluster_api = async {
        match &origin {
            Origin::ClusterApi { namespace, name } if !usable => {
                let client = options.hub().await.ok()?;
                let selected = Selected {
                    provider: &status.provider,
                    // The provider announces it, so it is selected.
                    looks_in: Some(namespace),
                    selector: None,
                };
                let wanted = (Some(namespace.as_str()), name.as_str());
                let found = cluster_api::clusters(selected, &client, wanted, limit).await;
                found.into_iter().next()
            }
            _ => None,
        }
    };
    let profile = async {
        match &origin {
            Origin::ClusterProfile { namespace, name } if status.state == "Suspended" => {
                sources::profile(&status.provider, (namespace, name), options, limit).await
            }
            _ => None,
        }
    };
    let (connection, api, cluster_api, profile) = futures::join!(connection, api, cluster_api, profile);
    ClusterFacts {
        origin,
        cluster_api,
        profile,
        provider: status.provider.to_string(),
        state: status.state.to_owned(),
        reason: status.reason.as_deref().map(str::to_owned),
        warnings: status.warnings.iter().map(|text| text.to_string()).collect(),
        connection,
        api,
        now: SystemTime::now(),
        name,
    }
}

async fn connection(target: &Target, args: &DoctorArgs, limit: Duration) -> Connection {
    let policy: AddressPolicy = match target.trust {
        Trust::Trusted => AddressPolicy::any(),
        Trust::Untrusted => args.clusters.policy().address_policy(),
    };
    probe::connection(target, &policy, limit).await
}

/// The object or file that describes a cluster, if the provider is a built-in one.
async fn origin(name: &str, status: &ClusterStatus, running: &Running, options: &ProviderOptions) -> Origin {
    let property = |key: &str| status.properties.get(key).cloned();
    let Some((tap, plain)) = running.origin(name) else {
        return Origin::Other;
    };
    match tap.kind {
        Kind::Kubeconfig => {
            // A cluster that was never usable has no properties, but the announcement of its provider names the faulty
            // object.
            let received = tap.received();
            let object = received
                .broken
                .get(plain)
                .and_then(|(object, _)| Some(object.strip_prefix("Secret ")?.split(',').next()?.to_owned()));
            match property("secret")
                .or(object)
                .as_deref()
                .and_then(|secret| secret.split_once('/'))
            {
                Some((namespace, name)) => Origin::Secret {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
                None => Origin::Other,
            }
        }
        Kind::ClusterApi | Kind::ClusterInventory => {
            let home = async || sources::looks_in(&options.hub().await.ok()?, options);
            let (namespace, name) = match plain.split_once('/') {
                Some((namespace, name)) => (Some(namespace.to_owned()), name),
                None => (home().await, plain),
            };
            let name = name.to_owned();
            match namespace {
                Some(namespace) if tap.kind == Kind::ClusterApi => Origin::ClusterApi { namespace, name },
                Some(namespace) => Origin::ClusterProfile { namespace, name },
                None => Origin::Other,
            }
        }
        Kind::Gardener => {
            // A cluster that was never usable has no properties, but the announcement of its provider names the Shoot.
            let received = tap.received();
            let object = received
                .broken
                .get(plain)
                .and_then(|(object, _)| object.strip_prefix("Shoot ")?.split_once('/'));
            match (property("namespace").zip(property("shoot")), object) {
                (Some((namespace, name)), _) => Origin::Shoot { namespace, name },
                (None, Some((namespace, name))) => Origin::Shoot {
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                },
                (None, None) => Origin::Other,
            }
        }
        Kind::Kcp(_) => match hub_address(options)
            .await
            .as_deref()
            .and_then(|hub| hub.rsplit_once('/'))
        {
            // The identity of such a cluster is the id of its workspace.
            Some((clusters, _)) => Origin::KcpWorkspace {
                address: format!("{clusters}/{}", status.identity.as_deref().unwrap_or(plain)),
                path: property("kcp.io/path"),
                binding: status.reason.as_deref().and_then(binding_of),
            },
            None => Origin::Other,
        },
        Kind::File => match (property("file"), property("context")) {
            (Some(path), Some(context)) => Origin::File { path, context },
            _ => {
                // A cluster that was never usable has no properties, but the announcement of its provider names the file.
                let received = tap.received();
                let path = received.broken.get(plain).map(|(object, _)| file_of(object));
                let path = path.unwrap_or(plain).to_owned();
                Origin::File {
                    path,
                    context: String::new(),
                }
            }
        },
        Kind::Engine => Origin::KindCluster {
            name: plain.to_owned(),
            engine: property("engine").unwrap_or_else(|| "docker".to_owned()),
        },
        Kind::Other => Origin::Other,
    }
}

async fn hub_address(options: &ProviderOptions) -> Option<String> {
    let access = options.hub_access().await.ok()?;
    Some(target::of(&access)?.address)
}

/// The binding in the reason of a suspended workspace: `APIBinding NAME is not bound yet` or `APIBinding NAME: …`.
fn binding_of(reason: &str) -> Option<String> {
    let name = reason.strip_prefix("APIBinding ")?.split(' ').next()?;
    Some(name.trim_end_matches(':').to_owned())
}

/// The path in the object of a broken cluster of the file provider: `file PATH, context "NAME"`.
fn file_of(object: &str) -> &str {
    let path = object.strip_prefix("file ").or(object.strip_prefix("folder "));
    let path = path.unwrap_or(object);
    path.split_once(", context \"").map_or(path, |(path, _)| path)
}
