//! What `mcr doctor` checks of Secrets with kubeconfigs.

use std::sync::Arc;

use futures::future::BoxFuture;
use mcr_core::doctor::{
    Advice, Described, Doctor, Examiner, Fault, Hub, InHub, Kind, Level, Obstacle, Right, Values,
};

use crate::config::Config;

pub(crate) struct KubeconfigDoctor(pub(crate) Arc<Config>);

const SECRETS: Kind = Kind {
    group: "",
    version: "v1",
    plural: "secrets",
    kind: "Secret",
    api: "",
    keeps: "",
};

const RIGHTS: &[Right<'static>] = &[
    Right {
        resource: "secrets",
        verbs: &["list", "watch"],
        name: None,
        without: "",
    },
    Right {
        resource: "events.events.k8s.io",
        verbs: &["create", "patch"],
        name: None,
        without: "the provider can't write events about faulty Secrets",
    },
];

const CREATE: &str = "mcr kubeconfig-secret create --context CONTEXT --name {name} -n {namespace}";
const LABEL: &str = "kubectl -n {namespace} label --overwrite secret {name} {label}";
const AT_ADDRESS: &str = "mcr kubeconfig-secret create --context CONTEXT --name {name} -n {namespace} \
                          --server https://ADDRESS-THAT-PODS-REACH";

const ADVICE: &[Advice] = &[
    Advice::new(
        Fault::NoClusters,
        "",
        "",
        "mcr kubeconfig-secret create --context CONTEXT -n {namespace}",
    ),
    Advice::new(
        Fault::Description,
        "",
        "repeat this with the flags it was made with",
        CREATE,
    ),
    Advice::new(
        Fault::Address,
        "loopback",
        "allow this address, if it is meant (--allow-loopback here and AccessPolicy::addresses in the controller), or give \
         another one",
        AT_ADDRESS,
    ),
    Advice::new(
        Fault::Address,
        "",
        "allow this address, if it is meant (AccessPolicy::addresses in the controller), or give another one",
        AT_ADDRESS,
    ),
    Advice::new(
        Fault::OtherName,
        "",
        "",
        "mcr kubeconfig-secret create --context CONTEXT --name {name} -n {namespace} --server https://A-NAME-IN-THE-CERTIFICATE",
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "",
        "mcr kubeconfig-secret create --context CONTEXT --name {name} -n {namespace} --rotate",
    ),
    Advice::new(
        Fault::Rights,
        "",
        "add {resource} with {verbs} to rules.yaml, then repeat this with the other flags it was made with",
        "mcr kubeconfig-secret create --context CONTEXT --name {name} -n {namespace} --rules-file rules.yaml",
    ),
    Advice::new(Fault::Obstacle, "label", "", LABEL),
];

impl Doctor for KubeconfigDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let label = ("label", format!("{}=true", self.0.rules.label));
        let Some(cluster) = cluster else {
            let namespace = self.0.namespace.as_deref().unwrap_or("NAMESPACE");
            return Values::from([("namespace", namespace.to_owned()), label]);
        };
        // A cluster that was never usable has no properties, but its announcement names the Secret.
        let broken = cluster
            .broken
            .and_then(|object| object.strip_prefix("Secret ")?.split(',').next());
        let secret = cluster.properties.get("secret").map(String::as_str).or(broken);
        match secret.and_then(|secret| secret.split_once('/')) {
            Some((namespace, name)) => Values::from([
                ("namespace", namespace.to_owned()),
                ("name", name.to_owned()),
                label,
            ]),
            None => Values::new(),
        }
    }

    fn hub(&self) -> Option<Hub> {
        Some(Hub {
            client: self.0.client.clone(),
            kind: SECRETS,
            namespaces: self.0.namespace.clone().into_iter().collect(),
            // The label is an obstacle, with a command that adds it.
            selector: None,
            rights: RIGHTS,
        })
    }

    fn obstacle<'a>(&'a self, of: InHub<'a>, _: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        let label = &self.0.rules.label;
        let secret = format!("there is a Secret {}/{}", of.namespace, of.name);
        let saw = of.object.and_then(|object| {
            let value = &object["metadata"]["labels"][&**label];
            if value.is_null() {
                return Some(format!("{secret}, but without the label {label}=true"));
            }
            (*value != "true").then(|| format!("{secret}, but its label {label} is {value} and not \"true\""))
        });
        Box::pin(std::future::ready(saw.map(|saw| Obstacle {
            level: Level::Problem,
            cause: "label",
            saw,
        })))
    }
}
