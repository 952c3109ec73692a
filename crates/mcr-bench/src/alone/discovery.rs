//! Measures the discovery of clusters in a hub: the time until all clusters of a provider are reconciled, and the memory of
//! the provider beyond that of the fleet.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use futures::{StreamExt, stream};
use kube::config::Kubeconfig;
use mcr::{
    AccessPolicy, BoxError, ClusterSpec, Fleet,
    core::{
        AddressPolicy, AllowedPlugin, Change, CredentialPluginPolicy, Discovery, KubeconfigAccess, Provider,
        Trust,
    },
};
use mcr_provider_cluster_api::ClusterApiProvider;
use mcr_provider_cluster_inventory::{
    ARGS_EXTENSION, AccessProviderConfig, AccessProviders, ArgsPolicy, CONSUMER_LABEL,
    ClusterInventoryProvider, MEMBER_ID_LABEL, PROFILE_LABEL,
};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::sim::SimCluster;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Figures, Heap, Runs, allocated};
use crate::{objects, stats};

/// The rounds, each with all ways to find the clusters in another order.
const ROUNDS: usize = 3;

/// The size of a kubeconfig with a client certificate of RSA-2048, in bytes.
const KUBECONFIG_SIZE: usize = 5_600;

/// The Secrets of a cluster that Cluster API makes beside its kubeconfig.
const OTHER_SECRETS: [&str; 4] = ["ca", "etcd", "proxy", "sa"];

const NAMESPACE: &str = "fleet";

/// The name of the consumer of Secrets, and of the access provider.
const CONSUMER: &str = "bench";

/// The plugin prints its first argument as the token.
const PLUGIN: &str = r#"#!/bin/sh
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}' "$1"
"#;

/// A way to find the same clusters.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Code announces the clusters and remembers none.
    Code,
    /// Secrets that hold kubeconfigs.
    Kubeconfig,
    /// Clusters of Cluster API.
    ClusterApi,
    /// ClusterProfiles, and Secrets that hold the same kubeconfigs.
    ClusterInventorySecrets,
    /// As `Code`, with kubeconfigs that name a plugin.
    CodePlugin,
    /// Secrets that hold kubeconfigs which name a plugin.
    KubeconfigPlugin,
    /// ClusterProfiles that offer access through the same plugin.
    ClusterInventory,
}

impl Way {
    /// The way whose memory is that of the fleet alone.
    fn fleet(self) -> Self {
        match self {
            Self::CodePlugin | Self::KubeconfigPlugin | Self::ClusterInventory => Self::CodePlugin,
            _ => Self::Code,
        }
    }

    fn runs_plugins(self) -> bool {
        self.fleet() == Self::CodePlugin
    }

    fn reads_profiles(self) -> bool {
        matches!(self, Self::ClusterInventorySecrets | Self::ClusterInventory)
    }
}

/// A cluster with its kubeconfigs.
struct Member {
    name: String,
    cluster: Value,
    token: String,
    kubeconfig: String,
    /// Names the plugin, with the token as its argument.
    with_plugin: String,
}

impl Member {
    fn kubeconfig(&self, way: Way) -> &str {
        if way.runs_plugins() {
            &self.with_plugin
        } else {
            &self.kubeconfig
        }
    }
}

/// The clusters of a kubeconfig file. Each has a kubeconfig of its own that is as large as those of Cluster API, and another one
/// that names the plugin.
fn members(path: &Path, plugin: &str) -> Result<Vec<Member>> {
    let all = Kubeconfig::read_from(path)?;
    let mut members = Vec::new();
    for context in &all.contexts {
        let name = &context.name;
        let cluster = all.clusters.iter().find(|known| known.name == *name);
        let user = all.auth_infos.iter().find(|known| known.name == *name);
        let (cluster, user) = cluster.zip(user).context("a context without cluster or user")?;
        let mut document = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [cluster], "users": [user], "contexts": [context],
        });
        let token = document["users"][0]["user"]["token"]
            .as_str()
            .context("a user without token")?
            .to_owned();
        let mut with_plugin = document.clone();
        with_plugin["users"][0]["user"] = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": plugin, "args": [token], "interactiveMode": "Never",
        }});
        let missing = KUBECONFIG_SIZE.saturating_sub(document.to_string().len());
        document["preferences"] = json!({ "padding": "x".repeat(missing) });
        members.push(Member {
            name: name.clone(),
            cluster: document["clusters"][0]["cluster"].clone(),
            token,
            kubeconfig: document.to_string(),
            with_plugin: with_plugin.to_string(),
        });
    }
    Ok(members)
}

