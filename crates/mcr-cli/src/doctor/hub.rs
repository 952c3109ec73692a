//! Examines the hub of a provider: the API of the provider's kind, the rights of the user, and the objects of clusters.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use mcr_core::doctor::{
    Doctor, Examiner, Fault, Finding, Fix, Hub, InHub, Level, Obstacle, Selected, Values,
};
use serde_json::Value;

use super::{
    ask::{self as requests, in_time, version},
    examiner::CommandExaminer,
    finding::ok,
    fix::{advise, plain},
};

/// The versions of the API group that the hub serves, the preferred one first. Empty if the hub serves none.
async fn versions(hub: &Hub, examiner: &CommandExaminer) -> Result<Vec<String>, String> {
    if hub.kind.group.is_empty() {
        return Ok(vec![hub.kind.version.to_owned()]);
    }
    let groups = in_time(hub.client.list_api_groups(), examiner.limit).await?;
    let group = groups
        .groups
        .into_iter()
        .find(|served| served.name == hub.kind.group);
    Ok(group.map_or_else(Vec::new, |group| {
        let preferred = group.preferred_version.map(|preferred| preferred.version);
        let mut versions: Vec<String> = group.versions.into_iter().map(|one| one.version).collect();
        // The sort is stable, so the other versions stay in the order of the server.
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        versions
    }))
}

/// The findings about a hub. `None` if the hub does not serve the API of the kind. Findings about rights would then
/// mean nothing.
pub(super) async fn examine(hub: &Hub, examiner: &CommandExaminer) -> Option<Vec<Finding>> {
    let (kind, mut found) = (&hub.kind, Vec::new());
    match versions(hub, examiner).await {
        Ok(versions) if versions.is_empty() => return None,
        Ok(_) if kind.group.is_empty() => {}
        Ok(versions) => found.push(ok(
            "hub",
            format!("serves {} in {}", kind.group, versions.join(", ")),
        )),
        Err(why) => found.push(Finding {
            level: Level::Warning,
            ..ok(
                "hub",
                format!("it is unknown whether {} is installed: {why}", kind.api),
            )
        }),
    }
    let (version, user) = futures::join!(version(&hub.client, examiner.limit), examiner.user(&hub.client));
    if let Ok(version) = version {
        found.push(ok("hub", format!("{version}; asked as {user}")));
    }
    let all = [None];
    let each: Vec<Option<&str>> = hub
        .namespaces
        .iter()
        .map(|namespace| Some(&**namespace))
        .collect();
    for namespace in if each.is_empty() { &all[..] } else { &each } {
        if let Some(name) = namespace {
            let namespaces: Api<Namespace> = Api::all(hub.client.clone());
            // A user who may not see namespaces gets no finding about them.
            if let Ok(None) = in_time(namespaces.get_metadata_opt(name), examiner.limit).await {
                let action = "choose another namespace with -n, or create this one";
                found.push(Finding {
                    level: Level::Problem,
                    fix: Some(Fix {
                        values: Values::from([("namespace", (*name).to_owned())]),
                        ..plain(action, "kubectl create namespace {namespace}")
                    }),
                    ..ok("hub", format!("the hub has no namespace {name}"))
                });
                // Rights in a namespace that does not exist mean nothing.
                continue;
            }
        }
        let where_in_words = requests::place(*namespace);
        for right in hub.rights {
            found.push(
                examiner
                    .right(&hub.client, *right, *namespace, &format!(" {where_in_words}"))
                    .await,
            );
        }
    }
    Some(found)
}

/// The objects with this name and these labels, in one namespace, or in all namespaces if it is `None`.
async fn objects(
    hub: &Hub,
    namespace: Option<&str>,
    name: &str,
    labels: &str,
    examiner: &CommandExaminer,
) -> Vec<Value> {
    let versions = versions(hub, examiner).await.unwrap_or_default();
    let version = versions.iter().find(|version| *version == hub.kind.version);
    let Some(version) = version.or(versions.first()) else {
        return Vec::new();
    };
    // A list with a field selector, because the name comes from the command line. In the path of a GET it could lead
    // to another path.
    let fields = format!("metadata.name={name}");
    let selected = Selected {
        namespace,
        fields: &fields,
        labels,
    };
    let listed = examiner.list(&hub.client, [hub.kind.group, version, hub.kind.plural], selected);
    listed.await.unwrap_or_default()
}

