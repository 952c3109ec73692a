//! `cluster-inventory` and `fleet-health`, on a simulated hub and simulated clusters of its own.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::ByteString;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcr_provider_cluster_inventory::v1alpha2::ClusterProfile;
use mcr_testkit::{
    control_plane::{Credentials, KubeconfigBuilder},
    sim::{SimCluster, SimFleet, SimRule, SimUser},
    waiting::{OrFail, eventually},
};
use serde_json::{Value, json};

use crate::{
    page::{self, Example, Terminal, texts},
    program::{self, Program},
};

const PATIENCE: Duration = Duration::from_secs(90);
const PAGE: &str = "docs/cluster-inventory.md";
const EXAMPLE: Example = Example("cluster-inventory");
const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

/// The namespaces and rules of the roles in `rbac.yaml`, which have one rule each.
fn rules() -> Vec<(String, Value)> {
    let roles = EXAMPLE
        .manifest("rbac.yaml")
        .into_iter()
        .filter(|object| object["kind"] == "Role");
    let rule = |role: Value| {
        assert_eq!(role["rules"].as_array().unwrap().len(), 1);
        let namespace = role["metadata"]["namespace"].as_str().unwrap().to_owned();
        (namespace, role["rules"][0].clone())
    };
    roles.map(rule).collect()
}

/// What they grant, as `namespace resource verb`.
fn granted() -> BTreeSet<String> {
    let rights = rules().into_iter().flat_map(|(namespace, rule)| {
        let place = format!("{namespace} {}", rule["resources"][0].as_str().unwrap());
        texts(&rule["verbs"])
            .into_iter()
            .map(move |verb| format!("{place} {verb}"))
    });
    rights.collect()
}

/// A user with these rights.
fn controller() -> SimUser {
    rules()
        .into_iter()
        .fold(SimUser::new("controller"), |user, (namespace, rule)| {
            let of = |field: &str| texts(&rule[field]);
            let rule = SimRule::new(of("apiGroups"), of("resources"), of("verbs"));
            user.rule(rule.in_namespace(namespace))
        })
}

/// A hub and two clusters, each with a ConfigMap.
struct World {
    clusters: SimFleet,
    folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let clusters = ["cluster-1", "cluster-2", "cluster-3"].map(|name| {
            let cluster = SimCluster::builder()
                .name(name)
                .admin_token(format!("admin-of-{name}"));
            let cluster = cluster.build();
            cluster.create(map("settings")).or_fail();
            cluster
        });
        Self {
            clusters: SimFleet::serve(clusters).await.or_fail(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn get(&self, name: &str) -> SimCluster {
        self.clusters.get(name).unwrap()
    }

    fn hub(&self) -> SimCluster {
        self.get("cluster-1")
    }

    /// All clusters as contexts, and the first one is the current one.
    fn kubeconfig(&self) -> String {
        let names = ["cluster-1", "cluster-2", "cluster-3"].into_iter();
        let builder = names.fold(KubeconfigBuilder::new(), |builder, name| {
            let token = Credentials::Token(format!("admin-of-{name}"));
            builder.context(name, self.clusters.url(name), self.clusters.ca_pem(), token)
        });
        builder.to_yaml()
    }

    /// A file of the user.
    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// The kubeconfig of the hub with this token.
    fn hub_kubeconfig(&self, token: &str) -> PathBuf {
        let (url, ca) = (self.clusters.url("cluster-1"), self.clusters.ca_pem());
        let builder = KubeconfigBuilder::new().context("hub", url, ca, Credentials::Token(token.to_owned()));
        self.file("hub.kubeconfig", &builder.to_yaml())
    }

    /// A provider file whose plugin takes the token of a cluster from the Secret's place: a file beside it.
    fn provider_file(&self) -> PathBuf {
        let folder = self.folder.path().display();
        let script = format!(
            "#!/bin/sh\nname=$(printf '%s' \"$KUBERNETES_EXEC_INFO\" | sed 's/.*\"name\":\"\\([^\"]*\\)\".*/\\1/')\n\
             printf '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
             \"status\":{{\"token\":\"%s\"}}}}' \"$(cat \"{folder}/token-of-$name\")\"\n"
        );
        let plugin = self.file("plugin", &script);
        fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["cluster-2", "cluster-3"] {
            self.file(&format!("token-of-{name}"), &format!("admin-of-{name}"));
        }
        let text = fs::read_to_string(EXAMPLE.folder().join("provider-file.json")).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        file["providers"][0]["execConfig"]["command"] = plugin.to_str().unwrap().into();
        self.file("providers.json", &file.to_string())
    }

    /// The ClusterProfile of a cluster, as the manifests have it.
    fn profile(&self, name: &str, region: &str) -> Value {
        let authority = serde_json::to_value(ByteString(self.clusters.ca_pem().into_bytes())).unwrap();
        let read = |file: &str| fs::read_to_string(EXAMPLE.folder().join(file)).unwrap();
        let text = read("profile.yaml") + &read("status.yaml");
        let text = text
            .replace("NAME", name)
            .replace("REGION", region)
            .replace("SERVER", &self.clusters.url(name))
            .replace("AUTHORITY", authority.as_str().unwrap());
        serde_saphyr::from_str(&text).or_fail()
    }

    /// A hub with the API and the namespaces.
    fn install(&self) {
        for object in [EXAMPLE.manifest("crd.yaml"), EXAMPLE.manifest("namespaces.yaml")].concat() {
            self.hub().create(object).or_fail();
        }
    }

    /// Writes a ClusterProfile and its status.
    async fn put(&self, profile: Value) {
        let name = profile["metadata"]["name"].as_str().unwrap().to_owned();
        let status = Patch::Merge(json!({"status": profile["status"]}));
        self.hub().apply(profile).or_fail();
        let profiles = Api::<ClusterProfile>::namespaced(self.hub().client(), "fleet");
        profiles
            .patch_status(&name, &PatchParams::default(), &status)
            .await
            .or_fail();
    }

    /// The rights that the user `controller` has used in the hub. Nothing was refused.
    fn used(&self) -> BTreeSet<String> {
        let mut used = BTreeSet::new();
        for event in self.hub().audit().events() {
            if event.user == "controller" && event.is_start() && !event.resource.is_empty() {
                assert_ne!(event.code, 403, "{event:?}");
                used.insert(format!("{} {} {}", event.namespace, event.resource, event.verb));
            }
        }
        used
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}})
}

