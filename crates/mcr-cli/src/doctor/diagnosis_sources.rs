//! Turns facts about providers into findings, and facts about names that no provider announces. Without I/O.

use super::{
    command::{CLUSTERS, Command, Grant, PROFILES, SEED_CLUSTERS, SHOOTS},
    diagnosis_cluster_api::{Obstacle, obstacle},
    diagnosis_gardener,
    diagnosis_inventory::absent,
    diagnosis_kcp,
    facts::{Hub, HubApi, MissingFacts, ProviderFacts, Right, SecretFact, ServedHub, Source},
    finding::{Check, Finding},
    fix::Fix,
};
use crate::{
    kubeconfigs::{FileIs, NamedFile},
    level::Level,
};

/// The programs that run kind clusters.
const ENGINES: [&str; 3] = ["docker", "nerdctl", "podman"];

/// The findings about a provider.
pub(super) fn provider(facts: &ProviderFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |check, result, saw: String, fix: Option<Fix>| {
        found.push(Finding {
            provider: Some(facts.name.clone()),
            cluster: None,
            check,
            result,
            saw,
            fix,
        });
    };
    let check = match facts.of {
        Source::Engine => Check::Engine,
        _ => Check::Provider,
    };
    match (&facts.error, facts.synced) {
        (Some(error), _) => {
            let fix = match &facts.of {
                Source::Engine => Some(look_at_engine(error)),
                Source::Served(hub) if !hub.is_installed() => Some(look_at_another_hub(hub.api)),
                Source::Kcp(hub) => diagnosis_kcp::look_at_hub(hub),
                Source::NoHub => Some(
                    Fix::action(
                        "choose another hub with --hub-context or --hub-kubeconfig, or look at this one",
                    )
                    .and_run(Command::ShowHub),
                ),
                _ => None,
            };
            add(check, Level::Problem, error.clone(), fix);
        }
        (None, true) => {
            let saw = match facts.clusters {
                1 => "1 cluster".to_owned(),
                count => format!("{count} clusters"),
            };
            let level = match &facts.of {
                Source::Kcp(hub) if hub.api.of_type().is_some() => Level::Ok,
                _ if facts.clusters == 0 => Level::Warning,
                _ => Level::Ok,
            };
            add(check, level, saw, none_hint(facts));
        }
        (None, false)
            if let Source::Served(hub) = &facts.of
                && !hub.is_installed() =>
        {
            let (group, title) = hub.api.group();
            let saw = format!("the hub does not serve {group}, {title}");
            add(check, Level::Problem, saw, Some(look_at_another_hub(hub.api)));
        }
        (None, false) => {
            let saw = "it has not said in time which clusters there are".to_owned();
            add(
                check,
                Level::Problem,
                saw,
                Some(Fix::action("repeat with a longer --timeout")),
            );
        }
    }
    match &facts.of {
        Source::Files(files) => {
            for file in files {
                let Some(saw) = file.fault() else { continue };
                let level = match file.is_problem(files) {
                    true => Level::Problem,
                    false => Level::Warning,
                };
                add(Check::Files, level, saw, Some(look_at_file(file)));
            }
        }
        Source::Secrets(hub) => of_hub(hub, &mut add),
        Source::Served(hub) => of_served(hub, &mut add),
        Source::Kcp(hub) => diagnosis_kcp::hub(&facts.name, hub, &mut add),
        Source::Engine | Source::NoHub | Source::Other => {}
    }
    found
}

/// The advice for an engine that can't be asked for this reason.
fn look_at_engine(error: &str) -> Fix {
    match ENGINES.iter().find(|engine| error.starts_with(**engine)) {
        Some(engine) => Command::ListContainers {
            engine: (*engine).to_owned(),
        }
        .into(),
        None => Fix::action("install docker, nerdctl or podman, or put it on PATH"),
    }
}

/// The advice for a hub without the API.
fn look_at_another_hub(api: HubApi) -> Fix {
    let choose = match api {
        HubApi::ClusterApi => {
            "choose the management cluster with --hub-context or --hub-kubeconfig, or install Cluster API in this one"
        }
        HubApi::Garden => "choose the garden with --hub-context or --hub-kubeconfig; for a seed, add --seed",
        HubApi::Seed => {
            "choose the seed with --hub-context or --hub-kubeconfig; for a garden, leave --seed out"
        }
        HubApi::ClusterInventory => {
            "choose the hub of the cluster manager with --hub-context or --hub-kubeconfig, or install the CRD of ClusterProfile \
             in this one"
        }
    };
    Fix::action(choose).and_run(Command::ShowContexts)
}

