use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::{
    clusters::{create, delete, entry, eventually, folder, kubeconfig, maps, namespace, on_clusters, patch},
    program::{Program, says},
};

const LABEL: (&str, &str) = ("example.io/propagate", "true");

/// Two of these programs at once would work on the same objects.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn is_copy(map: Option<&ConfigMap>) -> bool {
    let labelled = map.and_then(|map| map.metadata.labels.as_ref()?.get("sync.mcr.dev/sync"));
    labelled.is_some_and(|value| value == "sync-local-to-remote")
}

#[test]
fn copies_follow_their_originals_and_nothing_else_is_touched() {
    on_clusters(|clusters| async move {
        let _alone = ONE_AT_A_TIME.lock().await;
        let (hub, berlin, lyon) = (&clusters.hub, &clusters.berlin, &clusters.lyon);
        let (local, members) = (folder(), folder());
        let local = kubeconfig(local.path(), hub);
        kubeconfig(members.path(), berlin);
        // The namespace is there in the hub only: members get it with the first copy.
        namespace(hub, "sync").await;
        namespace(berlin, "sync-taken").await;
        namespace(hub, "sync-taken").await;
        create(hub, "sync", "settings", LABEL).await;
        create(hub, "sync", "private", ("example.io/propagate", "false")).await;
        create(hub, "sync", "short-lived", LABEL).await;
        create(hub, "sync-taken", "theirs", LABEL).await;
        create(berlin, "sync-taken", "theirs", ("somebody", "else")).await;
        patch(
            berlin,
            "sync-taken",
            "theirs",
            json!({"data": {"key": "their value"}}),
        )
        .await;
        let args = [
            "--hub-kubeconfig",
            local.to_str().unwrap(),
            "--kubeconfig-dirs",
            members.path().to_str().unwrap(),
        ];
        let program = Program::start("sync-local-to-remote", args);

        program.line("a copy", says("berlin", "settings", "copied"));
        eventually(berlin, "sync", "settings", "the copy", is_copy).await;
        let copy = maps(berlin.client(), "sync").get("settings").await.unwrap();
        assert_eq!(entry(Some(&copy), "key"), Some("value"));
        assert!(
            !copy.metadata.labels.unwrap().contains_key(LABEL.0),
            "a copy is not itself an original"
        );
        eventually(berlin, "sync", "short-lived", "all are copied", is_copy).await;

        // Another has joined: it gets everything.
        kubeconfig(members.path(), lyon);
        for name in ["settings", "short-lived"] {
            program.line("a copy in the new cluster", says("lyon", name, "copied"));
        }

        // The original changes.
        patch(
            hub,
            "sync",
            "settings",
            json!({"data": {"key": "new", "more": "1"}}),
        )
        .await;
        for plane in [berlin, lyon] {
            eventually(plane, "sync", "settings", "the update", |map| {
                entry(map, "key") == Some("new") && entry(map, "more") == Some("1")
            })
            .await;
        }

        // Its labels too: the copy has those that it has.
        let team = |map: Option<&ConfigMap>| map?.metadata.labels.as_ref()?.get("team").cloned();
        for value in [json!("blue"), json!(null)] {
            let labels = json!({"metadata": {"labels": {"team": value}}});
            patch(hub, "sync", "settings", labels).await;
            eventually(berlin, "sync", "settings", "the label", |map| {
                team(map).as_deref() == value.as_str()
            })
            .await;
        }

        // Somebody adds an entry to a copy, and keeps it. Other changes don't last: of values, of the label, of all.
        patch(berlin, "sync", "settings", json!({"data": {"added": "1"}})).await;
        for drift in [
            json!({"data": {"key": "drifted"}}),
            json!({"data": {"more": null}}),
            json!({"metadata": {"labels": {"sync.mcr.dev/sync": null}}}),
            json!({"metadata": {"labels": {"sync.mcr.dev/sync": null}}, "data": {"key": "drifted"}}),
        ] {
            let mark = program.mark();
            patch(berlin, "sync", "settings", drift.clone()).await;
            program.after(
                mark,
                &format!("{drift} is put right"),
                says("berlin", "settings", "copied"),
            );
            eventually(berlin, "sync", "settings", &drift.to_string(), |map| {
                is_copy(map)
                    && entry(map, "key") == Some("new")
                    && entry(map, "more") == Some("1")
                    && entry(map, "added") == Some("1")
            })
            .await;
        }
        let mark = program.mark();
        delete(berlin, "sync", "settings").await;
        program.after(mark, "a deleted copy", says("berlin", "settings", "copied"));
        eventually(berlin, "sync", "settings", "a deleted copy", is_copy).await;

        // Originals go: one is deleted, later one loses its label.
        delete(hub, "sync", "short-lived").await;
        for plane in [berlin, lyon] {
            eventually(plane, "sync", "short-lived", "the deletion", |map| map.is_none()).await;
        }
        program.line("the deletion", says("lyon", "short-lived", "deleted"));

        // What is deleted while the program does not run is found when it does.
        create(hub, "sync", "orphan", LABEL).await;
        eventually(lyon, "sync", "orphan", "the copy", is_copy).await;
        let lines = program.interrupt();
        assert!(!lines.iter().any(|line| line["name"] == "private"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line["cluster"] == "hub"), "{lines:#?}");
        delete(hub, "sync", "orphan").await;
        patch(
            hub,
            "sync",
            "settings",
            json!({"metadata": {"labels": {LABEL.0: null}}}),
        )
        .await;
        let program = Program::start("sync-local-to-remote", args);
        for plane in [berlin, lyon] {
            for name in ["orphan", "settings"] {
                eventually(plane, "sync", name, "the orphan", |map| map.is_none()).await;
            }
        }
        let theirs = maps(berlin.client(), "sync-taken").get("theirs").await.unwrap();
        assert_eq!(entry(Some(&theirs), "key"), Some("their value"));
        program.interrupt();
    });
}
