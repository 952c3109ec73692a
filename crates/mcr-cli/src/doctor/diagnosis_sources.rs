//! Turns facts about providers into findings, and facts about names that no provider announces. Without I/O.

use super::{
    facts::{FileIs, Hub, MissingFacts, ProviderFacts, SecretFact, Source},
    finding::{Check, Finding, Level, word},
};

/// The findings about a provider.
pub(super) fn provider(facts: &ProviderFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |check, result, saw: String, fix: Option<String>| {
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
            let fix = match facts.of {
                Source::Engine => Some("docker ps".to_owned()),
                Source::NoHub => Some(
                    "kubectl version, or choose another with --hub-context or --hub-kubeconfig".to_owned(),
                ),
                _ => None,
            };
            say(check, Level::Problem, error.clone(), fix);
        }
        (None, true) => {
            let saw = match facts.clusters {
                1 => "1 cluster".to_owned(),
                count => format!("{count} clusters"),
            };
            let level = if facts.clusters == 0 {
                Level::Warning
            } else {
                Level::Ok
            };
            say(check, level, saw, none_hint(facts));
        }
        (None, false) => {
            let saw = "it has not said in time which clusters there are".to_owned();
            say(
                check,
                Level::Problem,
                saw,
                Some("repeat with a longer --timeout".to_owned()),
            );
        }
    }
    match &facts.of {
        Source::Files(files) => {
            for file in files {
                let (level, saw, fix) = match &file.is {
                    FileIs::There => continue,
                    // As for kubectl, some files of a list may be missing.
                    FileIs::Missing if file.by_variable => (
                        if files.iter().all(|file| file.is == FileIs::Missing) {
                            Level::Problem
                        } else {
                            Level::Warning
                        },
                        format!("{} does not exist ($KUBECONFIG names it)", file.path),
                        "correct the variable KUBECONFIG, or choose files with --kubeconfigs".to_owned(),
                    ),
                    FileIs::Missing => (
                        Level::Problem,
                        format!("there is no {}", file.path),
                        format!("ls -l {}", word(&file.path)),
                    ),
                    FileIs::Unreadable(why) => (
                        Level::Problem,
                        format!("{} can't be read: {why}", file.path),
                        format!("ls -l {}; id", word(&file.path)),
                    ),
                };
                say(Check::Files, level, saw, Some(fix));
            }
        }
        Source::Secrets(hub) => of_hub(hub, &mut say),
        Source::Engine | Source::NoHub | Source::Other => {}
    }
    found
}

/// The advice if a provider finds no clusters.
fn none_hint(facts: &ProviderFacts) -> Option<String> {
    if facts.clusters > 0 {
        return None;
    }
    match &facts.of {
        // The hub's own finding has the advice.
        Source::Secrets(hub) if hub.exists == Some(false) => None,
        Source::Secrets(hub) => {
            let namespace = hub.namespace.as_deref().unwrap_or("NAMESPACE");
            Some(format!(
                "mcr kubeconfig-secret create --context CONTEXT -n {}",
                word(namespace)
            ))
        }
        Source::Engine => Some("kind create cluster".to_owned()),
        Source::Files(_) => Some("kubectl config get-contexts".to_owned()),
        Source::NoHub | Source::Other => None,
    }
}

fn of_hub(hub: &Hub, say: &mut impl FnMut(Check, Level, String, Option<String>)) {
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
        say(Check::Hub, Level::Ok, saw, None);
    }
    if let (Some(namespace), Some(false)) = (&hub.namespace, hub.exists) {
        let saw = format!("the hub has no namespace {namespace}");
        let fix = format!(
            "choose another with -n (kubectl get namespaces), or kubectl create namespace {}",
            word(namespace)
        );
        say(Check::Hub, Level::Problem, saw, Some(fix));
        // Rights in a namespace that does not exist say nothing.
        return;
    }
    for right in &hub.rights {
        let events = right.resource.starts_with("events");
        let resource = &right.resource;
        match &right.denied {
            Ok(denied) if denied.is_empty() => {
                say(
                    Check::Rights,
                    Level::Ok,
                    format!("may {} {resource} {place}", right.verbs.join(", ")),
                    None,
                );
            }
            Ok(denied) => {
                let level = if events { Level::Warning } else { Level::Problem };
                let without = if events {
                    "; what is wrong with a Secret can't be told on it"
                } else {
                    ""
                };
                let saw = format!(
                    "{user} may not {} {resource} {place} (403){without}",
                    denied.join(", ")
                );
                let verbs = right.verbs.join(",");
                let role = if events { "mcr-events" } else { "mcr-secrets" };
                let (kind, on) = match &hub.namespace {
                    Some(namespace) => ("role", format!(" -n {}", word(namespace))),
                    None => ("clusterrole", String::new()),
                };
                let binding = if hub.namespace.is_some() {
                    "rolebinding"
                } else {
                    "clusterrolebinding"
                };
                let fix = format!(
                    "kubectl create {kind} {role}{on} --verb={verbs} --resource={resource}; \
                     kubectl create {binding} {role}{on} --{kind}={role} --user={}",
                    word(user)
                );
                say(Check::Rights, level, saw, Some(fix));
            }
            Err(why) => {
                let saw = format!(
                    "nobody knows whether {user} may {} {resource} {place}: {why}",
                    right.verbs.join(", ")
                );
                say(Check::Rights, Level::Warning, saw, None);
            }
        }
    }
}

/// The findings about a name that no provider announces.
pub(super) fn missing(facts: &MissingFacts) -> Vec<Finding> {
    let say = |provider: Option<&str>, saw: String, fix: Option<String>| Finding {
        provider: provider.map(str::to_owned),
        cluster: Some(facts.name.clone()),
        check: Check::Name,
        result: Level::Problem,
        saw,
        fix,
    };
    let of_secrets: Vec<Finding> = facts
        .secrets
        .iter()
        .map(|secret| {
            let (saw, fix) = of_secret(secret);
            say(Some(&secret.provider), saw, Some(fix))
        })
        .collect();
    if !of_secrets.is_empty() {
        return of_secrets;
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
    let fix = "mcr clusters, with the same flags".to_owned();
    vec![say(
        None,
        format!("no provider says that there is such a cluster ({there})"),
        Some(fix),
    )]
}

fn of_secret(secret: &SecretFact) -> (String, String) {
    let SecretFact {
        namespace,
        name,
        label,
        ..
    } = secret;
    let labelled = secret.labelled.as_deref() == Some("true");
    if let Some(wanted) = secret.looks_in.as_ref().filter(|wanted| *wanted != namespace) {
        let saw = format!("there is a Secret {name} in namespace {namespace}, but this looks in {wanted}");
        return (saw, format!("repeat with -n {}", word(namespace)));
    }
    let fix = format!(
        "kubectl -n {} label --overwrite secret {} {}=true",
        word(namespace),
        word(name),
        word(label)
    );
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
            "repeat".to_owned(),
        ),
    }
}

#[cfg(test)]
#[path = "diagnosis_sources_tests.rs"]
mod tests;