fn secret(name: &str, labels: &Value, key: &str, content: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels },
        "data": { key: STANDARD.encode(content) },
    })
}

fn profile(member: &Member) -> Value {
    let Member { name, token, .. } = member;
    let mut cluster = member.cluster.clone();
    cluster["extensions"] = json!([{ "name": ARGS_EXTENSION, "extension": [token] }]);
    json!({
        "apiVersion": "multicluster.x-k8s.io/v1alpha2", "kind": "ClusterProfile",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": { "x-k8s.io/cluster-manager": "ocm", MEMBER_ID_LABEL: name },
        },
        "spec": { "displayName": name, "clusterManager": { "name": "ocm" } },
        "status": {
            "conditions": [{
                "type": "ControlPlaneHealthy", "status": "True", "reason": "Available", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
            "version": { "kubernetes": "v1.36.1" },
            "properties": [{ "name": "region", "value": "eu", "lastObservedTime": "2026-01-01T00:00:00Z" }],
            "accessProviders": [{ "name": CONSUMER, "cluster": cluster }],
        },
    })
}

fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "tier": "prod" } },
        "spec": {
            "controlPlaneEndpoint": { "host": "127.0.0.1", "port": 6443 },
            "controlPlaneRef": { "apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name },
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerCluster", "name": name },
        },
        "status": {
            "phase": "Provisioned",
            "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true },
            "conditions": [{
                "type": "Available", "status": "True", "reason": "Available", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}

/// A hub with the objects in which a provider finds the clusters.
fn hub(way: Way, members: &[Member]) -> Result<SimCluster> {
    // Without an audit log, which would grow with the reads of a provider.
    let hub = SimCluster::builder().audit_limit(0).build();
    hub.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }))?;
    if way == Way::ClusterApi {
        hub.create(objects::definition(
            "cluster.x-k8s.io",
            "v1beta2",
            "Cluster",
            "clusters",
        ))?;
    }
    if way.reads_profiles() {
        hub.create(objects::definition(
            "multicluster.x-k8s.io",
            "v1alpha2",
            "ClusterProfile",
            "clusterprofiles",
        ))?;
    }
    for member in members {
        let (name, kubeconfig) = (&member.name, member.kubeconfig(way));
        match way {
            Way::Code | Way::CodePlugin => {}
            Way::ClusterInventory => _ = hub.create(profile(member))?,
            Way::ClusterInventorySecrets => {
                let labels = json!({ CONSUMER_LABEL: CONSUMER, PROFILE_LABEL: name });
                let key = mcr_provider_cluster_inventory::KUBECONFIG_KEY;
                hub.create(secret(name, &labels, key, kubeconfig))?;
                hub.create(profile(member))?;
            }
            Way::Kubeconfig | Way::KubeconfigPlugin => {
                let labels = json!({ mcr_provider_kubeconfig::SECRET_LABEL: "true" });
                let key = mcr_provider_kubeconfig::SECRET_KEY;
                hub.create(secret(name, &labels, key, kubeconfig))?;
            }
            Way::ClusterApi => {
                let labels = json!({ "cluster.x-k8s.io/cluster-name": name });
                for other in OTHER_SECRETS {
                    let content = "x".repeat(3_000);
                    hub.create(secret(&format!("{name}-{other}"), &labels, "tls.key", &content))?;
                }
                hub.create(secret(
                    &format!("{name}-kubeconfig"),
                    &labels,
                    "value",
                    kubeconfig,
                ))?;
                hub.create(cluster(name))?;
            }
        }
    }
    Ok(hub)
}

/// Announces the clusters, and remembers none.
struct Announcements(Mutex<Vec<Result<Change, BoxError>>>);

impl Provider for Announcements {
    fn name(&self) -> &str {
        "code"
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        let mut changes = self.0.lock();
        stream::iter(std::mem::take(&mut *changes))
            .chain(stream::pending())
            .take_until(stop.cancelled_owned())
            .boxed()
    }
}

