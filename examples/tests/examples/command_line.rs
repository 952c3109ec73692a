use std::process::Output;

use crate::program::run;

fn error(output: Output) -> String {
    assert_ne!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty(), "errors go to stderr");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_example_explains_itself() {
    for (example, flag) in [
        ("configmaps", "--kubeconfig-dirs"),
        ("uniform", "--plain"),
        ("registry", "--kubeconfigs"),
        ("sync-local-to-remote", "--hub-kubeconfig"),
        ("fleet-policy", "--policy"),
        ("baseline-rbac", "--baseline"),
        #[cfg(feature = "cluster-api")]
        ("cluster-api", "--selector"),
        #[cfg(feature = "cluster-inventory")]
        ("cluster-inventory", "--clusterprofile-provider-file"),
        ("fleet-health", "--by"),
        #[cfg(feature = "kcp")]
        ("kcp-apiexport", "--slice"),
        #[cfg(feature = "kcp")]
        ("kcp-mongodb", "--kcp-kubeconfig"),
        ("kcp-mongodb-operator", "--mood"),
        #[cfg(feature = "kcp")]
        ("kcp-path-aware", "--slice"),
        #[cfg(feature = "kcp")]
        ("kcp-initializing", "--workspace-type"),
        #[cfg(feature = "kcp")]
        ("kcp-terminating", "--workspace-type"),
    ] {
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
    for (example, text, words) in [
        (
            "fleet-policy",
            policy(any, "\n  env: [prod]", map),
            vec!["line 3", "env: [prod]", "string"],
        ),
        // Kubernetes would take this for a selector of everything.
        (
            "fleet-policy",
            policy("{matchLabel: {team: a}}", "{}", map),
            vec!["line 1", "unknown field `matchLabel`", "matchLabels"],
        ),
        (
            "fleet-policy",
            policy("{matchExpressions: [{key: team, operator: Gt}]}", "{}", map),
            vec!["namespaces.matchExpressions", "operator"],
        ),
        (
            "fleet-policy",
            policy(any, "{team: b}", map),
            vec!["labels.team", "another label"],
        ),
        (
            "fleet-policy",
            policy(any, "{}", "{name: '', data: {}}"),
            vec!["configMap.name", "empty"],
        ),
        (
            "fleet-policy",
            format!("{0}---\n{0}", policy(any, "{}", map)),
            vec!["one YAML document"],
        ),
        (
            "fleet-policy",
            "labels: {a\n".into(),
            vec!["line 1", "labels: {a"],
        ),
        (
            "baseline-rbac",
            format!("{whole}---\n{secret}"),
            vec!["Secret mine", "kind", "v1/Secret"],
        ),
        (
            "baseline-rbac",
            role("{name: x}"),
            vec!["Role x", "metadata.namespace"],
        ),
        (
            "baseline-rbac",
            role("{namespace: default}"),
            vec!["metadata.name", "missing"],
        ),
        ("baseline-rbac", role("[]"), vec!["line 3", "metadata: []"]),
        (
            "baseline-rbac",
            format!("{whole}---\n{whole}"),
            vec!["Role x", "twice"],
        ),
        ("baseline-rbac", "# nothing\n".into(), vec!["no object"]),
    ] {
        let flag = if example == "fleet-policy" {
            "--policy"
        } else {
            "--baseline"
        };
        std::fs::write(path, &text).unwrap();
        let error = error(run(example, [flag, path]));
        assert_eq!(error.lines().count(), 1, "{error}");
        for word in words.into_iter().chain([flag, path]) {
            assert!(
                error.contains(word),
                "{text}\n{example} does not mention {word}: {error}"
            );
        }
    }
}
