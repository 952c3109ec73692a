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
    page::{self, Terminal, repository},
    program::{self, Program},
};

const PATIENCE: Duration = Duration::from_secs(90);
const PAGE: &str = "docs/cluster-inventory.md";
const FOLDER: &str = "examples/examples/cluster-inventory";
const PROFILES: &str = "clusterprofiles.multicluster.x-k8s.io";

/// The objects of a manifest of the example.
fn manifest(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(repository(FOLDER).join(name)).or_fail();
    let documents = text.split("\n---\n");
    documents
        .map(|text| serde_saphyr::from_str(text).or_fail())
        .collect()
}

/// The verbs that `rbac.yaml` grants, as `namespace resource verb`.
fn granted() -> BTreeSet<String> {
    let roles = manifest("rbac.yaml")
        .into_iter()
        .filter(|object| object["kind"] == "Role");
    let rights = roles.flat_map(|role| {
        let rule = &role["rules"][0];
        let verbs: Vec<String> = serde_json::from_value(rule["verbs"].clone()).unwrap();
        let place = format!(
            "{} {}",
            role["metadata"]["namespace"].as_str().unwrap(),
            rule["resources"][0].as_str().unwrap()
        );
        verbs.into_iter().map(move |verb| format!("{place} {verb}"))
    });
    rights.collect()
}

