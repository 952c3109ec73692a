//! Advice: the command or the action that corrects a problem of a cluster. Without I/O.

use super::{
    command::{CLUSTERS, Command, Grant, PROFILES},
    diagnosis_gardener,
    facts::{Api, ClusterFacts, Connection, Failure, FailureKind, Origin, Right, Verdict},
    fix::Fix,
};

/// The advice for a description that can't be used.
pub(super) fn describe_again(origin: &Origin) -> Fix {
    match origin {
        Origin::Secret { namespace, name } => {
            Fix::action("repeat this with the flags it was made with").and_run(create_secret(namespace, name, ""))
        }
        Origin::File { path, .. } => Fix::action(format!("correct {path}")),
        Origin::KindCluster { name, .. } => Fix::action(
            "look whether kind itself can use the cluster; make it again only if it can't, because all that is in it is lost then",
        )
        .and_run(Command::ExportKindKubeconfig(name.clone())),
        Origin::ClusterApi { namespace, name } => Fix::action(format!(
            "correct the Secret {namespace}/{name}-kubeconfig, or delete it if a control plane provider owns it, which then \
             writes a new one"
        )),
        Origin::Shoot { namespace, name } => {
            let look = "look at the Shoot, whose kubeconfig Gardener makes";
            Fix::action(look).and_run(diagnosis_gardener::describe(namespace, name))
        }
        Origin::ClusterProfile { namespace, name } => {
            let look =
                "look at status.accessProviders of the ClusterProfile, which its cluster manager writes";
            Fix::action(look).and_run(describe(PROFILES, namespace, name))
        }
        Origin::KcpAddress => Fix::action(
            "add the authorities that sign the certificates of all shards to certificate-authority-data of the hub's \
             kubeconfig: the provider connects to each endpoint with the authorities and the credentials of the hub",
        ),
        Origin::KcpWorkspace { .. } | Origin::Other => Fix::action("correct the description of the cluster"),
    }
}

/// The advice for a description that is refused for this reason.
pub(super) fn refused(origin: &Origin, reason: &str) -> Fix {
    // The same command without `--server` would write the same address again.
    if reason.contains("kube-system UID") {
        Fix::action(
            "choose one name for the cluster and remove the others, or let the program allow duplicates",
        )
    } else if reason.contains("untrusted access may not use") {
        other_address(origin, reason)
    } else if reason.contains("can't be read in the hub") {
        Fix::action("grant the rights that the findings about the provider name")
    } else {
        match origin {
            Origin::Shoot { .. } if reason.contains("grant the verb ") => {
                Fix::action("grant the rights that the findings about the provider name")
            }
            Origin::ClusterApi { namespace, name } if reason.starts_with("the Cluster: ") => {
                Fix::action("correct the Cluster").and_run(describe_managed(namespace, name))
            }
            _ => describe_again(origin),
        }
    }
}

/// The advice for an address that the access policy refuses for this reason.
pub(super) fn other_address(origin: &Origin, reason: &str) -> Fix {
    let loopback = reason.contains("loopback");
    match origin {
        Origin::Secret { namespace, name } => {
            let here = if loopback {
                "--allow-loopback here and "
            } else {
                ""
            };
            let address = " --server https://ADDRESS-THAT-PODS-REACH";
            Fix::action(format!(
                "allow this address, if it is meant ({here}AccessPolicy::addresses in the controller), or give another one"
            ))
            .and_run(create_secret(namespace, name, address))
        }
        Origin::ClusterApi { namespace, name } => {
            let here = if loopback {
                "--allow-loopback here and "
            } else {
                ""
            };
            Fix::action(format!(
                "allow this address, if it is meant ({here}AccessPolicy::addresses in the controller), or correct \
                 spec.controlPlaneEndpoint of the Cluster {namespace}/{name}"
            ))
        }
        _ if loopback => {
            Fix::action("give an address that other machines reach, or allow this one with --allow-loopback")
        }
        _ => Fix::action("give an address that other machines reach"),
    }
}

