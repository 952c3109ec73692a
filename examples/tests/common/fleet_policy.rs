//! `fleet-policy`, from the first start to a policy that changed while it did not run.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    member::{Member, create, delete, edit, entry, eventually, unique},
    program::Program,
};

fn line<'a>(
    member: &'a Member,
    name: &'a str,
    namespace: &'a str,
    event: &'a str,
) -> impl Fn(&Value) -> bool + 'a {
    move |line| {
        line["cluster"].as_str().is_some_and(|found| found == member.name)
            && line["name"] == name
            && line["namespace"] == namespace
            && line["event"] == event
    }
}

fn label<'a>(namespace: Option<&'a Namespace>, key: &str) -> Option<&'a str> {
    namespace?.labels().get(key).map(String::as_str)
}

fn start(folder: &Path, policy: &Path, id: &str) -> Program {
    let (folder, policy) = (folder.to_str().unwrap(), policy.to_str().unwrap());
    let globs = "*.kubeconfig";
    let args = format!("--policy {policy} --name {id} --kubeconfig-dirs {folder} --globs {globs}");
    Program::start("fleet-policy", args.split(' '))
}

/// Two members; the second joins later.
pub(crate) async fn story(early: &Member, late: &Member) {
    let folder = tempfile::tempdir().unwrap();
    let id = &unique("policy");
    let (of, kept, foreign, left) = (
        &*id.clone(),
        &format!("{id}-kept"),
        &format!("{id}-foreign"),
        &format!("{id}-left"),
    );
    let policy = folder.path().join("policy.yaml");
    let write = |labels: Value, map: Value| {
        let namespaces = json!({"matchLabels": {"example.io/test": of}});
        let text = json!({"namespaces": namespaces, "labels": labels, "configMap": map}).to_string();
        fs::write(&policy, text).unwrap();
    };
    write(
        json!({"checked": "yes", "owned": "platform"}),
        json!({"name": "platform", "data": {"support": "#platform", "tier": "1"}}),
    );
    let selected = json!({"example.io/test": id, "team": "shop"});
    for member in [early, late] {
        for namespace in [kept, foreign, left] {
            member.namespace(namespace, selected.clone()).await;
        }
        member
            .namespace(&format!("{id}-other"), json!({"team": "shop"}))
            .await;
        create(
            &member.maps(foreign),
            json!({"metadata": {"name": "platform"}, "data": {"support": "me"}}),
        )
        .await;
    }

    // A cluster that is there, and one that joins.
    early.join(folder.path());
    let program = start(folder.path(), &policy, id);
    program.line("labels", line(early, kept, "", "labelled"));
    program.line("a ConfigMap", line(early, "platform", kept, "created"));
    late.join(folder.path());
    for member in [early, late] {
        program.line("labels after joining", line(member, kept, "", "labelled"));
        program.line(
            "a ConfigMap after joining",
            line(member, "platform", kept, "created"),
        );
        program.line(
            "what is somebody else's",
            line(member, "platform", foreign, "conflict"),
        );
        let found = member.namespaces().get(kept).await.unwrap();
        assert_eq!(label(Some(&found), "checked"), Some("yes"));
        assert_eq!(label(Some(&found), "team"), Some("shop"), "other labels stay");
    }

    // Drift, in each cluster by itself. What others add stays.
    for member in [early, late] {
        let (namespaces, maps) = (member.namespaces(), member.maps(kept));
        let mark = program.mark();
        let labels = json!({"metadata": {"labels": {"checked": "no", "mine": "too"}}});
        edit(&namespaces, kept, labels).await;
        program.after(mark, "another label", line(member, kept, "", "labelled"));
        let found = namespaces.get(kept).await.unwrap();
        assert_eq!(
            [label(Some(&found), "checked"), label(Some(&found), "mine")],
            [Some("yes"), Some("too")]
        );
        for (what, drift, mine) in [
            (
                "other data",
                json!({"data": {"tier": "3", "mine": "too"}}),
                Some("too"),
            ),
            (
                "without its label",
                json!({"metadata": {"labels": null}}),
                Some("too"),
            ),
            (
                "immutable",
                json!({"data": {"tier": "3"}, "immutable": true}),
                None,
            ),
        ] {
            let mark = program.mark();
            edit(&maps, "platform", drift).await;
            program.after(mark, what, line(member, "platform", kept, "repaired"));
            let found = maps.get("platform").await.unwrap();
            assert_eq!(
                [entry(Some(&found), "tier"), entry(Some(&found), "mine")],
                [Some("1"), mine],
                "{what}"
            );
        }
        let mark = program.mark();
        delete(&maps, "platform").await;
        program.after(mark, "deleted", line(member, "platform", kept, "created"));
    }

    // A namespace that is no longer meant.
    let mark = program.mark();
    let unlabelled = json!({"metadata": {"labels": {"example.io/test": null}}});
    edit(&early.namespaces(), left, unlabelled).await;
    program.after(mark, "no longer meant", line(early, left, "", "unlabelled"));
    program.after(mark, "no longer meant", line(early, "platform", left, "deleted"));
    let found = early.namespaces().get(left).await.unwrap();
    let labels = ["checked", "team"].map(|key| label(Some(&found), key));
    assert_eq!(labels, [None, Some("shop")]);
    let lines = program.interrupt();
    let of_other = |line: &Value| line.to_string().contains(&format!("{id}-other"));
    assert!(!lines.iter().any(of_other), "{lines:#?}");

    // A policy that changed while nobody was there to see it.
    write(
        json!({"checked": "yes"}),
        json!({"name": "contacts", "data": {"support": "#platform"}}),
    );
    let unlabelled = json!({"metadata": {"labels": {"example.io/test": null}}});
    edit(&late.namespaces(), foreign, unlabelled).await;
    let program = start(folder.path(), &policy, id);
    for member in [early, late] {
        program.line("another ConfigMap", line(member, "contacts", kept, "created"));
        program.line(
            "one that is not required any more",
            line(member, "platform", kept, "deleted"),
        );
        eventually(&member.namespaces(), kept, "labels are given back", |found| {
            label(found, "owned").is_none() && label(found, "checked") == Some("yes")
        })
        .await;
        // What is somebody else's stays.
        let found = member.maps(foreign).get("platform").await.unwrap();
        assert_eq!(entry(Some(&found), "support"), Some("me"));
    }
    program.interrupt();
    for member in [early, late] {
        for namespace in [kept, foreign, left, &format!("{id}-other")] {
            let _ = member.namespaces().delete(namespace, &Default::default()).await;
        }
    }
}
