use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command as Process,
};

use mcr_testkit::{
    control_plane::{Binaries, ControlPlane},
    sim::SimCluster,
    waiting::OrFail,
};

use super::*;

/// How a command is tested. A new variant of [`Command`] does not compile before it is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tested {
    /// The command line of `mcr` takes it.
    Parsed,
    /// Run on a real API server.
    OnServer,
    /// Run on this machine.
    Here,
    /// Only parsed by the program, because it would change this machine or needs a container engine.
    Help,
}

fn tested(command: &Command) -> Tested {
    match command {
        Command::ListClusters | Command::CreateSecret { .. } => Tested::Parsed,
        Command::LabelSecret { .. }
        | Command::ListAll(_)
        | Command::Describe { .. }
        | Command::Look { .. }
        | Command::CreateNamespace(_)
        | Command::Grant(_)
        | Command::WhoAmI { .. }
        | Command::GetRaw { .. }
        | Command::ShowContexts
        | Command::ShowHub => Tested::OnServer,
        Command::Get { .. } | Command::Resolve(_) | Command::ListFile(_) | Command::ShowUser => Tested::Here,
        Command::ListContainers { .. }
        | Command::Node { .. }
        | Command::CreateKindCluster
        | Command::ExportKindKubeconfig(_)
        | Command::ShowClock
        | Command::SynchronizeClock
        | Command::RenewCertificate => Tested::Help,
    }
}

/// At least one command of each variant, for a server and a folder.
fn samples(server: &str, folder: &Path) -> Vec<Command> {
    let folder = folder.display();
    let mut samples = vec![
        Command::ListClusters,
        Command::LabelSecret {
            namespace: "fleet".into(),
            name: "eu-1".into(),
            label: "example.com/l".into(),
            value: "true".into(),
        },
        Command::ListAll(CLUSTERS),
        Command::Describe {
            resource: CLUSTERS,
            namespace: "fleet".into(),
            name: "eu-1".into(),
        },
        Command::ListAll(SHOOTS),
        Command::Describe {
            resource: SHOOTS,
            namespace: "fleet".into(),
            name: "eu-1".into(),
        },
        Command::ListAll(SEED_CLUSTERS),
        Command::ListAll(PROFILES),
        Command::Describe {
            resource: PROFILES,
            namespace: "fleet".into(),
            name: "eu-1".into(),
        },
        Command::WhoAmI {
            path: format!("{folder}/CONTEXT.kubeconfig"),
            context: "CONTEXT".into(),
        },
        Command::GetRaw {
            file: format!("{folder}/CONTEXT.kubeconfig"),
            context: "CONTEXT".into(),
            path: "/livez?verbose".into(),
        },
        Command::ShowContexts,
        Command::ShowHub,
        Command::Get {
            url: format!("{server}/livez?verbose"),
            insecure: false,
        },
        Command::Get {
            url: format!("{server}/version"),
            insecure: true,
        },
        Command::Resolve("localhost".into()),
        Command::ListFile(format!("{folder}/it's mine; id")),
        Command::ShowUser,
        Command::CreateKindCluster,
        Command::ExportKindKubeconfig("a b".into()),
        Command::ShowClock,
        Command::SynchronizeClock,
        Command::RenewCertificate,
    ];
    for more in [
        "",
        " --rotate",
        " --rules-file rules.yaml",
        " --server https://ADDRESS-THAT-PODS-REACH",
        " --server https://A-NAME-IN-THE-CERTIFICATE",
    ] {
        samples.push(Command::CreateSecret {
            namespace: "NAMESPACE".into(),
            name: Some("eu 1".into()).filter(|_| more != " --rotate"),
            more,
        });
    }
    for namespace in ["fleet", "other"] {
        samples.insert(0, Command::CreateNamespace(namespace.into()));
    }
    for (verb, name) in [("get", None), ("describe", Some("default"))] {
        samples.push(Command::Look {
            server: server.to_owned(),
            verb,
            resource: "namespaces",
            name: name.map(str::to_owned),
        });
    }
    for (number, namespace, resource) in [
        (1, None, "configmaps"),
        (2, Some("fleet"), "pods/log"),
        (3, Some("fleet"), "events.events.k8s.io"),
        (4, None, "*"),
        (5, Some("fleet"), "shoots.core.gardener.cloud/adminkubeconfig"),
    ] {
        samples.push(Command::Grant(Box::new(Grant {
            elsewhere: number % 2 == 0,
            role: format!("mcr-{number}"),
            namespace: namespace.map(str::to_owned),
            verbs: "get,list".into(),
            resource: resource.into(),
            name: Some("settings".into()).filter(|_| number == 1),
            user: Some("system:serviceaccount:fleet:robot".into()).filter(|_| number > 1),
        })));
    }
    for engine in ["docker", "nerdctl", "podman"] {
        samples.push(Command::ListContainers {
            engine: engine.into(),
        });
        for action in ["start", "restart"] {
            samples.push(Command::Node {
                engine: engine.into(),
                action,
                cluster: "dev".into(),
            });
        }
    }
    samples
}

