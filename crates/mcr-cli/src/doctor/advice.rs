//! Advice: the command or the action that corrects a problem of a cluster. Without I/O.

use super::{
    facts::{ClusterFacts, Connection, Failure, FailureKind, Origin, Right, Verdict},
    finding::word,
};

/// The advice for a description that can't be used.
pub(super) fn describe_again(origin: &Origin) -> String {
    match origin {
        Origin::Secret { namespace, name } => create_secret(namespace, name, ""),
        Origin::File { path, .. } => format!("correct {}", word(path)),
        Origin::KindCluster { name, .. } => {
            format!(
                "kind delete cluster --name {0}; kind create cluster --name {0}",
                word(name)
            )
        }
        Origin::Other => "correct the description of the cluster".to_owned(),
    }
}

/// The advice for a description that is refused for this reason.
pub(super) fn refused(origin: &Origin, reason: &str) -> String {
    // The same command without `--server` would write the same address again.
    if reason.contains("untrusted access may not use") {
        other_address(origin, reason)
    } else {
        describe_again(origin)
    }
}

/// The advice for an address that the access policy refuses for this reason.
pub(super) fn other_address(origin: &Origin, reason: &str) -> String {
    let loopback = reason.contains("loopback");
    match origin {
        Origin::Secret { namespace, name } => {
            let here = if loopback {
                "--allow-loopback here and "
            } else {
                ""
            };
            let create = create_secret(namespace, name, " --server https://ADDRESS-THAT-PODS-REACH");
            format!(
                "{create} (or, if this address is meant, {here}AccessPolicy::addresses in the controller)"
            )
        }
        _ if loopback => {
            "give an address that other machines reach, or allow this one with --allow-loopback".to_owned()
        }
        _ => "give an address that other machines reach".to_owned(),
    }
}

/// The advice for a certificate that is for another name.
pub(super) fn other_name(origin: &Origin) -> String {
    match origin {
        Origin::Secret { namespace, name } => {
            create_secret(namespace, name, " --server https://A-NAME-IN-THE-CERTIFICATE")
        }
        _ => "correct the address, or set tls-server-name".to_owned(),
    }
}

/// The advice for credentials that have to be renewed.
pub(super) fn renew(origin: &Origin) -> String {
    match origin {
        Origin::Secret { namespace, name } => create_secret(namespace, name, " --rotate"),
        Origin::File { path, context } => format!(
            "renew the credentials in {0}; try them with kubectl --kubeconfig {0} --context {1} auth whoami",
            word(path),
            word(context)
        ),
        Origin::KindCluster { name, engine } => on_node(engine, "restart", name),
        Origin::Other => "renew the credentials where its provider has them from".to_owned(),
    }
}

/// The advice for missing rights.
pub(super) fn grant(origin: &Origin, right: &Right) -> String {
    let (resource, verbs) = (&right.resource, right.verbs.join(","));
    match origin {
        Origin::Secret { namespace, name } => format!(
            "add {resource} with {verbs} to a rules file, and repeat: {}",
            create_secret(namespace, name, " --rules-file rules.yaml")
        ),
        _ => format!(
            "kubectl create clusterrole mcr --verb={verbs} --resource={} in that cluster, and a clusterrolebinding to its \
             user; or choose one namespace with --in-namespace",
            word(resource)
        ),
    }
}

/// The advice for a suspended cluster.
pub(super) fn wake(origin: &Origin) -> Option<String> {
    match origin {
        Origin::KindCluster { name, engine } => Some(on_node(engine, "start", name)),
        _ => None,
    }
}

/// The advice for a server that accepts no connection.
pub(super) fn unreached(origin: &Origin, connection: &Connection, failure: &Failure) -> String {
    match (origin, failure.kind) {
        (Origin::KindCluster { name, engine }, _) => on_node(engine, "start", name),
        (_, FailureKind::Refused) => {
            format!(
                "start the API server, or correct the address; then try {}",
                curl(connection, "/livez")
            )
        }
        (_, FailureKind::TimedOut) => {
            format!(
                "look at firewalls and routes between here and {}",
                word(&connection.address)
            )
        }
        _ => curl(connection, "/livez"),
    }
}

/// The advice for a server that accepts the connection and then sends nothing or nonsense.
pub(super) fn unanswered(origin: &Origin, connection: &Connection, failure: &Failure) -> String {
    match (origin, failure.kind) {
        (Origin::KindCluster { name, engine }, FailureKind::TimedOut) => on_node(engine, "restart", name),
        (_, FailureKind::TimedOut) => format!(
            "restart the API server, or correct the port; then try {}",
            curl(connection, "/livez")
        ),
        _ => curl(connection, "/version"),
    }
}

/// The advice if no step shows the cause.
pub(super) fn look_closer(facts: &ClusterFacts) -> Option<String> {
    let found = facts.connection.as_ref()?;
    Some(match &found.credential.plugin {
        Some(plugin) => format!("run {} by hand: it hands out the credentials", word(plugin)),
        None => curl(found, "/livez?verbose"),
    })
}

/// A request with curl. It skips the verification of the certificate (`-k`) only if the certificate is known to be good:
/// otherwise the certificate may be the fault, and `-k` would hide it.
fn curl(connection: &Connection, path: &str) -> String {
    let greeted = connection.reach.as_ref().and_then(|reach| reach.greeted.as_ref());
    let good = matches!(greeted, Some(Ok(tls)) if tls.verdict == Some(Verdict::Good));
    let flags = if good || connection.insecure { "-vk" } else { "-v" };
    format!("curl {flags} {}", word(&format!("{}{path}", connection.address)))
}

fn create_secret(namespace: &str, name: &str, more: &str) -> String {
    format!(
        "mcr kubeconfig-secret create --context CONTEXT --name {} -n {}{more}",
        word(name),
        word(namespace)
    )
}

/// The command for the container of a kind cluster.
fn on_node(engine: &str, what: &str, cluster: &str) -> String {
    format!(
        "{} {what} {}",
        word(engine),
        word(&format!("{cluster}-control-plane"))
    )
}
