//! Splitting kubeconfig files into contexts, with the rules of kubectl.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use mcr_access::{AccessError, ContextAccess, KubeconfigFile, Kubeconfigs, Trust, contexts};

const CANARY: &str = "canary-5d1f";

fn texts(files: &[KubeconfigFile]) -> Vec<(Option<String>, Result<String, String>)> {
    contexts(files)
        .into_iter()
        .map(|found| {
            let access = found
                .access
                .map(|access| String::from_utf8(access.yaml.to_vec()).unwrap())
                .map_err(|error| error.to_string());
            (found.context.map(|name| name.to_string()), access)
        })
        .collect()
}

#[test]
fn the_first_file_of_a_list_that_defines_a_name_wins() {
    let one = KubeconfigFile::new(
        "/one/config",
        r#"
current-context: b
contexts:
- {name: a, context: {cluster: c, user: u, namespace: n}}
clusters:
- {name: c, cluster: {server: https://one, certificate-authority: ca.crt}}
"#,
    );
    let two = KubeconfigFile::new(
        "/two/config",
        r#"
current-context: a
contexts:
- {name: a, context: {cluster: other}}
- {name: b, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: https://two}}
users:
- name: u
  user:
    tokenFile: sub/token
    client-certificate: /abs/crt
    client-key: ../key
    exec: {command: ./bin/plugin, apiVersion: client.authentication.k8s.io/v1}
    something-new: {a: b}
"#,
    );
    let found = contexts(&[one.clone(), two.clone()]);
    let names: Vec<_> = found
        .iter()
        .map(|f| (f.context.as_deref().unwrap(), f.current, f.file.to_str().unwrap()))
        .collect();
    assert_eq!(names, [("a", false, "/one/config"), ("b", true, "/two/config")]);
    let a: serde_json::Value = serde_json::from_slice(&found[0].access.as_ref().unwrap().yaml).unwrap();
    assert_eq!(
        a,
        serde_json::json!({
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://one", "certificate-authority": "/one/ca.crt"}}],
            "users": [{"name": "u", "user": {
                "tokenFile": "/two/sub/token", "client-certificate": "/abs/crt", "client-key": "/two/../key",
                "exec": {"command": "/two/./bin/plugin", "apiVersion": "client.authentication.k8s.io/v1"}
            }}],
        })
    );
    // Without the second file, the user is not defined.
    assert_eq!(
        texts(&[one])[0].1,
        Err(r#"contexts[name="a"].context.user: user "u" is not defined (there are none); define it or correct the name"#
            .to_owned())
    );
    // A command without a path stays as it is, for a lookup in PATH.
    let bare = KubeconfigFile::new(
        "/x/c",
        two.bytes
            .to_vec()
            .escape_ascii()
            .to_string()
            .replace("\\n", "\n")
            .replace("./bin/plugin", "plugin"),
    );
    assert!(
        texts(&[bare])[1]
            .1
            .as_ref()
            .unwrap()
            .contains(r#""command":"plugin""#)
    );
}

#[test]
fn one_broken_context_or_file_leaves_the_others_alone() {
    let broken = KubeconfigFile::new("/broken", format!("clusters: [{{name: {CANARY}\nusers: 3"));
    let empty = KubeconfigFile::new("/empty", "# nothing yet\n\n");
    let good = KubeconfigFile::new(
        "/good",
        "
contexts:
- {name: twice, context: {cluster: c}}
- {name: good, context: {cluster: c}}
- {name: twice, context: {cluster: c}}
- {context: {cluster: c}}
- {name: no-cluster, context: {user: u}}
- {name: ambiguous, context: {cluster: d}}
- {name: null-context, context: }
clusters: [{name: c, cluster: {server: https://c}}, {name: d}, {name: d}]
",
    )
    .trust(Trust::Untrusted);
    let found = contexts(&[broken, empty, good]);
    let shown: Vec<_> = found
        .iter()
        .map(|f| {
            format!(
                "{:?} {}",
                f.context,
                f.access
                    .as_ref()
                    .map_or_else(ToString::to_string, |a| format!("{:?}", a.trust))
            )
        })
        .collect();
    assert_eq!(
        shown[1],
        "None the kubeconfig is empty; check that whatever writes it has finished, and that this is the right file or key"
    );
    assert!(
        shown[0].starts_with("None the kubeconfig can't be read: it is not valid YAML (line "),
        "{}",
        shown[0]
    );
    assert_eq!(
        shown[2..],
        [
            r#"Some("twice") contexts[name="twice"]: is defined more than once in this file; remove or rename all but one"#,
            r#"Some("good") Untrusted"#,
            r#"None contexts[3].name: is missing; name the context"#,
            r#"Some("no-cluster") contexts[name="no-cluster"].context.cluster: is missing; name the cluster that the context is about"#,
            r#"Some("ambiguous") clusters[name="d"]: is defined more than once in this file; remove or rename all but one"#,
            r#"Some("null-context") contexts[name="null-context"].context.cluster: is missing; name the cluster that the context is about"#,
        ]
    );
    assert!(!format!("{found:?}").contains(CANARY));
}

#[test]
fn one_at_a_time_contexts_are_the_same() {
    let files = [
        KubeconfigFile::new("/broken", format!("clusters: [{{name: {CANARY}")),
        KubeconfigFile::new(
            "/one",
            format!(
                "contexts: [{{name: a, context: {{cluster: c, user: u}}}}, {{context: }}]\n\
                 users: [{{name: u, user: {{token: {CANARY}}}}}]"
            ),
        ),
        KubeconfigFile::new("/empty", ""),
        KubeconfigFile::new(
            "/of/two",
            "current-context: b\ncontexts: [{name: a}, {name: b, context: {cluster: c}}]\n\
             clusters: [{name: c, cluster: {server: \"https://of-two\", certificate-authority: ca.crt}}]",
        ),
    ];
    let all = contexts(&files);
    let parsed = Kubeconfigs::parse(&files);
    let unreadable: Vec<_> = parsed
        .unreadable()
        .map(|(file, error)| (file.to_str().unwrap(), error.clone()))
        .collect();
    assert_eq!(unreadable.len(), 2);
    for ((file, error), found) in unreadable.iter().zip(&all) {
        assert_eq!(found.file.to_str(), Some(*file));
        assert!(found.context.is_none() && found.access.as_ref().is_err_and(|other| other == error));
    }
    let shown = |found: &ContextAccess| {
        let text = found.access.as_ref().map(|access| access.yaml.to_vec());
        (format!("{found:?}"), text.map_err(ToString::to_string))
    };
    let rest: Vec<_> = all[2..].iter().map(shown).collect();
    // The contexts can be iterated more than once, and in part.
    for _ in 0..2 {
        let each: Vec<_> = parsed.contexts().map(|found| shown(&found)).collect();
        assert_eq!(each, rest);
        let places: Vec<_> = parsed
            .contexts()
            .map(|found| (found.file, found.context, found.current))
            .collect();
        let place =
            |file: &str, context: Option<&str>, current| (file.into(), context.map(Into::into), current);
        assert_eq!(
            places,
            [
                place("/one", Some("a"), false),
                place("/one", None, false),
                place("/of/two", Some("b"), true)
            ]
        );
    }
    assert_eq!(parsed.contexts().take(1).count(), 1);
    // Each kubeconfig is complete, with entries from both files.
    let whole: Vec<String> = parsed
        .contexts()
        .filter_map(|found| String::from_utf8(found.access.ok()?.yaml.to_vec()).ok())
        .collect();
    assert_eq!(whole.len(), 2);
    assert!(
        whole[0].contains("https://of-two") && whole[0].contains(CANARY),
        "{whole:?}"
    );
    assert!(whole[0].contains("/of/ca.crt"), "{whole:?}");
    assert!(
        whole[1].contains("https://of-two") && !whole[1].contains(CANARY),
        "{whole:?}"
    );
    let shown = format!("{parsed:?}");
    assert!(shown.contains("/of/two") && !shown.contains(CANARY), "{shown}");
}

#[test]
fn scalars_are_text_as_kubectl_reads_them() {
    let file = KubeconfigFile::new(
        "/f",
        "contexts: [{name: 1.10, context: {cluster: 007, user: true}}]\nclusters: [{name: 007}]\nusers: [{name: true, user: {token: 0123456789}}]",
    );
    let found = texts(&[file]);
    assert_eq!(found[0].0.as_deref(), Some("1.10"));
    assert!(
        found[0].1.as_ref().unwrap().contains(r#""token":"0123456789""#),
        "{found:?}"
    );
}

#[test]
fn a_syntax_error_reports_where_and_shows_nothing_of_the_text() {
    let cases: &[(&str, &str)] = &[
        ("contexts: [\n", "it is not valid YAML (line 1, column 11)"),
        (
            "Y29udGV4dHM6IFtd\nCg==\n",
            "it is base64 text, most likely because it was encoded twice: the field data takes it encoded once, and stringData as it is",
        ),
        (
            "clusters: canary-5d1f\n",
            "a value has the wrong form (text, list or mapping expected) (line 1, column 11)",
        ),
        (
            "users:\n- user: {token: [canary-5d1f]}\n",
            "a value has the wrong form (text, list or mapping expected) (line 2, column 17)",
        ),
        (
            "clusters:\n- cluster: {insecure-skip-tls-verify: canary-5d1f}",
            "a value has the wrong form (text, list or mapping expected) (line 2, column 39)",
        ),
        (
            "canary-5d1f: 1\ncanary-5d1f: 2\nusers: []\nusers: []",
            "a key is there twice (line 2, column 1)",
        ),
        (
            "users: []\n---\nusers: []\n",
            "it holds more than one YAML document",
        ),
        (
            "users: *canary-5d1f\n",
            "an alias refers to an anchor that does not exist",
        ),
        ("users: \"canary-5d1f\n", "it is not valid YAML"),
        ("{{{{canary-5d1f", "it is not valid YAML"),
        ("\u{0}canary-5d1f", "it is not valid YAML"),
    ];
    for (text, expected) in cases {
        let found = contexts(&[KubeconfigFile::new("/f", text)]);
        let error = found[0].access.as_ref().unwrap_err();
        let shown = error.to_string();
        assert!(shown.contains(expected), "{text:?}: {shown}");
        assert!(matches!(error, AccessError::Syntax { .. }));
        assert!(!format!("{shown} {error:?}").contains(CANARY), "{shown}");
    }
    let latin = contexts(&[KubeconfigFile::new("/f", b"users: \xe9")]);
    assert_eq!(
        latin[0].access.as_ref().unwrap_err().to_string(),
        "the kubeconfig can't be read: it is not UTF-8 text; correct it there"
    );
}

#[test]
fn a_file_may_have_as_many_parts_as_a_large_fleet_needs() {
    // The default limit of the parser is 250,000 nodes: too few for ten thousand contexts, and for this text.
    let parts = "x,".repeat(300_000);
    let yaml = format!(
        "contexts:\n- {{name: a, context: {{cluster: c, extensions: [{parts}]}}}}\nclusters:\n- {{name: c, cluster: {{server: https://one}}}}\n"
    );
    let found = contexts(&[KubeconfigFile::new("/large/config", yaml)]);
    assert_eq!(found.len(), 1);
    assert!(found[0].access.is_ok(), "{:?}", found[0].access);
}

#[test]
fn a_context_alone_is_what_it_was_in_its_file() {
    let user = |fields: &str| {
        let yaml = format!(
            "contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://h:6443'}}}}]\nusers: [{{name: u, user: {{{fields}}}}}]\n"
        );
        let found = contexts(&[KubeconfigFile::new("/fleet/config", yaml)]);
        let access = found[0].access.clone().unwrap();
        access.parse().map(drop).map_err(|error| error.to_string())
    };
    // A blank path counts as a missing one, not as the folder of the file.
    assert_eq!(user("client-certificate: ' ', tokenFile: ' ', token: t"), Ok(()));
    // A key in YAML with more than 1024 characters needs the mark `?`.
    let key = "k".repeat(1100);
    assert_eq!(
        user(&format!("as: jane, as-user-extra: {{? {key} : [v]}}")),
        Ok(())
    );
}
