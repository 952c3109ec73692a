//! `fleet-policy`, from the first start to a policy that changed while it did not run.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    member::{Member, create, delete, edit, eventually, unique},
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

fn entry<'a>(map: Option<&'a ConfigMap>, key: &str) -> Option<&'a str> {
    map?.data.as_ref()?.get(key).map(String::as_str)
}

fn start(folder: &Path, policy: &Path, id: &str) -> Program {
    let (folder, policy) = (folder.to_str().unwrap(), policy.to_str().unwrap());
    let globs = "*.kubeconfig";
    let args = format!("--policy {policy} --name {id} --kubeconfig-dirs {folder} --globs {globs}");
    Program::start("fleet-policy", args.split(' '))
}

/// Drift in a namespace is repaired, twice: so what was to be done in that cluster before has been done.
pub(crate) async fn repairs(program: &Program, member: &Member, namespace: &str) {
    for tier in ["7", "8"] {
        let mark = program.mark();
        edit(
            &member.maps(namespace),
            "platform",
            json!({"data": {"tier": tier}}),
        )
        .await;
        program.after(mark, "a repair", line(member, "platform", namespace, "repaired"));
    }
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

    // Drift, in each cluster by itself.
    for member in [early, late] {
        let (namespaces, maps) = (member.namespaces(), member.maps(kept));
        for (what, drift) in [("another value", json!("no")), ("no value", json!(null))] {
            let mark = program.mark();
            edit(
                &namespaces,
                kept,
                json!({"metadata": {"labels": {"checked": drift, "mine": "too"}}}),
            )
            .await;
            program.after(mark, what, line(member, kept, "", "labelled"));
            let found = namespaces.get(kept).await.unwrap();
            assert_eq!(label(Some(&found), "checked"), Some("yes"), "{what}");
            assert_eq!(label(Some(&found), "mine"), Some("too"), "labels of others stay");
        }
        for (what, drift, event) in [
            (
                "other data",
                json!({"data": {"tier": "3", "mine": "too"}}),
                "repaired",
            ),
            ("an entry less", json!({"data": {"tier": null}}), "repaired"),
            (
                "without its label",
                json!({"metadata": {"labels": null}}),
                "repaired",
            ),
            (
                "immutable",
                json!({"data": {"tier": "3"}, "immutable": true}),
                "repaired",
            ),
        ] {
            let mark = program.mark();
            edit(&maps, "platform", drift).await;
            program.after(mark, what, line(member, "platform", kept, event));
            let found = maps.get("platform").await.unwrap();
            assert_eq!(entry(Some(&found), "tier"), Some("1"), "{what}");
            let mine = entry(Some(&found), "mine");
            assert_eq!(
                mine,
                (what != "immutable").then_some("too"),
                "{what}: entries of others stay"
            );
        }
        let mark = program.mark();
        delete(&maps, "platform").await;
        program.after(mark, "deleted", line(member, "platform", kept, "created"));
    }

    // What goes: a namespace that is no longer meant, and one that is deleted.
    let mark = program.mark();
    edit(
        &early.namespaces(),
        left,
        json!({"metadata": {"labels": {"example.io/test": null}}}),
    )
    .await;
    program.after(mark, "no longer meant", line(early, left, "", "unlabelled"));
    program.after(mark, "no longer meant", line(early, "platform", left, "deleted"));
    let found = early.namespaces().get(left).await.unwrap();
    assert_eq!(
        (label(Some(&found), "checked"), label(Some(&found), "team")),
        (None, Some("shop"))
    );
    let mark = program.mark();
    delete(&late.namespaces(), left).await;
    let _ = late.maps(left).delete("platform", &Default::default()).await;
    repairs(&program, late, kept).await;
    let about = |line: &&Value| line["namespace"] == left.as_str() || line["name"] == left.as_str();
    let lines = program.lines();
    assert_eq!(
        lines.iter().skip(mark).find(about),
        None,
        "nothing is done where a namespace goes"
    );
    let lines = program.interrupt();
    assert!(
        !lines
            .iter()
            .any(|line| line.to_string().contains(&format!("{id}-other"))),
        "{lines:#?}"
    );

    // A policy that changed while nobody was there to see it.
    write(
        json!({"checked": "yes"}),
        json!({"name": "contacts", "data": {"support": "#platform"}}),
    );
    edit(
        &late.namespaces(),
        foreign,
        json!({"metadata": {"labels": {"example.io/test": null}}}),
    )
    .await;
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
        let found = member.maps(foreign).get("platform").await.unwrap();
        assert_eq!(
            entry(Some(&found), "support"),
            Some("me"),
            "what is somebody else's stays"
        );
    }
    program.interrupt();
    for member in [early, late] {
        for namespace in [kept, foreign, left, &format!("{id}-other")] {
            let _ = member.namespaces().delete(namespace, &Default::default()).await;
        }
    }
}