/// The advice for a certificate that is for another name.
pub(super) fn other_name(origin: &Origin) -> Fix {
    match origin {
        Origin::Secret { namespace, name } => {
            create_secret(namespace, name, " --server https://A-NAME-IN-THE-CERTIFICATE").into()
        }
        _ => Fix::action("correct the address, or set tls-server-name"),
    }
}

/// The advice for a certificate of the server that has expired or soon will.
pub(super) fn renew_certificate() -> Fix {
    Fix::action("renew the certificate on the control-plane node, or as the distribution says")
        .and_run(Command::RenewCertificate)
}

/// The advice if one of the clocks seems to be wrong, and it is unknown which.
pub(super) fn compare_clocks() -> Fix {
    Fix::action("compare the clocks of both machines, one of which is wrong").and_run(Command::ShowClock)
}

/// The advice for a clock that is wrong.
pub(super) fn set_clock() -> Fix {
    Fix::action("synchronize the clock that is wrong (compare with https://time.is)")
        .and_run(Command::SynchronizeClock)
}

/// The advice for credentials that have to be renewed.
pub(super) fn renew(origin: &Origin) -> Fix {
    match origin {
        Origin::Secret { namespace, name } => create_secret(namespace, name, " --rotate").into(),
        Origin::File { path, context } => {
            Fix::action(format!("renew the credentials in {path}, then try them")).and_run(Command::WhoAmI {
                path: path.clone(),
                context: context.clone(),
            })
        }
        Origin::KindCluster { name, engine } => on_node(engine, "restart", name).into(),
        Origin::ClusterApi { namespace, name } => Fix::action(format!(
            "renew the credentials in the Secret {namespace}/{name}-kubeconfig, or delete it if a control plane provider owns \
             it, which then writes a new one unless the Cluster is paused"
        )),
        Origin::ClusterProfile { .. } => {
            Fix::action("renew the credentials that the plugin gives, or the Secret of the cluster")
        }
        Origin::Shoot { namespace, name } => {
            Fix::action("look at the Shoot; the provider asks for new credentials by itself")
                .and_run(diagnosis_gardener::describe(namespace, name))
        }
        Origin::KcpAddress => Fix::action("renew the credentials in the kubeconfig of the hub"),
        Origin::KcpWorkspace { .. } | Origin::Other => {
            Fix::action("renew the credentials where the provider gets them from")
        }
    }
}

/// The advice for missing rights.
pub(super) fn grant(origin: &Origin, right: &Right, api: &Api) -> Fix {
    let (resource, verbs) = (&right.resource, right.verbs.join(","));
    match origin {
        Origin::Secret { namespace, name } => {
            let repeat = "then repeat this with the other flags it was made with";
            Fix::action(format!("add {resource} with {verbs} to rules.yaml, {repeat}"))
                .and_run(create_secret(namespace, name, " --rules-file rules.yaml"))
        }
        _ => {
            let kind: String = resource
                .chars()
                .map(|char| if char.is_ascii_alphanumeric() { char } else { '-' })
                .collect();
            let kind = match kind.trim_matches('-') {
                "" => "all",
                kind => kind,
            };
            let grant = Command::Grant(Box::new(Grant {
                elsewhere: true,
                role: format!("mcr-{kind}"),
                namespace: api.namespace.clone(),
                verbs,
                resource: resource.clone(),
                name: None,
                user: api.user.clone(),
            }));
            let place = match api.namespace {
                Some(_) => "",
                None => ", or choose one namespace with --in-namespace",
            };
            Fix::action(format!("grant it as an administrator of the cluster{place}")).and_run(grant)
        }
    }
}