fn provider(way: Way, hub: &SimCluster, members: &[Member], plugin: &str) -> Result<Box<dyn Provider>> {
    Ok(match way {
        Way::Code | Way::CodePlugin => {
            let mut changes = Vec::new();
            for member in members {
                let access = KubeconfigAccess::new(member.kubeconfig(way), Trust::Untrusted);
                changes.push(Ok(Change::Upsert(ClusterSpec::named(&member.name, access)?)));
            }
            changes.push(Ok(Change::Synced));
            Box::new(Announcements(Mutex::new(changes)))
        }
        Way::Kubeconfig | Way::KubeconfigPlugin => {
            let builder = KubeconfigProvider::builder().client(hub.client());
            Box::new(builder.namespace(NAMESPACE).build()?)
        }
        Way::ClusterApi => {
            let builder = ClusterApiProvider::builder().client(hub.client());
            Box::new(builder.namespace(NAMESPACE).build()?)
        }
        Way::ClusterInventorySecrets | Way::ClusterInventory => {
            let builder = ClusterInventoryProvider::builder().client(hub.client());
            let builder = if way.runs_plugins() {
                let config = AccessProviderConfig::new(CONSUMER, plugin)
                    .args_policy(ArgsPolicy::Append)
                    .profile_args(["*"]);
                builder.access_providers(AccessProviders::new([config])?)
            } else {
                builder.consumer_secrets(CONSUMER)
            };
            Box::new(builder.namespace(NAMESPACE).build()?)
        }
    })
}

/// The result of one fleet.
struct Found {
    seconds: f64,
    bytes: f64,
}

/// Runs a fleet until each cluster's object is reconciled, and then measures the memory that it has allocated.
async fn find(way: Way, members: &[Member], plugin: &str, heap: &Heap) -> Result<Found> {
    let hub = hub(way, members)?;
    let heap = || allocated(*heap);
    let before = heap()?;
    let begun = Instant::now();
    let loopback = AddressPolicy::default().allow_loopback(true);
    let policy =
        AccessPolicy::default()
            .addresses(loopback)
            .credential_plugins(CredentialPluginPolicy::allowlist([
                AllowedPlugin::new(plugin).args(["*"])
            ]));
    let fleet = Fleet::builder()
        .provider(provider(way, &hub, members, plugin)?)
        .settings(|settings| settings.access_policy = policy)
        .build();
    let runs = Runs::start(fleet);
    let seen = runs.count()?;
    let reconciled = seen.at_least(members.len()).await;
    reconciled.with_context(|| crate::names::name(&way))?;
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = heap()?.saturating_sub(before) as f64 / members.len() as f64;
    runs.end().await?;
    drop(hub);
    // Connections end in the background. Until then their memory would count as that of before the next fleet.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(Found { seconds, bytes })
}

pub(super) async fn measure(kubeconfig: Option<PathBuf>, heap: Heap) -> Result<Figures> {
    let folder = tempfile::tempdir()?;
    let plugin = folder.path().join("plugin");
    fs::write(&plugin, PLUGIN)?;
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755))?;
    let plugin = plugin.to_str().context("a folder with an unprintable name")?;
    let members = members(&kubeconfig.context("--kubeconfig is needed")?, plugin)?;
    let mut found: BTreeMap<Way, Vec<Found>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut ways = Way::value_variants().to_vec();
        ways.rotate_left(round);
        for way in ways {
            let figures = find(way, &members, plugin, &heap).await?;
            found.entry(way).or_default().push(figures);
        }
    }
    let median = |way: Way, figure: fn(&Found) -> f64| {
        let figures: Vec<f64> = found.get(&way).into_iter().flatten().map(figure).collect();
        stats::median(&figures).context("no rounds")
    };
    let mut figures = Figures::new();
    for way in Way::value_variants() {
        let name = crate::names::name(way);
        figures.insert(format!("{name}_s"), median(*way, |found| found.seconds)?);
        if *way != way.fleet() {
            let fleet = median(way.fleet(), |found| found.bytes)?;
            let bytes = median(*way, |found| found.bytes)?;
            figures.insert(format!("{name}_bytes"), bytes - fleet);
        }
    }
    Ok(figures)
}
