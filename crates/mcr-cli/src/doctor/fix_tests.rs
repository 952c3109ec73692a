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
use crate::providers::{ClusterFlags, ProviderOptions, builtin};

/// The words with which actions begin. A text that begins with another word may be a command, which belongs into the command.
const VERBS: [&str; 15] = [
    "add",
    "allow",
    "check",
    "choose",
    "compare",
    "correct",
    "give",
    "grant",
    "install",
    "renew",
    "repeat",
    "restart",
    "run",
    "start",
    "synchronize",
];

/// The commands that are not in a table.
const OTHERS: [&str; 12] = [
    "mcr clusters",
    "kubectl create namespace {other}",
    "kubectl version",
    "kubectl create role {role} -n {namespace} --verb={verbs} --resource={resource}; \
     kubectl create rolebinding {role} -n {namespace} --role={role} --user={user}",
    "kubectl --context CONTEXT create clusterrole {role} --verb={verbs} --resource=* --resource-name={name}; \
     kubectl --context CONTEXT create clusterrolebinding {role} --clusterrole={role} --user={user}",
    "curl -v {url}",
    "curl -vk {url}",
    "getent hosts localhost",
    "ls -l {file}; id",
    "timedatectl",
    "timedatectl set-ntp true",
    "kubeadm certs renew apiserver",
];

/// The tables of all providers, and the general one.
async fn advice(hub: &Path) -> Vec<Advice> {
    let options = ProviderOptions::new(ClusterFlags {
        hub_kubeconfig: Some(hub.to_owned()),
        slice: Some("x".into()),
        workspace_type: Some("x".into()),
        ..ClusterFlags::default()
    });
    let mut all = GENERAL.to_vec();
    for linked in builtin() {
        let provider = linked.make(options.clone()).await.or_fail();
        all.extend(provider.doctor().iter().flat_map(|doctor| doctor.advice()));
    }
    options.close().await;
    all
}

/// Each printed command, for a server and a folder.
async fn commands(server: &str, folder: &Path) -> Vec<String> {
    let file = folder.join("CONTEXT.kubeconfig").display().to_string();
    let values: Values = [
        ("namespace", "fleet"),
        ("other", "other"),
        ("name", "eu-1"),
        ("label", "example.com/l=true"),
        ("file", &file),
        ("context", "CONTEXT"),
        ("request", "/livez?verbose"),
        ("engine", "podman"),
        ("node", "it's mine; id"),
        ("server", server),
        ("workspace", server),
        ("binding", "b"),
        ("export", "e"),
        ("role", "mcr-r"),
        ("verbs", "get,list"),
        ("resource", "shoots.core.gardener.cloud/adminkubeconfig"),
        ("user", "system:serviceaccount:fleet:robot"),
        ("url", &format!("{server}/livez?verbose")),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .collect();
    let advice = advice(Path::new(&file)).await;
    let templates = advice.iter().map(|row| row.command).chain(OTHERS);
    let mut commands: Vec<String> = templates
        .filter(|command| !command.is_empty() && !command.starts_with("request "))
        .map(|command| fill(command, &values, quoted).unwrap_or_else(|| panic!("no value for {command}")))
        .collect();
    commands.sort_unstable();
    commands.dedup();
    commands
}

/// A folder with the kubeconfig of a simulated cluster.
async fn simulated() -> (tempfile::TempDir, mcr_testkit::sim::SimServer) {
    let folder = tempfile::tempdir().unwrap();
    let server = SimCluster::new().serve().await.or_fail();
    std::fs::write(folder.path().join("CONTEXT.kubeconfig"), server.kubeconfig()).unwrap();
    std::fs::write(folder.path().join("ca.pem"), server.ca_pem()).unwrap();
    (folder, server)
}

/// A finding may be wrong, and its command is pasted by people in a hurry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_deletes_or_forces_anything() {
    const BAD: [&str; 9] = [
        "delete", "--force", "rm", "prune", "replace", "drain", "reset", "kill", "truncate",
    ];
    let (folder, server) = simulated().await;
    let commands = commands(&server.url(), folder.path()).await;
    assert!(commands.len() > 30, "{commands:#?}");
    for line in commands {
        let bad = line.split([' ', ';']).find(|word| BAD.contains(word));
        assert_eq!(bad, None, "{line}");
    }
    for row in advice(&folder.path().join("CONTEXT.kubeconfig")).await {
        let verb = row.action.split(' ').next().unwrap_or_default();
        assert!(
            verb.is_empty() || VERBS.contains(&verb),
            "is this a command? {}",
            row.action
        );
    }
}

#[test]
fn a_command_has_a_line_of_its_own_and_runs_nothing_else() {
    let fix = |action: &str, command: &'static str, value: &str| {
        let values = Values::from([("name", value.to_owned())]);
        filled(&Fix {
            values,
            ..plain(action, command)
        })
    };
    let lines = |lines: &[&str]| Some(lines.iter().map(|line| (*line).to_owned()).collect());
    assert_eq!(
        fix("check {name}", "id {name}", "eu-1"),
        lines(&["check eu-1:", "id eu-1"])
    );
    assert_eq!(fix("", "id {name}", "a; rm -rf /"), lines(&["id 'a; rm -rf /'"]));
    assert_eq!(fix("", "id {name}", "it's $(x)"), lines(&[r"id 'it'\''s $(x)'"]));
    assert_eq!(fix("", "id {name}", ""), lines(&["id ''"]));
    assert_eq!(
        fix("the rule {verbs: [\"access\"]} of {name}", "", "x"),
        lines(&["the rule {verbs: [\"access\"]} of x"])
    );
    assert_eq!(fix("check {other}", "", "x"), None);
}

