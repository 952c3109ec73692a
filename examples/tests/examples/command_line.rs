use std::process::Output;

use crate::program::run;

fn error(output: Output) -> String {
    assert_ne!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty(), "errors go to stderr");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_example_explains_itself() {
    let mut examples = "configmaps --kubeconfig-dirs, uniform --plain, registry --kubeconfigs, fleet-health --by, \
        sync-local-to-remote --hub-kubeconfig, fleet-policy --policy, baseline-rbac --baseline, kcp-mongodb-operator --mood"
        .to_owned();
    for (is_built, more) in [
        (cfg!(feature = "cluster-api"), ", cluster-api --selector"),
        (
            cfg!(feature = "cluster-inventory"),
            ", cluster-inventory --clusterprofile-provider-file",
        ),
        (
            cfg!(feature = "kcp"),
            ", kcp-apiexport --slice, kcp-mongodb --kcp-kubeconfig, kcp-path-aware --slice",
        ),
        (
            cfg!(feature = "kcp"),
            ", kcp-initializing --workspace-type, kcp-terminating --workspace-type",
        ),
    ] {
        examples += if is_built { more } else { "" };
    }
    for (example, flag) in examples
        .split(", ")
        .map(|example| example.split_once(' ').unwrap())
    {
        let output = run(example, ["--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        for word in [flag, "--format", "json", "cargo run -p examples", example] {
            assert!(text.contains(word), "{example} --help has no {word}:\n{text}");
        }
    }
}

#[test]
fn wrong_flags_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let file = folder.path().join("hub.yaml");
    std::fs::write(&file, "current-context: nowhere\n").unwrap();
    let file = file.to_str().unwrap();
    let missing = &format!("{dir}/missing.yaml");
    // FILE is a kubeconfig without a context, DIR a folder and MISSING nothing.
    let cases = "
        configmaps --bogus | --bogus & --help
        configmaps --format xml | --format & xml & text, json
        configmaps --provider kinf | --provider & kinf & file
        configmaps --exit-after soon | --exit-after & soon
        configmaps --kubeconfigs DIR | --kubeconfigs & DIR & --kubeconfig-dirs
        registry --kubeconfig-dirs FILE | --kubeconfig-dirs & FILE & --kubeconfigs
        configmaps --globs a/* | --globs & a/*
        configmaps --provider single --hub-kubeconfig MISSING | --hub-kubeconfig & MISSING
        configmaps --provider single --hub-kubeconfig FILE | --hub-kubeconfig & FILE & --hub-context
        uniform --plain --kubeconfigs FILE | --plain & --kubeconfigs
        sync-local-to-remote | --kubeconfigs
        fleet-policy | --policy
        fleet-policy --policy MISSING | --policy & MISSING
        baseline-rbac | --baseline
        baseline-rbac --baseline MISSING | --baseline & MISSING
        sync-local-to-remote --kubeconfigs MISSING --hub-kubeconfig MISSING | --hub-kubeconfig & MISSING";
    let cases = cases
        .replace("DIR", dir)
        .replace("FILE", file)
        .replace("MISSING", missing);
    for case in cases.trim().lines() {
        let (command, words) = case.split_once(" | ").unwrap();
        let mut args = command.split_whitespace();
        let example = args.next().unwrap();
        let text = error(run(example, args));
        for word in words.split(" & ") {
            assert!(text.contains(word), "{case}: no {word}: {text}");
        }
        assert!(
            !text.contains("backtrace") && !text.contains("panicked"),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_is_wrong_is_named_with_the_place_and_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.yaml");
    let path = path.to_str().unwrap();
    let policy = |namespaces: &str, labels: &str, map: &str| {
        format!("namespaces: {namespaces}\nlabels: {labels}\nconfigMap: {map}\n")
    };
    let (any, map) = ("{matchLabels: {team: a}}", "{name: platform, data: {}}");
    let role = |metadata: &str| {
        format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {metadata}\nrules: []\n")
    };
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: mine, namespace: default}\n";
    let whole = role("{name: x, namespace: default}");
    // Kubernetes would take `matchLabel` for a selector of everything.
    for (example, text, words) in [
        (
            "fleet-policy",
            policy(any, "\n  env: [prod]", map),
            "line 3 & env: [prod] & string",
        ),
        (
            "fleet-policy",
            policy("{matchLabel: {a: b}}", "{}", map),
            "line 1 & unknown field `matchLabel`",
        ),
        (
            "fleet-policy",
            policy(any, "{team: b}", map),
            "labels.team & another label",
        ),
        (
            "fleet-policy",
            format!("{0}---\n{0}", policy(any, "{}", map)),
            "one YAML document",
        ),
        (
            "baseline-rbac",
            format!("{whole}---\n{secret}"),
            "Secret mine & kind & v1/Secret",
        ),
        ("baseline-rbac", role("{name: x}"), "Role x & metadata.namespace"),
        ("baseline-rbac", format!("{whole}---\n{whole}"), "Role x & twice"),
    ] {
        let flag = ["--policy", "--baseline"][usize::from(example == "baseline-rbac")];
        std::fs::write(path, &text).unwrap();
        let error = error(run(example, [flag, path]));
        assert_eq!(error.lines().count(), 1, "{error}");
        for word in words.split(" & ").chain([flag, path]) {
            assert!(
                error.contains(word),
                "{text}\n{example} does not mention {word}: {error}"
            );
        }
    }
}
