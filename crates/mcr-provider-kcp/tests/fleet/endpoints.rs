//! The endpoints follow the slice.

use mcr_core::ClusterState;
use mcr_testkit::log::Log;
use serde_json::json;
use tracing::Level;

use crate::{garbage::of_sick, scripted::*, world::*};

/// Each endpoint has one watch, however often the slice names it; one that is gone and comes back has one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_each_endpoint_of_the_slice_is_watched_once() {
    let kcp = Scripted::start().await;
    let at = |shard: &str| format!("{}/{shard}/services/apiexport/provider/widgets", kcp.url);
    let [one, two, three] = ["one", "two", "three"].map(at);
    kcp.set("apibindings", bindings(&[]));
    kcp.set_slice(&[]);
    let running = Running::start(of_sick(&kcp, "kcp").build().or_fail());
    running.discovered().await;
    let steps: [&[&String]; 6] = [
        &[&one, &two],
        &[&one, &three, &two],
        &[],
        &[&three],
        &[&three, &three],
        &[&one, &three],
    ];
    for urls in steps {
        let named: Vec<&str> = urls.iter().map(|url| url.as_str()).collect();
        kcp.set_slice(&named);
        let mut expected = named.clone();
        expected.sort_unstable();
        expected.dedup();
        eventually(
            PATIENCE,
            format!("{expected:?} are watched, not {:?}", kcp.watched()),
            || (kcp.watched() == expected).then_some(()),
        )
        .await;
    }
    running.stop().await;
    eventually(PATIENCE, "the watches end", || kcp.watched().is_empty()).await;
}

/// Each problem is logged when it begins, and no endpoints at all is no problem.
#[tokio::test]
async fn kcp_problems_of_the_slice_are_logged_once() {
    let log = Log::of_this_thread(Level::INFO);
    let kcp = Scripted::start().await;
    let at = |shard: &str| format!("{}/{shard}/services/apiexport/provider/widgets", kcp.url);
    let (one, two) = (at("one"), at("two"));
    let watched = async |urls: &[&str]| {
        eventually(PATIENCE, format!("{urls:?} are watched"), || {
            (kcp.watched() == urls).then_some(())
        })
        .await;
    };
    let unused = || log.lines_with("because no workspace binds the API").len();
    let invalid = || log.lines_with("APIExportValid is False: gone").len();
    let is_logged = async |times: usize| {
        eventually(PATIENCE, format!("it is logged {times} times"), || {
            invalid() == times
        })
        .await;
    };
    kcp.set("apibindings", bindings(&[]));
    kcp.set_slice(&[]);
    let running = Running::start(of_sick(&kcp, "kcp").build().or_fail());
    running.discovered().await;
    assert_eq!(unused(), 1);
    kcp.set_invalid_slice(&[], "gone");
    is_logged(1).await;
    kcp.set_slice(&[&one]);
    watched(&[&one]).await;
    kcp.set_invalid_slice(&[&one], "gone");
    is_logged(2).await;
    kcp.set_invalid_slice(&[&one, &two], "gone");
    watched(&[&one, &two]).await;
    assert_eq!((invalid(), unused()), (2, 1));
    // The other endpoints are used.
    kcp.set_slice(&[
        "http://user:secret@shard/services/apiexport/provider/widgets",
        &two,
    ]);
    watched(&[&two]).await;
    let wrong = log.lines_with("a user name");
    assert_eq!((wrong.len(), unused()), (1, 1));
    assert!(
        wrong[0].contains("correct the virtualWorkspaceURL of its Shard"),
        "{wrong:?}"
    );
    assert!(!log.text().contains("secret"), "{}", log.text());
    kcp.set_slice(&[&one]);
    watched(&[&one]).await;
    kcp.set_slice(&[]);
    watched(&[]).await;
    assert_eq!(unused(), 2, "{}", log.text());
    running.stop().await;
}

/// The URL names shard and export. A namespace `kube-system` there would be the one of any workspace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_an_endpoint_is_known_by_its_url() {
    let kcp = Scripted::start().await;
    let kube_system = |uid: &str| {
        let namespace = json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "kube-system", "uid": uid},
        });
        kcp.set(
            "kube-system",
            Answer::text("200 OK", "application/json", &namespace.to_string()),
        );
    };
    kube_system("one");
    kcp.set("apibindings", bindings(&[bound(Some("a"), "widgets")]));
    kcp.set("widgets", widgets_of(&[listed(Some("a"), "w", "red")]));
    kcp.set_slice(&[&kcp.endpoint()]);
    let running = Running::start(of_sick(&kcp, "kcp").build().or_fail());
    let in_a = running.ready("kcp#a").await;
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;
    kcp.set_down(true);
    reaches(&in_a, |state| matches!(state, ClusterState::Unreachable { .. })).await;
    kube_system("two");
    kcp.set_down(false);
    reaches(&in_a, ClusterState::is_ready).await;
    // The provider's own connection to it goes on, too.
    let both = [bound(Some("a"), "widgets"), bound(Some("b"), "widgets")];
    kcp.set("apibindings", bindings(&both).watched(&expired()));
    running.ready("kcp#b").await;
    assert!(running.fleet.get("kcp#a").is_ok_and(|now| now.is_same(&in_a)));
    assert_eq!(seen.objects(), ["default/w red"]);
    running.stop().await;
}

const EXPORTS: &str = "apiexports.apis.kcp.io";

#[tokio::test]
async fn kcp_a_deleted_export_is_named_and_its_workspaces_stay_until_it_is_back() {
    let log = Log::of_this_thread(Level::INFO);
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    widget(&a, "w", "red");
    let running = Running::start(world.builder().build().or_fail());
    let in_a = running.ready(a.id()).await;
    let seen = Witness::of_widgets(&in_a);
    seen.holds(&["default/w red"]).await;
    let mut export = world.provider.get(EXPORTS, "widgets").unwrap();
    world.provider.delete(EXPORTS, "widgets").or_fail();
    let line = eventually(PATIENCE, "the export is named", || {
        log.lines_with("APIExportEndpointSlice widgets does not exist")
            .pop()
    })
    .await;
    assert!(line.contains("create it again"), "{line}");
    reaches(&in_a, |state| !state.is_ready()).await;
    assert_eq!(seen.objects(), ["default/w red"]);

    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        export["metadata"].as_object_mut().unwrap().remove(field);
    }
    world.provider.create(export).or_fail();
    reaches(&in_a, ClusterState::is_ready).await;
    widget(&a, "w", "green");
    seen.holds(&["default/w green"]).await;
    assert!(running.fleet.get(a.id()).is_ok_and(|now| now.is_same(&in_a)));
    assert!(
        seen.lines().iter().all(|line| !line.starts_with('-')),
        "{:?}",
        seen.lines()
    );
    running.stop().await;
}