fn reports<'a>(cluster: &'a str, name: &'a str, event: &'a str) -> impl Fn(&Value) -> bool + 'a {
    move |line| line["cluster"] == cluster && line["name"] == name && line["event"] == event
}

/// The flags of a program over the inventory.
fn flags(hub: &Path, providers: &Path) -> String {
    format!(
        "--hub-kubeconfig {} --namespace fleet --clusterprofile-provider-file {} --allow-loopback",
        hub.display(),
        providers.display()
    )
}

fn unhealthy(mut profile: Value) -> Value {
    let condition = &mut profile["status"]["conditions"][0];
    condition["status"] = "False".into();
    condition["message"] = "the agent is silent".into();
    profile
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configmaps_of_clusters_that_join_fall_ill_and_leave() {
    let world = World::start().await;
    world.install();
    world.hub().set_user("controller", controller());
    let (hub, providers) = (world.hub_kubeconfig("controller"), world.provider_file());
    let args = flags(&hub, &providers);
    let args = args.split(' ').collect::<Vec<_>>();
    let program = Program::start("cluster-inventory", &args);
    world.put(unhealthy(world.profile("cluster-3", "us"))).await;
    world.put(world.profile("cluster-2", "eu")).await;
    let line = program.line("a healthy cluster", reports("cluster-2", "settings", "live"));
    assert_eq!(
        (&line["region"], &line["version"]),
        (&json!("eu"), &json!("v1.36.1"))
    );
    // A ClusterProfile that leads nowhere hurts no other.
    let mut broken = world.profile("broken", "eu");
    broken["status"]["accessProviders"][0]["cluster"]["server"] = "ftp://nowhere".into();
    world.put(broken).await;
    program.logged("ClusterProfile fleet/broken", 1);
    assert!(program.lines().iter().all(|line| line["cluster"] == "cluster-2"));
    world.put(world.profile("cluster-3", "us")).await;
    program.line(
        "a cluster that got well",
        reports("cluster-3", "settings", "live"),
    );
    world.hub().delete(PROFILES, "fleet/cluster-3").or_fail();
    program.logged("cluster is gone", 1);
    let lines = program.interrupt();
    assert!(
        !lines.iter().any(reports("cluster-3", "settings", "deleted")),
        "{lines:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_of_a_fleet_from_kubeconfigs_is_one_report() {
    let world = World::start().await;
    for (name, region) in [("cluster-2", "eu"), ("cluster-3", "us"), ("gone", "us")] {
        let server = match name {
            "gone" => "https://127.0.0.1:1".to_owned(),
            name => world.clusters.url(name),
        };
        let token = Credentials::Token(format!("admin-of-{name}"));
        let one = KubeconfigBuilder::new().context(name, server, world.clusters.ca_pem(), token);
        let mut one: Value = serde_saphyr::from_str(&one.to_yaml()).unwrap();
        let labels = json!([{"name": "mcr.dev/labels", "extension": {"region": region}}]);
        one["contexts"][0]["context"]["extensions"] = labels;
        world.file(&format!("{name}.kubeconfig"), &one.to_string());
    }
    // The folder has the kubeconfig of the hub, too.
    let (hub, folder) = (world.hub_kubeconfig("admin-of-cluster-1"), world.folder.path());
    let args = format!(
        "--hub-kubeconfig {} --kubeconfig-dirs {} --globs cluster-*.kubeconfig,gone.kubeconfig",
        hub.display(),
        folder.display()
    );
    let program = Program::start("fleet-health", args.split(' '));
    let is = |groups: Value| move |line: &Value| line["groups"] == groups;
    let reported = async |begin: &str, why: &str| {
        let written = || {
            let map = world.hub().get("configmaps", "default/fleet-health")?;
            let text = map["data"]["report"].as_str()?;
            (text.starts_with(begin) && text.contains(why)).then_some(())
        };
        eventually(PATIENCE, "the report in the hub", written).await;
    };
    program.line("two of three", is(json!({"eu": [1, 1], "us": [1, 2]})));
    reported("eu: 1 of 1 ready\nus: 1 of 2 ready\ngone: ", "Unreachable").await;
    fs::remove_file(folder.join("cluster-3.kubeconfig")).unwrap();
    program.line("one of two", is(json!({"eu": [1, 1], "us": [0, 1]})));
    reported("eu: 1 of 1 ready\nus: 0 of 1 ready\n", "").await;
    program.interrupt();
}

/// The plugin `mcr-exec-secretreader`. `None` if this build has none, which is logged.
fn plugin(test: &str) -> Option<PathBuf> {
    let examples = program::path("cluster-inventory");
    let plugin = examples.ancestors().nth(2)?.join("mcr-exec-secretreader");
    if plugin.is_file() {
        return Some(plugin);
    }
    mcr_testkit::e2e::skipped(
        test,
        "build mcr-exec-secretreader first, as a build of the workspace does",
    );
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_lead_to_two_clusters_and_away_with_the_rights_of_the_manifest() {
    let world = World::start().await;
    let test = "cluster-inventory";
    let (Some(plugin), Some(terminal)) = (
        plugin(test),
        Terminal::open(test, "kubeconfig", &world.kubeconfig()),
    ) else {
        return;
    };
    // The line that the first terminal of the page prints.
    let kubeconfig = terminal.file("kubeconfig");
    fs::write(
        terminal.file("env"),
        format!("export KUBECONFIG={}\n", kubeconfig.display()),
    )
    .unwrap();
    let run = async |block: &str| terminal.run(block).await;
    let blocks = page::blocks(PAGE);
    let [variables, hub, credentials, profiles, providers, changes, end] = blocks.as_slice() else {
        panic!("the page has other steps: {blocks:#?}")
    };
    run(variables).await;
    run(hub).await;
    run(credentials).await;
    run(profiles).await;
    run(providers).await;
    // In place of the administrator, a user with the rights of the manifest.
    world.hub().set_user("controller", controller());
    let controller = fs::read_to_string(world.hub_kubeconfig("controller")).unwrap();
    fs::write(terminal.file(".inventory/hub.kubeconfig"), controller).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [plugin.parent().unwrap().to_owned()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap();
    let (hub, file) = (
        terminal.file(".inventory/hub.kubeconfig"),
        terminal.file(".inventory/providers.json"),
    );
    let args = flags(&hub, &file);
    let args = args.split(' ').collect::<Vec<_>>();
    let program = Program::start_with("cluster-inventory", args, [("PATH", path)]);
    for cluster in ["cluster-2", "cluster-3"] {
        let line = program.line(cluster, reports(cluster, "settings", "live"));
        assert_eq!(line["region"], "eu");
    }
    run(changes).await;
    program.line("the new ConfigMap", reports("cluster-2", "hello", "live"));
    program.logged("the agent is silent", 1);
    run(end).await;
    program.logged("cluster is gone", 1);
    program.interrupt();
    assert_eq!(world.used(), granted());
}

#[test]
fn every_manifest_is_in_a_command_of_the_page() {
    let commands = page::blocks(PAGE).join("\n");
    for entry in fs::read_dir(EXAMPLE.folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_manifest = name.ends_with(".yaml") || name.ends_with(".json");
        assert!(
            !is_manifest || commands.contains(&format!("$here/{name}")),
            "{name} is not used"
        );
    }
}
