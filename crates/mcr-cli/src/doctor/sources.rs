//! The findings about providers, and about names that no provider announces.

use mcr_core::{
    DISPLAY_NAME, Provider,
    doctor::{Fault, Finding, Fix, Hub, Level},
};

use super::{
    examiner::CommandExaminer,
    finding::{Row, ok},
    fix::{advise, is_normal, plain},
    hub,
};
use crate::providers::{ProviderOptions, Running, Tap};

/// The findings about each provider.
pub(super) async fn providers(
    running: &Running,
    options: &ProviderOptions,
    examiner: &CommandExaminer,
) -> Vec<Row> {
    let mut found = Vec::new();
    for tap in &running.taps {
        let findings = provider(tap, examiner).await;
        found.extend(
            findings
                .into_iter()
                .map(|finding| Row::new(Some(tap.name()), None, finding)),
        );
    }
    for (linked, why) in &running.failed {
        let action = "choose another hub with --hub-context or --hub-kubeconfig, or check this one";
        let of_hub = options.hub_error().is_some_and(|error| why.contains(&error));
        let finding = Finding {
            level: Level::Problem,
            fix: of_hub.then(|| plain(action, "kubectl version")),
            ..ok("provider", why.clone())
        };
        found.push(Row::new(Some(&linked.name), None, finding));
    }
    found
}

async fn provider(tap: &Tap, examiner: &CommandExaminer) -> Vec<Finding> {
    let doctor = &*tap.doctor;
    let hub = doctor.hub();
    let (of_hub, of_source) = futures::join!(
        async {
            match hub {
                Some(hub) => hub::examine(hub, examiner).await,
                None => Some(Vec::new()),
            }
        },
        doctor.source(examiner)
    );
    let is_served = of_hub.is_some();
    let mut found = doctor.files();
    found.extend(of_hub.into_iter().flatten().chain(of_source));
    let is_explained = found
        .iter()
        .any(|finding| finding.level == Level::Problem && matches!(finding.check, "files" | "hub"));
    let received = tap.received();
    let values = doctor.values(None);
    let problem = |message: String, fix: Option<Fix>| Finding {
        level: Level::Problem,
        fix,
        ..ok(doctor.check(), message)
    };
    let clusters = received.names().len();
    let (group, api) = hub.map_or(("", ""), |hub| (hub.kind.group, hub.kind.api));
    let other_hub = || advise(doctor, Fault::NotServed, group, &values);
    let first = match (received.error, received.synced) {
        (Some(error), _) if !is_served => problem(error, other_hub()),
        (Some(error), _) => {
            let fix = advise(doctor, Fault::Source, &error, &values);
            problem(error, fix)
        }
        (None, false) if !is_served => problem(format!("the hub does not serve {group}, {api}"), other_hub()),
        (None, false) => {
            let message = "it has not announced in time which clusters there are".to_owned();
            problem(message, Some(plain("repeat with a longer --timeout", "")))
        }
        (None, true) if clusters == 1 => ok(doctor.check(), "1 cluster"),
        (None, true) if clusters > 0 => ok(doctor.check(), format!("{clusters} clusters")),
        (None, true) => {
            let is_normal = is_normal(doctor, Fault::NoClusters, &values);
            let of_provider = advise(doctor, Fault::NoClusters, "", &values);
            Finding {
                level: if is_normal { Level::Ok } else { Level::Warning },
                fix: of_provider
                    .or_else(|| Some(advice_without_objects(hub?)))
                    .filter(|_| !is_explained),
                ..ok(doctor.check(), "0 clusters")
            }
        }
    };
    found.insert(0, first);
    found
}

/// The advice if the hub has no object that describes a cluster.
fn advice_without_objects(hub: &Hub) -> Fix {
    let kind = &hub.kind;
    let list_all = format!("list the {}s that there are", kind.kind);
    let action = match hub.namespaces.as_slice() {
        [] => list_all,
        _ => format!("choose another namespace with -n or -A, or {list_all}"),
    };
    Fix {
        command: format!("kubectl get {}.{} --all-namespaces", kind.plural, kind.group).into(),
        ..plain(&action, "")
    }
}

/// The findings about a name that no provider announces.
pub(super) async fn missing(
    name: &str,
    known: &[String],
    running: &Running,
    examiner: &CommandExaminer,
) -> Vec<Row> {
    let mut found = Vec::new();
    let snapshot = running.fleet.snapshot();
    for tap in &running.taps {
        // With several providers, the name of a cluster begins with the name of its provider. The user may have left
        // that out.
        let prefix = format!("{}#", tap.name());
        let mut findings =
            hub::missing(&*tap.doctor, name.strip_prefix(&prefix).unwrap_or(name), examiner).await;
        let is_shown = |cluster: &&mcr_core::ClusterStatus| {
            let origin = running.tap_and_name(&cluster.name);
            let shown = cluster.properties.get(DISPLAY_NAME);
            origin.is_some_and(|(of, _)| of.name() == tap.name()) && shown.is_some_and(|shown| shown == name)
        };
        findings.extend(snapshot.clusters.iter().filter(is_shown).map(|cluster| Finding {
            level: Level::Problem,
            fix: Some(plain(&format!("repeat with the name {}", cluster.name), "")),
            ..ok(
                "name",
                format!(
                    "this is {}, whose cluster is named {}",
                    tap.doctor.display_name(),
                    cluster.name
                ),
            )
        }));
        let row = |finding| Row::new(Some(tap.name()), Some(name), finding);
        found.extend(findings.into_iter().map(row));
    }
    if found.is_empty() {
        found.push(Row::new(None, Some(name), unknown(name, known)));
    }
    found
}

fn unknown(name: &str, known: &[String]) -> Finding {
    let is_close = |known: &&str| known.contains(name) || name.contains(*known);
    let all = known.iter().map(String::as_str);
    let mut close: Vec<&str> = all.clone().filter(is_close).collect();
    if close.is_empty() {
        close = all.take(5).collect();
    }
    let known_names = match close.as_slice() {
        [] => "there are none".to_owned(),
        close => format!("there are {}", close.join(", ")),
    };
    let action = "list the clusters that there are, with the same flags";
    Finding {
        level: Level::Problem,
        fix: Some(plain(action, "mcr clusters")),
        ..ok(
            "name",
            format!("no provider has a cluster of this name ({known_names})"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_announces_is_answered_with_those_that_are_known() {
        let known = ["kind#eu-1".to_owned(), "kind#us-1".to_owned()];
        for (name, known, there) in [
            ("eu-1", &known[..], "(there are kind#eu-1)"),
            ("elsewhere", &known[..], "(there are kind#eu-1, kind#us-1)"),
            ("elsewhere", &[], "(there are none)"),
        ] {
            assert!(unknown(name, known).message.ends_with(there), "{name}");
        }
    }
}