/// A finding may be wrong, and its command is pasted by people in a hurry.
#[test]
fn no_command_deletes_or_forces_anything() {
    const BAD: [&str; 9] = [
        "delete", "--force", "rm", "prune", "replace", "drain", "reset", "kill", "truncate",
    ];
    for command in samples("https://a", Path::new("/f")) {
        let line = command.to_string();
        let bad = line.split([' ', ';']).find(|word| BAD.contains(word));
        assert_eq!(bad, None, "{line}");
    }
}

const CRD_OF_CLUSTERS: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, \
    metadata: {name: clusters.cluster.x-k8s.io}, \
    spec: {group: cluster.x-k8s.io, scope: Namespaced, names: {kind: Cluster, plural: clusters}, \
    versions: [{name: v1beta2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
const CLUSTER: &str = "{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: eu-1}}";
const CRD_OF_PROFILES: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, \
    metadata: {name: clusterprofiles.multicluster.x-k8s.io, \
    annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes/enhancements/pull/4322'}}, \
    spec: {group: multicluster.x-k8s.io, scope: Namespaced, names: {kind: ClusterProfile, plural: clusterprofiles}, \
    versions: [{name: v1alpha2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
const PROFILE: &str =
    "{apiVersion: multicluster.x-k8s.io/v1alpha2, kind: ClusterProfile, metadata: {name: eu-1}}";

const CRD_OF_SHOOTS: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, \
    metadata: {name: shoots.core.gardener.cloud}, \
    spec: {group: core.gardener.cloud, scope: Namespaced, names: {kind: Shoot, plural: shoots}, \
    versions: [{name: v1beta1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
const SHOOT: &str = "{apiVersion: core.gardener.cloud/v1beta1, kind: Shoot, metadata: {name: eu-1}}";
const CRD_OF_SEED_CLUSTERS: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, \
    metadata: {name: clusters.extensions.gardener.cloud}, \
    spec: {group: extensions.gardener.cloud, scope: Cluster, names: {kind: Cluster, plural: clusters}, \
    versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}";
const SEED_CLUSTER: &str =
    "{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Cluster, metadata: {name: eu-1}}";

fn of(how: Tested, server: &str, folder: &Path) -> Vec<String> {
    let samples = samples(server, folder);
    let chosen = samples.iter().filter(|command| tested(command) == how);
    let lines: Vec<String> = chosen.map(Command::to_string).collect();
    assert!(!lines.is_empty(), "{how:?}");
    lines
}

/// PATH with the programs that `cargo xtask` has downloaded.
fn programs() -> OsString {
    let assets = Binaries::find().or_fail().folder().to_owned();
    let cache = assets.ancestors().nth(2).map(|cache| cache.join("node-image"));
    let tools = cache.and_then(|cache| std::fs::read_dir(cache).ok());
    let tools = tools
        .into_iter()
        .flatten()
        .filter_map(|tool| Some(tool.ok()?.path()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    std::env::join_paths(std::iter::once(assets).chain(tools).chain(path)).unwrap()
}

fn shell(line: &str, folder: &Path) -> Process {
    let mut shell = Process::new("sh");
    shell.args(["-c", line]).env("PATH", programs());
    shell
        .env("KUBECONFIG", folder.join("CONTEXT.kubeconfig"))
        .env("CURL_CA_BUNDLE", folder.join("ca.pem"))
        .current_dir(folder);
    shell
}

#[track_caller]
fn run(line: &str, folder: &Path) -> String {
    let ended = shell(line, folder).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{line}: {}\n{out}\n{err}", ended.status);
    out + &err
}

fn is_installed(program: &str, folder: &Path) -> bool {
    let found = shell(&format!("command -v {program}"), folder).output();
    found.is_ok_and(|found| found.status.success())
}

/// The match in [`tested`] has each variant, and this makes sure that each is also run.
#[test]
fn each_variant_has_a_sample() {
    let (_, variants) = include_str!("command.rs").split_once("enum Command {").unwrap();
    let (variants, _) = variants.split_once("\n}").unwrap();
    let name = |text: &str| -> String { text.chars().take_while(char::is_ascii_alphanumeric).collect() };
    let samples = samples("http://a", Path::new("/"));
    let sampled: Vec<String> = samples
        .iter()
        .map(|sample| name(&format!("{sample:?}")))
        .collect();
    let variants = variants.lines().filter_map(|line| line.strip_prefix("    "));
    let mut variants = variants
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(name);
    assert!(variants.clone().count() > 10);
    assert_eq!(variants.find(|variant| !sampled.contains(variant)), None);
}

#[test]
fn a_command_runs_nothing_else() {
    assert_eq!(word("eu-1"), "eu-1");
    assert_eq!(word("a; rm -rf /"), "'a; rm -rf /'");
    assert_eq!(word("it's $(x)\n"), r"'it'\''s $(x) '");
    assert_eq!(word(""), "''");
}

#[test]
fn each_printed_mcr_command_is_one_that_mcr_takes() {
    let folder = tempfile::tempdir().unwrap();
    for line in of(Tested::Parsed, "http://a", folder.path()) {
        let words = run(&format!("printf '%s\\n' {line}"), folder.path());
        let taken = crate::Mcr::new().command().try_get_matches_from(words.lines());
        assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
    }
}

#[test]
fn each_printed_command_of_another_program_is_one_that_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    for line in of(Tested::Help, "http://a", folder.path()) {
        for command in line.split("; ") {
            let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
            if !is_installed(program, folder.path()) {
                eprintln!("not tested, because there is no {program}: {command}");
                continue;
            }
            match program {
                // It takes any words before --help.
                "timedatectl" => {
                    let help = run("timedatectl --help", folder.path());
                    let verb = rest.split(' ').next().unwrap_or_default();
                    assert!(help.contains(verb), "{command}: {help}");
                }
                // Unknown subcommands and flags are errors before --help.
                _ => {
                    run(&format!("{command} --help"), folder.path());
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_printed_command_that_only_looks_runs_here() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("it's mine; id"), "").unwrap();
    let server = SimCluster::new().serve().await.or_fail();
    std::fs::write(folder.path().join("ca.pem"), server.ca_pem()).unwrap();
    for line in of(Tested::Here, &server.url(), folder.path()) {
        let program = line.split(' ').next().unwrap();
        if is_installed(program, folder.path()) {
            run(&line, folder.path());
        } else {
            eprintln!("not tested, because there is no {program}: {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_printed_kubectl_command_runs_on_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let plane = ControlPlane::builder().name("printed").start().await.or_fail();
    let kubeconfig = plane.kubeconfig().replace("printed", "CONTEXT");
    std::fs::write(folder.path().join("CONTEXT.kubeconfig"), kubeconfig).unwrap();
    for (name, text) in [
        (CLUSTERS, CRD_OF_CLUSTERS),
        (PROFILES, CRD_OF_PROFILES),
        (SHOOTS, CRD_OF_SHOOTS),
        (SEED_CLUSTERS, CRD_OF_SEED_CLUSTERS),
        ("eu-1-of-clusters.cluster.x-k8s.io", CLUSTER),
        ("eu-1-of-clusterprofiles.multicluster.x-k8s.io", PROFILE),
        ("eu-1-of-shoots.core.gardener.cloud", SHOOT),
        ("eu-1-of-clusters.extensions.gardener.cloud", SEED_CLUSTER),
    ] {
        std::fs::write(folder.path().join(format!("{name}.yaml")), text).unwrap();
    }
    let commands = of(Tested::OnServer, &plane.url(), folder.path());
    for (number, line) in commands.into_iter().enumerate() {
        if line.contains(" label ") {
            run("kubectl -n fleet create secret generic eu-1", folder.path());
        }
        for kind in [CLUSTERS, PROFILES, SHOOTS, SEED_CLUSTERS] {
            if line.contains(&format!(" get {kind}")) {
                run(&format!("kubectl create -f {kind}.yaml"), folder.path());
                let established = format!("kubectl wait --for=condition=Established crd {kind}");
                run(&established, folder.path());
                run(
                    &format!("kubectl create -n fleet -f eu-1-of-{kind}.yaml"),
                    folder.path(),
                );
            }
        }
        run(&line, folder.path());
        // The namespaces are the first.
        assert!(number > 1 || line.starts_with("kubectl create namespace"));
    }
    let may = "kubectl auth can-i list events.events.k8s.io -n fleet --as system:serviceaccount:fleet:robot";
    assert_eq!(run(may, folder.path()), "yes\n");
}