/// A user with the rights of `rbac.yaml`.
fn controller() -> SimUser {
    let roles = manifest("rbac.yaml")
        .into_iter()
        .filter(|object| object["kind"] == "Role");
    roles.fold(SimUser::new("controller"), |user, role| {
        assert_eq!(
            role["rules"].as_array().unwrap().len(),
            1,
            "one rule for each role"
        );
        let texts =
            |field: &str| -> Vec<String> { serde_json::from_value(role["rules"][0][field].clone()).unwrap() };
        let rule = SimRule::new(texts("apiGroups"), texts("resources"), texts("verbs"));
        user.rule(rule.in_namespace(role["metadata"]["namespace"].as_str().unwrap()))
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
        let text = fs::read_to_string(repository(FOLDER).join("provider-file.json")).unwrap();
        let mut file: Value = serde_json::from_str(&text).unwrap();
        file["providers"][0]["execConfig"]["command"] = plugin.to_str().unwrap().into();
        self.file("providers.json", &file.to_string())
    }

    /// The ClusterProfile of a cluster, as the manifests have it.
    fn profile(&self, name: &str, region: &str) -> Value {
        let authority = serde_json::to_value(ByteString(self.clusters.ca_pem().into_bytes())).unwrap();
        let read = |file: &str| fs::read_to_string(repository(FOLDER).join(file)).unwrap();
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
        for object in [manifest("crd.yaml"), manifest("namespaces.yaml")].concat() {
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

fn says<'a>(cluster: &'a str, name: &'a str, event: &'a str) -> impl Fn(&Value) -> bool + 'a {
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
    let line = program.line("a healthy cluster", says("cluster-2", "settings", "live"));
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
    program.line("a cluster that got well", says("cluster-3", "settings", "live"));
    world
        .get("cluster-2")
        .delete("configmaps", "default/settings")
        .or_fail();
    program.line("a deletion", says("cluster-2", "settings", "deleted"));
    world.hub().delete(PROFILES, "fleet/cluster-3").or_fail();
    program.logged("cluster is gone", 1);
    let lines = program.interrupt();
    assert!(
        !lines.iter().any(says("cluster-3", "settings", "deleted")),
        "{lines:#?}"
    );
    let discovers = |right: &String| right.contains("clusterprofiles");
    let granted: BTreeSet<String> = granted().into_iter().filter(discovers).collect();
    assert_eq!(world.used(), granted);

    // The same clusters for every example with --provider.
    let args = [&["--provider", "cluster-inventory"][..], &args[..]].concat();
    let program = Program::start("registry", args);
    let is_ready = |line: &Value| line["cluster"] == "cluster-2" && line["status"]["state"] == "Ready";
    program.line("the same", is_ready);
    program.interrupt();
}

/// The report of `fleet-health` in the hub.
fn report(world: &World) -> Option<String> {
    let map = world.hub().get("configmaps", "default/fleet-health")?;
    Some(map["data"]["report"].as_str()?.to_owned())
}

/// Two clusters are ready and one is not, for this reason. Then the ready one of `us` leaves.
async fn reports_the_health(world: &World, args: &[&str], why: &str, leave: impl AsyncFnOnce()) {
    let hub = world.hub_kubeconfig("admin-of-cluster-1");
    let args = [&["--hub-kubeconfig", hub.to_str().unwrap()][..], args].concat();
    let program = Program::start("fleet-health", args);
    let groups = json!({"eu": [1, 1], "us": [1, 2]});
    let reported = |line: &Value| {
        let reason = line["failing"]["gone"].as_str();
        line["groups"] == groups && reason.is_some_and(|reason| reason.contains(why))
    };
    program.line("two of three", reported);
    let written = || report(world).filter(|report| report.contains(why));
    let text = eventually(PATIENCE, "the report in the hub", written).await;
    let begin = "eu: 1 of 1 ready\nus: 1 of 2 ready\ngone: ";
    assert!(text.starts_with(begin), "{text}");
    leave().await;
    program.line("one of two", |line| {
        line["groups"] == json!({"eu": [1, 1], "us": [0, 1]})
    });
    let written =
        || report(world).filter(|report| report.starts_with("eu: 1 of 1 ready\nus: 0 of 1 ready\n"));
    eventually(PATIENCE, "the new report in the hub", written).await;
    program.interrupt();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_of_a_fleet_from_kubeconfigs_is_one_report() {
    let world = World::start().await;
    let clusters = |names: &[(&str, &str)]| {
        let entry = |(name, region): &(&str, &str)| {
            let server = match *name {
                "gone" => "https://127.0.0.1:1".to_owned(),
                name => world.clusters.url(name),
            };
            let token = Credentials::Token(format!("admin-of-{name}"));
            let one = KubeconfigBuilder::new().context(*name, server, world.clusters.ca_pem(), token);
            let mut one: Value = serde_saphyr::from_str(&one.to_yaml()).unwrap();
            one["contexts"][0]["context"]["extensions"] =
                json!([{"name": "mcr.dev/labels", "extension": {"region": region}}]);
            world.file(&format!("{name}.kubeconfig"), &one.to_string())
        };
        names.iter().map(entry).collect::<Vec<_>>()
    };
    clusters(&[("cluster-2", "eu"), ("cluster-3", "us"), ("gone", "us")]);
    // The folder has the kubeconfig of the hub, too.
    let folder = world.folder.path().to_str().unwrap();
    let args = [
        "--kubeconfig-dirs",
        folder,
        "--globs",
        "cluster-*.kubeconfig,gone.kubeconfig",
    ];
    let leave = async || fs::remove_file(world.folder.path().join("cluster-3.kubeconfig")).unwrap();
    reports_the_health(&world, &args, "Unreachable", leave).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_health_of_a_fleet_from_an_inventory_is_one_report() {
    let world = World::start().await;
    world.install();
    world.put(world.profile("cluster-2", "eu")).await;
    world.put(world.profile("cluster-3", "us")).await;
    let mut gone = unhealthy(world.profile("cluster-3", "us"));
    gone["metadata"]["name"] = "gone".into();
    world.put(gone).await;
    let providers = world.provider_file();
    let args = [
        "--provider",
        "cluster-inventory",
        "--namespace",
        "fleet",
        "--clusterprofile-provider-file",
        providers.to_str().unwrap(),
        "--allow-loopback",
    ];
    let leave = async || world.hub().delete(PROFILES, "fleet/cluster-3").or_fail();
    reports_the_health(&world, &args, "the agent is silent", leave).await;
}

/// The plugin `mcr-exec-secretreader`. `None` if this build has none, which the log says.
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
        let line = program.line(cluster, says(cluster, "settings", "live"));
        assert_eq!(line["region"], "eu");
    }
    run(changes).await;
    program.line("the new ConfigMap", says("cluster-2", "hello", "live"));
    program.logged("the agent is silent", 1);
    run(end).await;
    program.logged("cluster is gone", 1);
    program.interrupt();
    assert_eq!(world.used(), granted());
}

#[test]
fn every_manifest_is_in_a_command_of_the_page() {
    let commands = page::blocks(PAGE).join("\n");
    for entry in fs::read_dir(repository(FOLDER)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_manifest = name.ends_with(".yaml") || name.ends_with(".json");
        assert!(
            !is_manifest || commands.contains(&format!("$here/{name}")),
            "{name} is not used"
        );
    }
}