/// The advice for a file that is missing or can't be read.
fn look_at_file(file: &NamedFile) -> Fix {
    let list = Command::ListFile(file.path.clone());
    match &file.is {
        FileIs::Missing if file.by_variable => {
            Fix::action("correct the variable KUBECONFIG, or choose files with --kubeconfigs")
        }
        FileIs::Unreadable(_) => Fix::run(list).and_run(Command::ShowUser),
        _ => list.into(),
    }
}

/// The advice if a provider finds no clusters.
fn none_hint(facts: &ProviderFacts) -> Option<Fix> {
    if facts.clusters > 0 {
        return None;
    }
    match &facts.of {
        // The hub's own finding has the advice.
        Source::Secrets(hub) if hub.exists == Some(false) => None,
        Source::Served(found) if found.hub.exists == Some(false) => None,
        Source::Secrets(hub) => {
            let create = Command::CreateSecret {
                namespace: hub.namespace.clone().unwrap_or_else(|| "NAMESPACE".to_owned()),
                name: None,
                more: "",
            };
            Some(create.into())
        }
        Source::Served(found) => {
            let (kind, resource) = match found.api {
                HubApi::ClusterApi => ("Clusters", CLUSTERS),
                HubApi::ClusterInventory => ("ClusterProfiles", PROFILES),
                HubApi::Garden => ("Shoots", SHOOTS),
                HubApi::Seed => ("Clusters", SEED_CLUSTERS),
            };
            let look = format!("look at the {kind} that there are");
            let elsewhere = match found.hub.namespace {
                Some(_) => format!("choose another namespace with -n or -A, or {look}"),
                None => look,
            };
            Some(Fix::action(elsewhere).and_run(Command::ListAll(resource)))
        }
        Source::Kcp(hub) => diagnosis_kcp::bind(hub),
        Source::Engine => Some(Command::CreateKindCluster.into()),
        // The finding about the file has the advice.
        Source::Files(files) if files.iter().any(|file| file.is_problem(files)) => None,
        Source::Files(_) => Some(Command::ShowContexts.into()),
        Source::NoHub | Source::Other => None,
    }
}

/// The findings about a hub whose objects of an API describe clusters.
fn of_served(found: &ServedHub, add: &mut impl FnMut(Check, Level, String, Option<Fix>)) {
    let (group, title) = found.api.group();
    match &found.versions {
        // The error of the provider says so already. Rights on a kind that is not there say nothing.
        Ok(versions) if versions.is_empty() => return,
        Ok(versions) => {
            let saw = format!("serves {group} in {}", versions.join(", "));
            add(Check::Hub, Level::Ok, saw, None);
        }
        Err(why) => {
            let saw = format!("it is unknown whether {title} is installed: {why}");
            add(Check::Hub, Level::Warning, saw, None);
        }
    }
    of_hub(&found.hub, add);
}

fn of_hub(hub: &Hub, add: &mut impl FnMut(Check, Level, String, Option<Fix>)) {
    let place = match &hub.namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in all namespaces".to_owned(),
    };
    let user = hub.user.as_deref().unwrap_or("USER");
    if let Some(version) = &hub.version {
        let saw = format!(
            "Kubernetes {}, answers in {} ms; asked as {user}",
            version.shown,
            version.took.as_millis()
        );
        add(Check::Hub, Level::Ok, saw, None);
    }
    if let (Some(namespace), Some(false)) = (&hub.namespace, hub.exists) {
        let saw = format!("the hub has no namespace {namespace}");
        let fix = Fix::action("choose another namespace with -n, or create this one")
            .and_run(Command::CreateNamespace(namespace.clone()));
        add(Check::Hub, Level::Problem, saw, Some(fix));
        // Rights in a namespace that does not exist say nothing.
        return;
    }
    for right in &hub.rights {
        let events = right.resource.starts_with("events");
        let resource = match &right.name {
            Some(name) => format!("{} named {name}", right.resource),
            None => right.resource.clone(),
        };
        match &right.denied {
            Ok(denied) if denied.is_empty() => {
                add(
                    Check::Rights,
                    Level::Ok,
                    format!("may {} {resource} {place}", right.verbs.join(", ")),
                    None,
                );
            }
            Ok(denied) => {
                let level = if events { Level::Warning } else { Level::Problem };
                let without = if events {
                    "; the provider can't write events about faulty Secrets"
                } else {
                    ""
                };
                let saw = format!(
                    "{user} may not {} {resource} {place} (403){without}",
                    denied.join(", ")
                );
                let grant = Command::Grant(Box::new(Grant {
                    elsewhere: false,
                    role: role(right),
                    namespace: hub.namespace.clone(),
                    verbs: right.verbs.join(","),
                    resource: right.resource.clone(),
                    name: right.name.clone(),
                    user: hub.user.clone(),
                }));
                add(Check::Rights, level, saw, Some(grant.into()));
            }
            Err(why) => {
                let saw = format!(
                    "it is unknown whether {user} may {} {resource} {place}: {why}",
                    right.verbs.join(", ")
                );
                add(Check::Rights, Level::Warning, saw, None);
            }
        }
    }
}