#[test]
fn the_first_row_that_fits_and_has_its_values_counts() {
    struct Table;
    impl Doctor for Table {
        fn advice(&self) -> &'static [Advice] {
            const {
                &[
                    Advice::new(Fault::Unreached, "", "start {node}", ""),
                    Advice::new(Fault::Credentials, "401", "check {name}", ""),
                    Advice::new(Fault::Expiring, "", "", ""),
                ]
            }
        }
    }
    let action = |on, reason: &str, values: &Values| {
        advise(&Table, on, reason, values).map(|fix| fix.action.into_owned())
    };
    let (none, node) = (Values::new(), Values::from([("node", "n".to_owned())]));
    assert_eq!(
        action(Fault::Unreached, "", &node).as_deref(),
        Some("start {node}")
    );
    assert_eq!(action(Fault::Unreached, "", &none).as_deref(), Some(""));
    assert!(
        action(Fault::Credentials, "401", &none)
            .unwrap()
            .starts_with("renew ")
    );
    assert_eq!(action(Fault::Expiring, "", &none), None);
    assert!(is_normal(&Table, Fault::Expiring, &none) && !is_normal(&Table, Fault::NoClusters, &none));
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

/// Commands of other programs that only look run here. Those that would change this machine or need a container engine are only
/// parsed, and those for kcp, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_printed_command_is_one_that_its_program_takes() {
    let (folder, server) = simulated().await;
    let folder = folder.path();
    for line in commands(&server.url(), folder).await {
        for command in line.split("; ") {
            let (program, rest) = command.split_once(' ').unwrap_or((command, ""));
            if program == "mcr" {
                let words = run(&format!("printf '%s\\n' {command}"), folder);
                let taken = crate::Mcr::new().command().try_get_matches_from(words.lines());
                assert!(taken.is_ok(), "{command}: {}", taken.unwrap_err());
                continue;
            }
            let found = shell(&format!("command -v {program}"), folder).output();
            if !found.is_ok_and(|found| found.status.success()) {
                eprintln!("not tested, because there is no {program}: {command}");
                continue;
            }
            match program {
                "kubectl" if !command.contains("kcp.io") => {}
                "curl" | "getent" | "ls" | "id" => _ = run(command, folder),
                // It takes any words before --help.
                "timedatectl" => {
                    let help = run("timedatectl --help", folder);
                    let verb = rest.split(' ').next().unwrap_or_default();
                    assert!(help.contains(verb), "{command}: {help}");
                }
                // Unknown subcommands and flags are errors before --help.
                _ => _ = run(&format!("{command} --help"), folder),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_printed_kubectl_command_runs_on_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let plane = ControlPlane::builder().name("printed").start().await.or_fail();
    let kubeconfig = plane.kubeconfig().replace("printed", "CONTEXT");
    std::fs::write(folder.join("CONTEXT.kubeconfig"), kubeconfig).unwrap();
    for (group, version, kind, plural, scope) in [
        ("cluster.x-k8s.io", "v1beta2", "Cluster", "clusters", "Namespaced"),
        (
            "multicluster.x-k8s.io",
            "v1alpha2",
            "ClusterProfile",
            "clusterprofiles",
            "Namespaced",
        ),
        ("core.gardener.cloud", "v1beta1", "Shoot", "shoots", "Namespaced"),
        (
            "extensions.gardener.cloud",
            "v1alpha1",
            "Cluster",
            "clusters",
            "Cluster",
        ),
    ] {
        let crd = serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/4322"},
            },
            "spec": {
                "group": group, "scope": scope, "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        let object = serde_json::json!({
            "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": "eu-1"},
        });
        std::fs::write(folder.join(format!("{group}.crd.json")), crd.to_string()).unwrap();
        std::fs::write(folder.join(format!("{group}.object.json")), object.to_string()).unwrap();
        run(&format!("kubectl create -f {group}.crd.json"), folder);
        run(
            &format!("kubectl wait --for=condition=Established crd {plural}.{group}"),
            folder,
        );
    }
    run("kubectl create namespace fleet", folder);
    for secret in ["eu-1", "eu-1-kubeconfig"] {
        run(
            &format!("kubectl -n fleet create secret generic {secret}"),
            folder,
        );
    }
    for group in [
        "cluster.x-k8s.io",
        "multicluster.x-k8s.io",
        "core.gardener.cloud",
        "extensions.gardener.cloud",
    ] {
        run(&format!("kubectl create -n fleet -f {group}.object.json"), folder);
    }
    for line in commands(&plane.url(), folder).await {
        if line.starts_with("kubectl ") && !line.contains("kcp.io") {
            run(&line, folder);
        }
    }
    let may = "kubectl auth can-i list shoots.core.gardener.cloud --subresource=adminkubeconfig -n fleet --as \
               system:serviceaccount:fleet:robot";
    assert_eq!(run(may, folder), "yes\n");
}
