//! What `mcr doctor` checks for Shoots of Gardener.

use kube::Client;
use mcr_core::doctor::{Advice, Described, Doctor, Fault, Hub, Kind, Right, Values};

pub(crate) struct GardenerDoctor(Hub);

const SHOOTS: Kind = Kind {
    group: "core.gardener.cloud",
    version: "v1beta1",
    plural: "shoots",
    kind: "Shoot",
    api: "the API of Gardener",
    deletion_note: " (GardenerProviderBuilder::keep_while keeps it longer)",
};
const SEED: Kind = Kind {
    group: "extensions.gardener.cloud",
    version: "v1alpha1",
    plural: "clusters",
    kind: "Cluster",
    api: "the API of Gardener's extensions",
    deletion_note: "",
};

const READ_SHOOTS: Right<'static> = Right::new("shoots.core.gardener.cloud", &["list", "watch"]);
const RIGHTS_WITH_ADMIN_KUBECONFIG: &[Right<'static>] = &[
    READ_SHOOTS,
    Right::new("shoots.core.gardener.cloud/adminkubeconfig", &["create"]),
];
const RIGHTS_WITH_VIEWER_KUBECONFIG: &[Right<'static>] = &[
    READ_SHOOTS,
    Right::new("shoots.core.gardener.cloud/viewerkubeconfig", &["create"]),
];
const RIGHTS_IN_SEED: &[Right<'static>] = &[
    Right::new("clusters.extensions.gardener.cloud", &["list", "watch"]),
    Right {
        name: Some("gardener"),
        ..Right::new("secrets", &["list", "watch", "get"])
    },
];

const DESCRIBE: &str = "kubectl -n {namespace} describe shoots.core.gardener.cloud {name}";
const CONTEXTS: &str = "kubectl config get-contexts";
const OTHER_GARDEN: &str = "choose the garden with --hub-context or --hub-kubeconfig; for a seed, add --seed";
const OTHER_SEED: &str =
    "choose the seed with --hub-context or --hub-kubeconfig; for a garden, leave --seed out";
const GRANT_RIGHTS: &str = "grant the rights that the findings about the provider name";

const ADVICE: &[Advice] = &[
    Advice::new(Fault::NotServed, "core.gardener.cloud", OTHER_GARDEN, CONTEXTS),
    Advice::new(Fault::NotServed, "", OTHER_SEED, CONTEXTS),
    Advice::new(Fault::Description, "grant the verb ", GRANT_RIGHTS, ""),
    Advice::new(
        Fault::Description,
        "",
        "check the Shoot, whose kubeconfig Gardener makes",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Credentials,
        "",
        "check the Shoot; the provider asks for new credentials by itself",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Suspended,
        "",
        "check the Shoot, which reports what Gardener does; one that is hibernated can be woken up",
        DESCRIBE,
    ),
    Advice::new(
        Fault::Obstacle,
        "deleting",
        "check its last operation, which reports what the deletion waits for",
        DESCRIBE,
    ),
];

impl GardenerDoctor {
    /// A doctor for the hub of this client. `subresource` is the subresource of Shoots that issues kubeconfigs, or
    /// `None` if the hub is a seed.
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        selector: Option<String>,
        subresource: Option<&str>,
    ) -> Self {
        let (kind, rights) = match subresource {
            None => (SEED, RIGHTS_IN_SEED),
            Some("viewerkubeconfig") => (SHOOTS, RIGHTS_WITH_VIEWER_KUBECONFIG),
            Some(_) => (SHOOTS, RIGHTS_WITH_ADMIN_KUBECONFIG),
        };
        Self(Hub {
            client,
            kind,
            namespaces,
            selector,
            rights,
        })
    }
}

impl Doctor for GardenerDoctor {
    fn advice(&self) -> &'static [Advice] {
        ADVICE
    }

    fn values(&self, cluster: Option<&Described<'_>>) -> Values {
        let shoot = cluster.and_then(|cluster| {
            // A cluster without a usable description has no properties, but its broken announcement names the Shoot.
            let broken = cluster
                .broken
                .and_then(|object| object.strip_prefix("Shoot ")?.split_once('/'));
            let property = |key: &str| cluster.properties.get(key).map(String::as_str);
            property("namespace").zip(property("shoot")).or(broken)
        });
        shoot
            .map(|(namespace, name)| Hub::values(namespace, name))
            .unwrap_or_default()
    }

    fn hub(&self) -> Option<&Hub> {
        Some(&self.0)
    }

    /// A cluster of a garden is named `project/shoot`. The namespace of a Project is usually `garden-` plus its name,
    /// sometimes only its name. A seed has no Shoots, so there is nothing to search for.
    fn object_locations(&self, cluster: &str) -> Vec<(Option<String>, String)> {
        match cluster.split_once('/') {
            _ if self.0.kind.group == SEED.group => Vec::new(),
            Some((project, name)) => vec![
                (Some(format!("garden-{project}")), name.to_owned()),
                (Some(project.to_owned()), name.to_owned()),
            ],
            None => vec![
                (self.0.namespaces.first().cloned(), cluster.to_owned()),
                (None, cluster.to_owned()),
            ],
        }
    }
}
