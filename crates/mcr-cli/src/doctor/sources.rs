//! Collects facts about the sources of providers: whether a source exists and may be read.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, Client, ResourceExt, api::ListParams};
use mcr_core::{ClusterStatus, Provider};

use super::{
    ask::{GroupResource, in_time, right, user, version},
    cluster_api,
    facts::{Hub, HubApi, MissingFacts, ProfileFacts, ProviderFacts, SecretFact, ServedHub, Source},
    gardener,
    hub_objects::{Selected, versions},
    inventory, kcp,
};
use crate::{
    kubeconfigs,
    providers::{Kind, ProviderOptions, Running},
};

/// The default label and key of the Secrets, which are the same in Go's multicluster-runtime.
pub(crate) const LABEL: &str = "sigs.k8s.io/multicluster-runtime-kubeconfig";

/// Collects the facts about each provider.
pub(super) async fn providers(
    running: &Running,
    options: &ProviderOptions,
    limit: Duration,
) -> Vec<ProviderFacts> {
    let mut found = Vec::new();
    for tap in &running.taps {
        let received = tap.received();
        let mut names: Vec<&String> = received.specs.keys().chain(received.broken.keys()).collect();
        names.sort_unstable();
        names.dedup();
        found.push(ProviderFacts {
            name: tap.name().to_owned(),
            error: received.error,
            synced: received.synced,
            clusters: names.len(),
            of: source(tap.kind, options, limit).await,
        });
    }
    for (linked, why) in &running.failed {
        found.push(ProviderFacts {
            name: linked.name.clone(),
            error: Some(why.clone()),
            synced: false,
            clusters: 0,
            of: match linked.kind {
                Kind::Kubeconfig | Kind::ClusterApi | Kind::ClusterInventory | Kind::Gardener => {
                    Source::NoHub
                }
                Kind::Kcp(api) if options.flags().names_source(api) => Source::NoHub,
                _ => Source::Other,
            },
        });
    }
    found
}

async fn source(kind: Kind, options: &ProviderOptions, limit: Duration) -> Source {
    match kind {
        Kind::File => Source::Files(kubeconfigs::named(options.flags())),
        Kind::Engine => Source::Engine,
        Kind::Kubeconfig => match options.hub().await {
            Ok(client) => Source::Secrets(Box::new(hub(&client, &OF_SECRETS, options, limit).await)),
            Err(_) => Source::Other,
        },
        Kind::ClusterApi => match options.hub().await {
            Ok(client) => Source::Served(Box::new(ServedHub {
                api: HubApi::ClusterApi,
                versions: versions(&client, cluster_api::GROUP, limit).await,
                hub: hub(&client, &OF_CLUSTERS, options, limit).await,
            })),
            Err(_) => Source::Other,
        },
        Kind::ClusterInventory => match options.hub().await {
            Ok(client) => {
                let rights: &Rights = match options.flags().consumer {
                    Some(_) => &OF_PROFILES,
                    None => &OF_PROFILES[..1],
                };
                Source::Served(Box::new(ServedHub {
                    api: HubApi::ClusterInventory,
                    versions: versions(&client, inventory::GROUP, limit).await,
                    hub: hub(&client, rights, options, limit).await,
                }))
            }
            Err(_) => Source::Other,
        },
        Kind::Gardener => match options.hub().await {
            Ok(client) => {
                let flags = options.flags();
                let (api, rights) = match (flags.seed, flags.viewer) {
                    (true, _) => (HubApi::Seed, &OF_SEED),
                    (false, false) => (HubApi::Garden, &OF_SHOOTS),
                    (false, true) => (HubApi::Garden, &OF_VIEWED_SHOOTS),
                };
                Source::Served(Box::new(ServedHub {
                    api,
                    versions: versions(&client, api.group().0, limit).await,
                    hub: hub(&client, rights, options, limit).await,
                }))
            }
            Err(_) => Source::Other,
        },
        Kind::Kcp(api) => match kcp::hub(api, options, limit).await {
            Some(hub) => Source::Kcp(Box::new(hub)),
            None => Source::Other,
        },
        Kind::Other => Source::Other,
    }
}

