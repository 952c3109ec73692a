//! What `mcr doctor` checks of Secrets with kubeconfigs.

use futures::future::BoxFuture;
use kube::Client;
use mcr_core::doctor::{
    Advice, Described, Doctor, Examiner, Fault, Hub, InHub, Kind, Level, Obstacle, Right, Values,
};

pub(crate) struct KubeconfigDoctor {
    hub: Hub,
    label: String,
}

const SECRETS: Kind = Kind {
    group: "",
    version: "v1",
    plural: "secrets",
    kind: "Secret",
    api: "",
    deletion_note: "",
};

const RIGHTS: &[Right<'static>] = &[Right::new("secrets", &["list", "watch"]), Right::EVENTS];

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

impl KubeconfigDoctor {
    pub(crate) fn new(client: Client, namespaces: Vec<String>, label: String) -> Self {
        Self {
            hub: Hub {
                client,
                kind: SECRETS,
                namespaces,
                // The label is an obstacle, with a command that adds it.
                selector: None,
                rights: RIGHTS,
            },
            label,
        }
    }
}

impl Doctor for KubeconfigDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let mut values = match cluster {
            None => {
                let namespace = self.hub.namespaces.first().map_or("NAMESPACE", String::as_str);
                Values::from([("namespace", namespace.to_owned())])
            }
            Some(cluster) => {
                // A cluster that was never usable has no properties, but its announcement names the Secret.
                let broken = cluster
                    .broken
                    .and_then(|object| object.strip_prefix("Secret ")?.split(',').next());
                let secret = cluster.properties.get("secret").map(String::as_str).or(broken);
                let place = secret.and_then(|secret| secret.split_once('/'));
                place
                    .map(|(namespace, name)| Hub::values(namespace, name))
                    .unwrap_or_default()
            }
        };
        values.insert("label", format!("{}=true", self.label));
        values
    }

    fn hub(&self) -> Option<&Hub> {
        Some(&self.hub)
    }

    fn obstacle<'a>(&'a self, of: InHub<'a>, _: &'a dyn Examiner) -> BoxFuture<'a, Option<Obstacle>> {
        let label = &self.label;
        let secret = format!("there is a Secret {}/{}", of.namespace, of.name);
        let message = of.object.and_then(|object| {
            let value = &object["metadata"]["labels"][label];
            if value.is_null() {
                return Some(format!("{secret}, but without the label {label}=true"));
            }
            (*value != "true").then(|| format!("{secret}, but its label {label} is {value} and not \"true\""))
        });
        Box::pin(std::future::ready(message.map(|message| Obstacle {
            level: Level::Problem,
            cause: "label",
            message,
        })))
    }
}
