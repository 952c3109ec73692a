//! `sync-local-to-remote`, from the first copy to what is deleted while it does not run.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::{
    member::{Member, create, delete, edit, entry, eventually, unique},
    program::Program,
};

const LABEL: &str = "example.io/propagate";

fn is_copy(map: Option<&ConfigMap>) -> bool {
    let labels = map.and_then(|map| map.metadata.labels.as_ref());
    let sync = labels.and_then(|labels| labels.get("sync.mcr.dev/sync"));
    sync.is_some_and(|sync| sync == "sync-local-to-remote")
}

/// A hub and two members; the second joins later.
pub(crate) async fn story(hub: &Member, early: &Member, late: &Member) {
    let (local, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (id, taken) = (&unique("sync"), &unique("sync-taken"));
    let original = |name: &str, label: &str| json!({"metadata": {"name": name, "labels": {LABEL: label}}, "data": {"key": "value"}});
    let reports = |member: &Member, name: &str, event: &str| {
        let wanted = [&member.name, id, name, event].map(str::to_owned);
        move |line: &Value| {
            let found = ["cluster", "namespace", "name", "event"].map(|field| line[field].as_str());
            found == wanted.each_ref().map(|text| Some(text.as_str()))
        }
    };
    let hub_kubeconfig = hub.join(local.path());
    early.join(folder.path());
    // The namespace is in the hub only: members get it with the first copy.
    hub.namespace(id, json!({})).await;
    for (name, label) in [
        ("settings", "true"),
        ("short-lived", "true"),
        ("private", "false"),
    ] {
        create(&hub.maps(id), original(name, label)).await;
    }
    for member in [hub, early] {
        member.namespace(taken, json!({})).await;
    }
    create(&hub.maps(taken), original("theirs", "true")).await;
    let theirs = json!({"metadata": {"name": "theirs"}, "data": {"key": "their value"}});
    create(&early.maps(taken), theirs).await;
    let args = [
        "--hub-kubeconfig",
        hub_kubeconfig.to_str().unwrap(),
        "--kubeconfig-dirs",
        folder.path().to_str().unwrap(),
    ];
    let program = Program::start("sync-local-to-remote", args);

    // A cluster that is there, and one that joins.
    for (member, joins) in [(early, false), (late, true)] {
        if joins {
            member.join(folder.path());
        }
        for name in ["settings", "short-lived"] {
            program.line("a copy", reports(member, name, "copied"));
            eventually(&member.maps(id), name, "the copy", is_copy).await;
        }
    }
    let copy = early.maps(id).get("settings").await.unwrap();
    assert_eq!(entry(Some(&copy), "key"), Some("value"));
    let labels = copy.metadata.labels.unwrap();
    assert!(!labels.contains_key(LABEL), "a copy is not itself an original");

    // The original changes. An entry that somebody adds to a copy stays, and other changes don't.
    edit(
        &hub.maps(id),
        "settings",
        json!({"data": {"key": "new", "more": "1"}}),
    )
    .await;
    for member in [early, late] {
        let maps = member.maps(id);
        let is_new = |map: Option<&ConfigMap>| entry(map, "key") == Some("new");
        eventually(&maps, "settings", "the update", is_new).await;
        let unlabelled = json!({"sync.mcr.dev/sync": null});
        let drift = json!({"metadata": {"labels": unlabelled}, "data": {"key": "drifted", "added": "1"}});
        let mark = program.mark();
        edit(&maps, "settings", drift).await;
        program.after(mark, "drift", reports(member, "settings", "copied"));
        let repaired =
            |map: Option<&ConfigMap>| is_copy(map) && is_new(map) && entry(map, "added") == Some("1");
        eventually(&maps, "settings", "drift is repaired", repaired).await;
        delete(&maps, "settings").await;
        eventually(&maps, "settings", "a deleted copy", is_copy).await;
    }

    // One original is deleted, and another one while the program does not run; a third one loses its label then.
    delete(&hub.maps(id), "short-lived").await;
    for member in [early, late] {
        program.line("the deletion", reports(member, "short-lived", "deleted"));
    }
    create(&hub.maps(id), original("orphan", "true")).await;
    eventually(&late.maps(id), "orphan", "the copy", is_copy).await;
    let lines = program.interrupt();
    let foreign = |line: &&Value| line["name"] == "private" || line["cluster"] == *hub.name;
    assert_eq!(lines.iter().find(foreign), None);
    delete(&hub.maps(id), "orphan").await;
    let unlabelled = json!({"metadata": {"labels": {LABEL: null}}});
    edit(&hub.maps(id), "settings", unlabelled).await;
    let program = Program::start("sync-local-to-remote", args);
    for member in [early, late] {
        for name in ["orphan", "settings"] {
            eventually(&member.maps(id), name, "no copy", |map| map.is_none()).await;
        }
    }
    let theirs = early.maps(taken).get("theirs").await.unwrap();
    assert_eq!(entry(Some(&theirs), "key"), Some("their value"));
    program.interrupt();
    for member in [hub, early, late] {
        for namespace in [id, taken] {
            let _ = member.namespaces().delete(namespace, &Default::default()).await;
        }
    }
}