/// The namespace in which the Secrets of a hub are looked for.
pub(super) fn looks_in(client: &Client, options: &ProviderOptions) -> Option<String> {
    let flags = options.flags();
    match (&flags.namespace, flags.all_namespaces) {
        (Some(namespace), _) => Some(namespace.clone()),
        (None, true) => None,
        (None, false) => Some(client.default_namespace().to_owned()),
    }
}

/// The rights that a provider uses in its hub.
type Rights = [(&'static str, &'static [&'static str])];
const EVENTS: (&str, &[&str]) = ("events.events.k8s.io", &["create", "patch"]);
const OF_SECRETS: [(&str, &[&str]); 2] = [("secrets", &["list", "watch"]), EVENTS];
const OF_CLUSTERS: [(&str, &[&str]); 3] = [
    ("clusters.cluster.x-k8s.io", &["list", "watch"]),
    ("secrets", &["list", "watch", "get"]),
    EVENTS,
];
/// The second right is for kubeconfigs in Secrets.
const OF_PROFILES: [(&str, &[&str]); 2] = [
    ("clusterprofiles.multicluster.x-k8s.io", &["list", "watch"]),
    ("secrets", &["list", "watch"]),
];

const OF_SHOOTS: [(&str, &[&str]); 2] = [
    ("shoots.core.gardener.cloud", &["list", "watch"]),
    ("shoots.core.gardener.cloud/adminkubeconfig", &["create"]),
];
const OF_VIEWED_SHOOTS: [(&str, &[&str]); 2] = [
    ("shoots.core.gardener.cloud", &["list", "watch"]),
    ("shoots.core.gardener.cloud/viewerkubeconfig", &["create"]),
];
const OF_SEED: [(&str, &[&str]); 2] = [
    ("clusters.extensions.gardener.cloud", &["list", "watch"]),
    ("secrets", &["list", "watch", "get"]),
];
/// The Secrets that a provider reads in a seed.
const SECRET_OF_SEED: &str = "gardener";

async fn hub(client: &Client, used: &Rights, options: &ProviderOptions, limit: Duration) -> Hub {
    let in_seed = options.flags().seed;
    // In a seed, the option is the namespace in the garden.
    let namespace = looks_in(client, options).filter(|_| !in_seed);
    let place = namespace.as_deref();
    let exists = match place {
        Some(name) => {
            let namespaces: Api<Namespace> = Api::all(client.clone());
            let found = in_time(namespaces.get_metadata_opt(name), limit).await;
            found.ok().map(|found| found.is_some())
        }
        None => None,
    };
    let mut rights = Vec::new();
    for (resource, verbs) in used {
        if let Ok(parsed) = resource.parse::<GroupResource>() {
            let resource = parsed.named(Some(SECRET_OF_SEED).filter(|_| in_seed && *resource == "secrets"));
            let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
            rights.push(right(client, &resource, &verbs, place, limit).await);
        }
    }
    Hub {
        user: user(client, limit).await,
        version: version(client, limit).await.ok(),
        namespace,
        exists,
        rights,
    }
}

/// Collects the facts about a name that no provider announces.
pub(super) async fn missing(
    name: &str,
    known: &[String],
    running: &Running,
    options: &ProviderOptions,
    limit: Duration,
) -> MissingFacts {
    let mut facts = MissingFacts {
        name: name.to_owned(),
        known: known.to_vec(),
        secrets: Vec::new(),
        clusters: Vec::new(),
        profiles: Vec::new(),
        shoots: Vec::new(),
        workspaces: Vec::new(),
    };
    for tap in &running.taps {
        if matches!(tap.kind, Kind::Kcp(_)) {
            let of_path = |cluster: &ClusterStatus| {
                running
                    .origin(&cluster.name)
                    .is_some_and(|(of, _)| of.name() == tap.name())
                    && cluster
                        .properties
                        .get("kcp.io/path")
                        .is_some_and(|path| path == name)
            };
            let clusters = running.fleet.snapshot().clusters;
            let named = clusters.iter().filter(|cluster| of_path(cluster));
            let named = named.map(|cluster| (tap.name().to_owned(), cluster.name.to_string()));
            facts.workspaces.extend(named);
        }
        if !matches!(
            tap.kind,
            Kind::Kubeconfig | Kind::ClusterApi | Kind::ClusterInventory | Kind::Gardener
        ) {
            continue;
        }
        let Ok(client) = options.hub().await else { continue };
        // With several providers, cluster names have the prefix of their provider. The user may have left out the
        // prefix.
        let plain = name.strip_prefix(&format!("{}#", tap.name())).unwrap_or(name);
        let (namespace, secret) = match plain.split_once('/') {
            Some((namespace, secret)) => (Some(namespace.to_owned()), secret),
            None => (looks_in(&client, options), plain),
        };
        if !crate::values::is_subdomain(secret) {
            continue;
        }
        if tap.kind == Kind::Gardener {
            if !options.flags().seed {
                let home = looks_in(&client, options);
                let selected = Selected {
                    provider: tap.name(),
                    looks_in: home.as_deref(),
                    selector: options.flags().selector.as_deref(),
                };
                let project = namespace.as_deref().filter(|_| plain.contains('/'));
                let found = gardener::shoots(selected, &client, (project, secret), limit).await;
                facts.shoots.extend(found);
            }
            continue;
        }
        if tap.kind == Kind::ClusterInventory {
            let wanted = (namespace.as_deref(), secret);
            facts
                .profiles
                .extend(profiles(tap.name(), wanted, options, limit).await);
            continue;
        }
        if tap.kind == Kind::ClusterApi {
            let home = looks_in(&client, options);
            let selected = Selected {
                provider: tap.name(),
                looks_in: home.as_deref(),
                selector: options.flags().selector.as_deref(),
            };
            let wanted = (namespace.as_deref(), secret);
            let found = cluster_api::clusters(selected, &client, wanted, limit).await;
            facts.clusters.extend(found);
            continue;
        }
        for found in secrets(&client, namespace.as_deref(), secret, limit).await {
            let label = options.flags().kubeconfig_label.as_deref().unwrap_or(LABEL);
            facts.secrets.push(SecretFact {
                provider: tap.name().to_owned(),
                namespace: found.namespace().unwrap_or_default(),
                name: found.name_any(),
                label: label.to_owned(),
                labelled: found.labels().get(label).cloned(),
                looks_in: looks_in(&client, options),
            });
        }
    }
    facts
}

/// The ClusterProfile of a cluster that the provider announces.
pub(super) async fn profile(
    provider: &str,
    (namespace, name): (&str, &str),
    options: &ProviderOptions,
    limit: Duration,
) -> Option<ProfileFacts> {
    let found = profiles(provider, (Some(namespace), name), options, limit).await;
    found.into_iter().find(|found| found.namespace == namespace)
}

async fn profiles(
    provider: &str,
    wanted: (Option<&str>, &str),
    options: &ProviderOptions,
    limit: Duration,
) -> Vec<ProfileFacts> {
    let Ok(client) = options.hub().await else {
        return Vec::new();
    };
    let (flags, home) = (options.flags(), looks_in(&client, options));
    let of = Selected {
        provider,
        looks_in: home.as_deref(),
        selector: flags.selector.as_deref(),
    };
    let mut found = inventory::profiles(of, &client, wanted, limit).await;
    for profile in &mut found {
        profile.has_plugins = flags.has_plugins();
        profile.by_secrets = flags.consumer.is_some();
    }
    found
}

/// The Secrets of a name: in the namespace of the provider, or else in all namespaces, if the hub allows the list.
/// Requests only their metadata.
async fn secrets(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
    limit: Duration,
) -> Vec<kube::core::PartialObjectMeta<Secret>> {
    // Not by a GET: a name that was typed in may be no part of a path.
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let here = namespace.map(|namespace| Api::namespaced(client.clone(), namespace));
    for secrets in here.into_iter().chain([Api::<Secret>::all(client.clone())]) {
        match in_time(secrets.list_metadata(&named), limit).await {
            Ok(found) if !found.items.is_empty() => return found.items,
            _ => {}
        }
    }
    Vec::new()
}