/// Why a cluster is Suspended, with the advice.
pub(super) async fn suspended(
    doctor: &dyn Doctor,
    values: &Values,
    reason: Option<&str>,
    examiner: &CommandExaminer,
) -> Option<(Obstacle, Option<Fix>)> {
    let (hub, namespace, name) = (doctor.hub()?, values.get("namespace")?, values.get("name")?);
    let objects = objects(hub, Some(namespace), name, "", examiner).await;
    let of = InHub {
        namespace,
        name,
        object: objects.first(),
        reason,
    };
    let found = doctor.obstacle(of, examiner).await?;
    let fix = advise(doctor, Fault::Obstacle, found.cause, values);
    Some((found, fix))
}

/// The obstacle if the object of a cluster is being deleted.
fn deletion_obstacle(hub: &Hub, of: InHub<'_>) -> Obstacle {
    let (kind, note) = (hub.kind.kind, hub.kind.deletion_note);
    Obstacle {
        level: Level::Problem,
        cause: "deleting",
        message: format!(
            "the {kind} {}/{} is being deleted; it left the fleet when its deletion began{note}",
            of.namespace, of.name
        ),
    }
}

/// Explains why the provider announces no cluster of this name: a finding for each object that such a cluster could
/// come from.
pub(super) async fn missing(doctor: &dyn Doctor, cluster: &str, examiner: &CommandExaminer) -> Vec<Finding> {
    let Some(hub) = doctor.hub() else {
        return Vec::new();
    };
    let locations = doctor.object_locations(cluster);
    for (namespace, name) in locations
        .iter()
        .filter(|(_, name)| crate::values::is_subdomain(name))
    {
        let objects = objects(hub, namespace.as_deref(), name, "", examiner).await;
        let found = futures::future::join_all(
            objects
                .iter()
                .map(|object| not_announced(doctor, hub, name, object, examiner)),
        )
        .await;
        if !found.is_empty() {
            return found;
        }
    }
    let Some((Some(namespace), name)) = locations.first() else {
        return Vec::new();
    };
    let of = InHub {
        namespace,
        name,
        object: None,
        reason: None,
    };
    let found = doctor.obstacle(of, examiner).await;
    found
        .map(|found| finding(doctor, of, found))
        .into_iter()
        .collect()
}

/// Explains why the provider announces no cluster for this object.
async fn not_announced(
    doctor: &dyn Doctor,
    hub: &Hub,
    name: &str,
    object: &Value,
    examiner: &CommandExaminer,
) -> Finding {
    let kind = hub.kind.kind;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let of = InHub {
        namespace,
        name,
        object: Some(object),
        reason: None,
    };
    let problem = |message: String, action: &str| Finding {
        level: Level::Problem,
        fix: Some(plain(action, "")),
        ..ok("name", message)
    };
    if !hub.namespaces.is_empty() && !hub.namespaces.iter().any(|wanted| wanted == namespace) {
        let wanted = hub.namespaces.join(", ");
        let message =
            format!("there is a {kind} {name} in namespace {namespace}, but the provider looks in {wanted}");
        return problem(message, &format!("repeat with -n {namespace}"));
    }
    if let Some(selector) = &hub.selector
        && objects(hub, Some(namespace), name, selector, examiner)
            .await
            .is_empty()
    {
        let message = format!("the labels of the {kind} {namespace}/{name} do not match --selector");
        return problem(
            message,
            &format!("add the labels to the {kind}, or repeat with another --selector"),
        );
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return finding(doctor, of, deletion_obstacle(hub, of));
    }
    match doctor.obstacle(of, examiner).await {
        Some(found) => finding(doctor, of, found),
        None => problem(
            format!("there is a {kind} {namespace}/{name}, and the provider has not announced it yet"),
            "repeat",
        ),
    }
}

/// The obstacle of a cluster as a finding, with the advice on it.
fn finding(doctor: &dyn Doctor, of: InHub<'_>, found: Obstacle) -> Finding {
    let mut values = doctor.values(None);
    values.extend([
        ("namespace", of.namespace.to_owned()),
        ("name", of.name.to_owned()),
    ]);
    Finding {
        level: found.level,
        fix: advise(doctor, Fault::Obstacle, found.cause, &values),
        ..ok("name", found.message)
    }
}
