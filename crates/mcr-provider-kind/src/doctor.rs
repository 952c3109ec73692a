//! What `mcr doctor` checks of kind clusters.

use mcr_core::doctor::{Advice, Described, Doctor, Fault, Values};

pub(crate) struct KindDoctor;

const START: &str = "{engine} start {node}";
const RESTART: &str = "{engine} restart {node}";
const INSTALL: &str = "install docker, nerdctl or podman, or put it on PATH";

const ADVICE: &[Advice] = &[
    Advice::new(Fault::Source, "none of", INSTALL, ""),
    Advice::new(Fault::Source, "docker", "", "docker ps"),
    Advice::new(Fault::Source, "nerdctl", "", "nerdctl ps"),
    Advice::new(Fault::Source, "podman", "", "podman ps"),
    Advice::new(Fault::Source, "", INSTALL, ""),
    Advice::new(Fault::NoClusters, "", "", "kind create cluster"),
    Advice::new(
        Fault::Description,
        "",
        "check whether kind itself can use the cluster; make it again only if it can't, because all that is in it is lost then",
        "kind export kubeconfig --name {name}",
    ),
    Advice::new(Fault::Credentials, "", "", RESTART),
    Advice::new(Fault::Suspended, "", "", START),
    Advice::new(Fault::Unreached, "", "", START),
    Advice::new(Fault::Unanswered, "(waited for", "", RESTART),
];

impl Doctor for KindDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn check(&self) -> &'static str {
        "engine"
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let Some(cluster) = cluster else {
            return Values::new();
        };
        let engine = cluster.properties.get("engine").map_or("docker", String::as_str);
        Values::from([
            ("name", cluster.name.to_owned()),
            ("node", format!("{}-control-plane", cluster.name)),
            ("engine", engine.to_owned()),
        ])
    }
}
