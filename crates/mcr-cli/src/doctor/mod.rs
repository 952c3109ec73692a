//! `mcr doctor`: why a cluster is missing or does not work, and what to do.
//!
//! Probes collect facts, and a diagnosis without I/O turns facts into findings.

mod ask;
mod diagnosis;
mod examiner;
mod finding;
mod fix;
mod hub;
mod probe;
mod sources;
pub(crate) mod target;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::{StreamExt, stream};
use mcr_core::{
    ClusterStatus,
    doctor::{Described, Doctor, Level},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    ask::GroupResource,
    diagnosis::ClusterFacts,
    examiner::CommandExaminer,
    finding::{Findings, Row},
};
use crate::{
    colour::Colours,
    names::Wanted,
    output::{self, Progress},
    providers::{ClusterFlags, LinkedProvider, NoDoctor, ProviderOptions, Running, choose},
    stop, values,
};

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

/// Examines the clusters and prints the findings. Returns whether no problem was found.
pub(crate) async fn run(args: DoctorArgs, linked: &[LinkedProvider]) -> anyhow::Result<bool> {
    let stop = stop::at_signal();
    let chosen = choose(&args.clusters, linked)?;
    let options = ProviderOptions::new(args.clusters.clone());
    let running = crate::providers::start(chosen, options.clone()).await?;
    let examined = tokio::select! {
        found = examine(&args, &running, &options, &stop) => Some(found),
        () = stop.cancelled() => None,
    };
    drop(options);
    running.stop().await;
    let Some(found) = examined else {
        anyhow::bail!("stopped before everything was examined");
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
    let examiner = CommandExaminer {
        proxies: options.proxies()?,
        limit: (args.timeout / 3).max(Duration::from_millis(100)),
        addresses: args.clusters.policy().address_policy(),
    };
    let mut progress = Progress::new();
    let snapshot = running
        .wait_until_known(deadline, stop, |text| progress.show(text))
        .await;
    let known: Vec<String> = snapshot
        .clusters
        .iter()
        .map(|cluster| cluster.name.to_string())
        .collect();
    let mut wanted = Wanted::new(&args.names);
    wanted.find(&known.iter().map(String::as_str).collect::<Vec<_>>(), true)?;

    progress.show("examining providers");
    let mut found = sources::providers(running, options, &examiner).await;
    let asked = |status: &ClusterStatus| wanted.selects(&status.name);
    let asked_clusters: Vec<ClusterStatus> = snapshot.clusters.into_iter().filter(asked).collect();
    let all = asked_clusters.len();
    let mut examining = stream::iter(asked_clusters)
        .map(|status| cluster(status, args, running, &examiner))
        .buffered(AT_ONCE)
        .enumerate();
    progress.show(&format!("examining {all} clusters"));
    while let Some((number, rows)) = examining.next().await {
        progress.show(&format!("examined {} of {all} clusters", number + 1));
        found.extend(rows);
    }
    for name in wanted.missing() {
        progress.show(&format!("looking for {name}"));
        found.extend(sources::missing(name, &known, running, &examiner).await);
    }
    Ok(Findings::new(found))
}

/// Examines a cluster.
async fn cluster(
    status: ClusterStatus,
    args: &DoctorArgs,
    running: &Running,
    examiner: &CommandExaminer,
) -> Vec<Row> {
    let name = status.name.as_str();
    let spec = running.spec(name);
    let target = spec.as_ref().and_then(|spec| target::of(&spec.access));
    let (doctor, described_as, received) = match running.tap_and_name(name) {
        Some((tap, plain)) => (tap.doctor.clone(), plain, tap.received()),
        None => (Arc::new(NoDoctor) as Arc<dyn Doctor>, name, Default::default()),
    };
    let described = Described {
        name: described_as,
        identity: status.identity.as_deref(),
        properties: &status.properties,
        reason: status.reason.as_deref(),
        broken: received
            .broken
            .get(described_as)
            .map(|(object, _)| object.as_str()),
    };
    let values = doctor.values(Some(&described));
    let is_ready = status.state == "Ready";
    let ready = is_ready.then(|| doctor.ready(&described)).flatten();
    let connection = async {
        match &target {
            // Credentials are not sent to a cluster that the fleet does not use.
            Some(target) if !matches!(status.state, "Broken" | "Suspended") => {
                Some(examiner.connection(target).await)
            }
            _ => None,
        }
    };
    let api = async {
        let cluster = running
            .fleet
            .get(name)
            .ok()
            .filter(|_| is_ready && ready.is_none())?;
        let (client, namespace) = (cluster.client(), args.in_namespace.as_deref());
        Some(ask::api(&client, &args.wanted, &args.verbs, namespace, examiner.limit).await)
    };
    let obstacle = async {
        match status.state {
            "Suspended" => hub::suspended(&*doctor, &values, described.reason, examiner).await,
            _ => None,
        }
    };
    let (connection, api, obstacle) = futures::join!(connection, api, obstacle);
    let findings = diagnosis::diagnose(&ClusterFacts {
        doctor: doctor.clone(),
        values: values.clone(),
        state: status.state.to_owned(),
        reason: described.reason.map(str::to_owned),
        warnings: status.warnings.iter().map(|text| text.to_string()).collect(),
        connection,
        api,
        obstacle,
        ready,
        now: SystemTime::now(),
    });
    let row = |finding| Row::new(Some(&status.provider), Some(name), finding);
    findings.into_iter().map(row).collect()
}