/// The advice for a suspended cluster.
pub(super) fn wake(origin: &Origin) -> Option<Fix> {
    match origin {
        Origin::KindCluster { name, engine } => Some(on_node(engine, "start", name).into()),
        Origin::ClusterApi { namespace, name } => {
            let look = Fix::action("look at the Cluster, which says what Cluster API waits for");
            Some(look.and_run(describe_managed(namespace, name)))
        }
        Origin::Shoot { namespace, name } => {
            let look = Fix::action(
                "look at the Shoot, which says what Gardener does; one that is hibernated can be woken up",
            );
            Some(look.and_run(diagnosis_gardener::describe(namespace, name)))
        }
        Origin::ClusterProfile { namespace, name } => {
            let look = Fix::action("look at the ClusterProfile, whose conditions its cluster manager writes");
            Some(look.and_run(describe(PROFILES, namespace, name)))
        }
        Origin::KcpWorkspace {
            address,
            binding: Some(binding),
            ..
        } => {
            let look = Fix::action("look at the conditions of the APIBinding, which say what kcp waits for");
            Some(look.and_run(Command::Look {
                server: address.clone(),
                verb: "describe",
                resource: "apibindings.apis.kcp.io",
                name: Some(binding.clone()),
            }))
        }
        _ => None,
    }
}

/// The advice for a server that accepts no connection.
pub(super) fn unreached(origin: &Origin, connection: &Connection, failure: &Failure) -> Fix {
    match (origin, failure.kind) {
        (Origin::KindCluster { name, engine }, _) => on_node(engine, "start", name).into(),
        (_, FailureKind::Refused) => Fix::action("start the API server, or correct the address, then try")
            .and_run(get(origin, connection, "/livez")),
        (_, FailureKind::TimedOut) => Fix::action(format!(
            "look at firewalls and routes between here and {}",
            connection.address
        )),
        _ => get(origin, connection, "/livez").into(),
    }
}

/// The advice for a server that accepts the connection and then sends nothing or nonsense.
pub(super) fn unanswered(origin: &Origin, connection: &Connection, failure: &Failure) -> Fix {
    match (origin, failure.kind) {
        (Origin::KindCluster { name, engine }, FailureKind::TimedOut) => {
            on_node(engine, "restart", name).into()
        }
        (_, FailureKind::TimedOut) => Fix::action("restart the API server, or correct the port, then try")
            .and_run(get(origin, connection, "/livez")),
        _ => get(origin, connection, "/version").into(),
    }
}

/// The advice if no step shows the cause.
pub(super) fn look_closer(facts: &ClusterFacts) -> Option<Fix> {
    let found = facts.connection.as_ref()?;
    Some(match &found.credential.plugin {
        Some(plugin) => Fix::action(format!(
            "run the program {plugin} by hand: the credentials come from it"
        )),
        None => get(&facts.origin, found, "/livez?verbose").into(),
    })
}

/// A request with the context, if that is known, because its kubeconfig has the certificate authority. Otherwise a request
/// without credentials. That one skips the verification of the certificate only if the certificate is known to be good:
/// otherwise the certificate may be the fault, and skipping would hide it.
fn get(origin: &Origin, connection: &Connection, path: &str) -> Command {
    if let Origin::File { path: file, context } = origin
        && !context.is_empty()
    {
        return Command::GetRaw {
            file: file.clone(),
            context: context.clone(),
            path: path.to_owned(),
        };
    }
    let greeted = connection.reach.as_ref().and_then(|reach| reach.greeted.as_ref());
    let good = matches!(greeted, Some(Ok(tls)) if tls.verdict == Some(Verdict::Good));
    Command::Get {
        url: format!("{}{path}", connection.address),
        insecure: good || connection.insecure,
    }
}

fn create_secret(namespace: &str, name: &str, more: &'static str) -> Command {
    Command::CreateSecret {
        namespace: namespace.to_owned(),
        name: Some(name.to_owned()),
        more,
    }
}

fn describe_managed(namespace: &str, name: &str) -> Command {
    describe(CLUSTERS, namespace, name)
}

fn describe(resource: &'static str, namespace: &str, name: &str) -> Command {
    Command::Describe {
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn on_node(engine: &str, action: &'static str, cluster: &str) -> Command {
    Command::Node {
        engine: engine.to_owned(),
        action,
        cluster: cluster.to_owned(),
    }
}
