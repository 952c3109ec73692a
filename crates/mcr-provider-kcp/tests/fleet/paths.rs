//! The paths of workspaces: looked up in both directions, and shown where people read names of clusters.

use std::sync::Arc;

use kube::core::DynamicObject;
use mcr::{Action, BoxError, Controller, FleetReport, Manager, Request};
use mcr_core::ClusterName;
use mcr_kcp_double::KcpWorkspace;
use mcr_provider_kcp::Paths;
use mcr_testkit::{log::Log, waiting::Background};
use tracing::Level;

use crate::world::*;

fn at(paths: &Paths, path: &str) -> Option<String> {
    paths.cluster_at(path).map(|name| name.to_string())
}

fn path_of(paths: &Paths, name: &str) -> Option<String> {
    let path = paths.path_of(&ClusterName::new(name).or_fail());
    path.map(|path| path.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_paths_lead_to_clusters_and_back_until_the_workspace_leaves() {
    let world = World::with_shards(2).await;
    let (a, b) = (world.consumer("a", "root"), world.consumer("b", "shard-1"));
    let child = world.consumer("a:child", "shard-1");
    let provider = world.builder().name_prefix("w#").build().or_fail();
    let paths = provider.paths();
    assert_eq!(at(&paths, "root:a"), None);
    let running = Running::start(provider);
    let name = |workspace: &KcpWorkspace| format!("w#{}", workspace.id());
    for workspace in [&a, &b, &child] {
        let cluster = running.ready(&name(workspace)).await;
        assert_eq!(at(&paths, workspace.path()), Some(name(workspace)));
        assert_eq!(at(&paths, workspace.id()), Some(name(workspace)));
        assert_eq!(paths.path_of(cluster.name()).as_deref(), Some(workspace.path()));
    }
    assert_eq!(at(&paths, &format!("{}:child", a.id())), Some(name(&child)));
    let clusters = FleetReport::of(&running.fleet, &[]).clusters;
    let shown = |workspace: &KcpWorkspace| {
        let mut reports = clusters.iter();
        let report = reports.find(|report| report.status.name.as_str() == name(workspace));
        serde_json::to_value(report).or_fail()["displayName"].clone()
    };
    assert_eq!([shown(&a), shown(&child)], ["root:a", "root:a:child"]);

    unbind(&b);
    running.left(&name(&b)).await;
    for gone in [b.path(), b.id()] {
        assert_eq!(at(&paths, gone), None, "{gone}");
    }
    assert_eq!(path_of(&paths, &name(&b)), None);
    unbind(&a);
    running.left(&name(&a)).await;
    assert_eq!(at(&paths, &format!("{}:child", a.id())), None);
    assert_eq!(at(&paths, child.path()), Some(name(&child)));
    running.stop().await;
}

/// People know paths. The id stays beside it.
#[tokio::test]
async fn kcp_the_log_shows_the_path_beside_the_name() {
    let log = Log::of_this_thread(Level::DEBUG);
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    widget(&a, "w", "red");
    let controller = Controller::<DynamicObject>::with("widgets", &widgets()).build(
        async |request: Request<DynamicObject>, _: Arc<()>| {
            tracing::info!("a line of the reconciler");
            match request.attempt {
                0 => Err(BoxError::from("not yet")),
                _ => Ok(Action::done()),
            }
        },
        Arc::new(()),
    );
    let manager = Manager::builder()
        .provider(world.builder().build().or_fail())
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    // Not the lines of the connections to kcp itself.
    let shows_path = async |words: &str| {
        let line = eventually(
            PATIENCE,
            format!("the log has {words:?} of the workspace"),
            || {
                let of_a = |line: &String| line.contains(&format!("cluster={}", a.id()));
                log.lines_with(words).into_iter().find(of_a)
            },
        )
        .await;
        assert!(line.contains(r#"display_name="root:a""#), "{line}");
    };
    for words in [
        "cluster joins the fleet",
        "a line of the reconciler",
        "reconcile failed",
    ] {
        shows_path(words).await;
    }
    unbind(&a);
    eventually(PATIENCE, "it leaves", || fleet.get(a.id()).is_err()).await;
    for words in ["cluster leaves the fleet", "cluster is gone"] {
        shows_path(words).await;
    }
    running.stop().await.or_fail();
    // People see workspaces, and not the connections of the provider.
    let info: Vec<_> = log.lines_with("cluster joins the fleet");
    assert!(
        info.iter()
            .all(|line| line.contains("INFO") && line.contains(a.id())),
        "{info:#?}"
    );
    assert!(
        !log.text().contains("discovery ended") && log.lines_with("watch failed").is_empty(),
        "{}",
        log.text()
    );
}