/// The name of a role with a right: `mcr-secrets`, `mcr-clusters`.
fn role(right: &Right) -> String {
    let (resource, subresource) = right.resource.split_once('/').unwrap_or((&right.resource, ""));
    let plural = resource.split('.').next().unwrap_or_default();
    match subresource {
        "" => format!("mcr-{plural}"),
        subresource => format!("mcr-{plural}-{subresource}"),
    }
}

/// The findings about a name that no provider announces.
pub(super) fn missing(facts: &MissingFacts) -> Vec<Finding> {
    let add = |provider: Option<&str>, result: Level, saw: String, fix: Option<Fix>| Finding {
        provider: provider.map(str::to_owned),
        cluster: Some(facts.name.clone()),
        check: Check::Name,
        result,
        saw,
        fix,
    };
    let of_secrets = facts.secrets.iter().map(|secret| {
        let (saw, fix) = of_secret(secret);
        add(Some(&secret.provider), Level::Problem, saw, Some(fix))
    });
    let of_object = |provider: &str, found: Option<Obstacle>, in_order: String| match found {
        Some(found) => add(Some(provider), found.level, found.saw, found.fix),
        None => {
            let saw = format!("{in_order}, and the provider has not said so yet");
            add(Some(provider), Level::Problem, saw, Some(Fix::action("repeat")))
        }
    };
    let of_clusters = facts.clusters.iter().map(|cluster| {
        let name = format!("{}/{}", cluster.namespace, cluster.name);
        let in_order = format!("the Cluster {name} and its Secret are in order");
        of_object(&cluster.provider, obstacle(cluster), in_order)
    });
    let of_profiles = facts.profiles.iter().map(|profile| {
        let in_order = format!("there is a ClusterProfile {}/{}", profile.namespace, profile.name);
        of_object(&profile.provider, absent(profile), in_order)
    });
    let of_shoots = facts.shoots.iter().map(|shoot| {
        let in_order = format!("there is a Shoot {}/{}", shoot.namespace, shoot.name);
        of_object(&shoot.provider, diagnosis_gardener::absent(shoot), in_order)
    });
    let of_workspaces = facts.workspaces.iter().map(|(provider, cluster)| {
        let saw = format!("this is the path of a workspace, whose cluster is named {cluster}");
        let fix = Fix::action(format!("repeat with the name {cluster}"));
        add(Some(provider), Level::Problem, saw, Some(fix))
    });
    let of_objects: Vec<Finding> = of_secrets
        .chain(of_clusters)
        .chain(of_profiles)
        .chain(of_shoots)
        .chain(of_workspaces)
        .collect();
    if !of_objects.is_empty() {
        return of_objects;
    }
    let mut close: Vec<&str> = facts
        .known
        .iter()
        .map(String::as_str)
        .filter(|known| known.contains(facts.name.as_str()) || facts.name.contains(*known))
        .collect();
    if close.is_empty() {
        close = facts.known.iter().map(String::as_str).take(5).collect();
    }
    let there = match close.as_slice() {
        [] => "there are none".to_owned(),
        close => format!("there are {}", close.join(", ")),
    };
    let fix = Fix::action("look at the clusters that there are, with the same flags")
        .and_run(Command::ListClusters);
    vec![add(
        None,
        Level::Problem,
        format!("no provider has a cluster of this name ({there})"),
        Some(fix),
    )]
}

fn of_secret(secret: &SecretFact) -> (String, Fix) {
    let SecretFact {
        namespace,
        name,
        label,
        ..
    } = secret;
    let labelled = secret.labelled.as_deref() == Some("true");
    if let Some(wanted) = secret.looks_in.as_ref().filter(|wanted| *wanted != namespace) {
        let saw =
            format!("there is a Secret {name} in namespace {namespace}, but the provider looks in {wanted}");
        return (saw, Fix::action(format!("repeat with -n {namespace}")));
    }
    let fix = Fix::run(Command::LabelSecret {
        namespace: namespace.clone(),
        name: name.clone(),
        label: label.clone(),
        value: "true".to_owned(),
    });
    match &secret.labelled {
        None => (
            format!("there is a Secret {namespace}/{name}, but without the label {label}=true"),
            fix,
        ),
        Some(value) if !labelled => (
            format!(
                "there is a Secret {namespace}/{name}, but its label {label} is {value:?} and not \"true\""
            ),
            fix,
        ),
        Some(_) => (
            format!(
                "there is a Secret {namespace}/{name} with the label, and its provider has not said so yet"
            ),
            Fix::action("repeat"),
        ),
    }
}

#[cfg(test)]
#[path = "diagnosis_sources_tests.rs"]
mod tests;
