//! Answers that no kcp should give. A second kcp in the same fleet goes on.

use mcr_core::{Cluster, ClusterState, Fleet};
use mcr_kcp_double::KcpWorkspace;
use mcr_provider_kcp::{KcpProvider, KcpProviderBuilder};
use mcr_testkit::{log::Log, waiting::Background};
use serde_json::json;
use tracing::Level;

use crate::{scripted::*, world::*};

/// A fleet with a kcp that is in order, and one for each kind of garbage.
struct Many {
    world: World,
    sick: Vec<Sick>,
    fleet: Fleet,
    healthy: (KcpWorkspace, Cluster, Witness),
    running: Background<()>,
}

struct Sick {
    what: &'static str,
    garbage: Answer,
    name: String,
    kcp: Scripted,
}

pub(crate) fn of_sick(kcp: &Scripted, name: &str) -> KcpProviderBuilder {
    KcpProvider::builder()
        .access(kcp.access())
        .slice("widgets")
        .provider_name(name)
        .name_prefix(format!("{name}#"))
}

impl Many {
    /// `prepare` sets the first answers.
    async fn start(prepare: impl Fn(&Sick)) -> Self {
        let world = World::with_shards(1).await;
        let workspace = world.consumer("healthy", "root");
        widget(&workspace, "w", "start");
        let mut fleet = Fleet::builder().provider(world.builder().build().or_fail());
        let mut sick = Vec::new();
        for (number, (what, garbage)) in garbage().into_iter().enumerate() {
            let (name, kcp) = (format!("sick{number}"), Scripted::start().await);
            fleet = fleet.provider(of_sick(&kcp, &name).build().or_fail());
            let new = Sick {
                what,
                garbage,
                name,
                kcp,
            };
            prepare(&new);
            sick.push(new);
        }
        let fleet = fleet.build();
        let runs = fleet.clone();
        let running = Background::start(|stop| async move { runs.run(stop).await });
        let cluster = eventually(PATIENCE, "the healthy workspace joins", || {
            fleet.get(workspace.id()).ok()
        })
        .await;
        let witness = Witness::of_widgets(&cluster);
        Self {
            world,
            sick,
            fleet,
            healthy: (workspace, cluster, witness),
            running,
        }
    }

    /// The healthy workspace is ready and its changes arrive.
    async fn healthy_goes_on(&self, color: &str) {
        let (workspace, cluster, witness) = &self.healthy;
        reaches(cluster, ClusterState::is_ready).await;
        widget(workspace, "w", color);
        witness.holds(&[&format!("default/w {color}")]).await;
        assert!(
            self.fleet
                .get(workspace.id())
                .is_ok_and(|now| now.is_same(cluster))
        );
        assert!(witness.lines().iter().all(|line| !line.starts_with('-')));
    }

    /// A workspace of a kcp that is out of order.
    async fn ready(&self, sick: &Sick, id: &str) -> Cluster {
        let name = format!("{}#{id}", sick.name);
        let cluster = eventually(PATIENCE, format!("{}: {name} joins", sick.what), || {
            self.fleet.get(&name).ok()
        })
        .await;
        reaches(&cluster, ClusterState::is_ready).await;
        cluster
    }

    async fn stop(self) {
        self.running.stop().await;
        drop(self.world);
    }
}

const HTML: &str = "<!doctype html><title>Sign in</title>";

/// The answers to a list that are no list, by name.
fn garbage() -> Vec<(&'static str, Answer)> {
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "resourceVersion": "1"}});
    let whole = bindings(&[bound(Some("a"), "widgets")]);
    let text = |text: &str| Answer::text("200 OK", "application/json", text);
    vec![
        ("invalid JSON", text("{\"kind\": \"APIBindingList\", oh no")),
        ("bytes", text("\u{0}\u{1}\u{2}")),
        ("nothing", text("")),
        ("HTML", Answer::text("200 OK", "text/html", HTML)),
        (
            "HTML of a proxy",
            Answer::text("502 Bad Gateway", "text/html", HTML),
        ),
        ("a stream that is cut", whole.cut()),
        ("an object in place of a list", text(&pod.to_string())),
        (
            "no version",
            text("{\"kind\": \"APIBindingList\", \"apiVersion\": \"apis.kcp.io/v1alpha2\", \"items\": []}"),
        ),
    ]
}

/// The endpoint is named, nobody leaves, and the provider goes on when the garbage ends.
#[tokio::test]
async fn kcp_garbage_in_place_of_bindings_is_named_and_costs_nobody_anything() {
    const PROBLEM: &str = "the APIBindings of an endpoint can't be watched";
    let log = Log::of_this_thread(Level::INFO);
    let known = || vec![bound(Some("a"), "widgets")];
    let many = Many::start(|sick| {
        sick.kcp.set_slice(&[&sick.kcp.endpoint()]);
        sick.kcp.set("apibindings", bindings(&known()));
    })
    .await;
    let mut engaged = Vec::new();
    for sick in &many.sick {
        engaged.push(many.ready(sick, "a").await);
    }
    for sick in &many.sick {
        sick.kcp
            .set("apibindings", sick.garbage.clone().watched(&expired()));
    }
    for (sick, cluster) in many.sick.iter().zip(&engaged) {
        let endpoint = sick.kcp.endpoint();
        eventually(PATIENCE, format!("{} is logged", sick.what), || {
            let mut lines = log.lines_with(PROBLEM).into_iter();
            lines.find(|line| line.contains(&endpoint))
        })
        .await;
        let now = many.fleet.get(cluster.name().as_str());
        assert!(now.is_ok_and(|now| now.is_same(cluster)), "{}", sick.what);
    }
    many.healthy_goes_on("beside garbage").await;
    let both = [bound(Some("a"), "widgets"), bound(Some("b"), "widgets")];
    for sick in &many.sick {
        sick.kcp.set("apibindings", bindings(&both).watched(&expired()));
    }
    for (sick, cluster) in many.sick.iter().zip(&engaged) {
        many.ready(sick, "b").await;
        assert!(cluster.state().is_ready(), "{}", sick.what);
    }
    many.stop().await;
}

#[tokio::test]
async fn kcp_an_object_without_a_cluster_is_left_out_and_named() {
    let log = Log::of_this_thread(Level::INFO);
    let sick = Scripted::start().await;
    sick.set_slice(&[&sick.endpoint()]);
    let mut unreadable = bound(Some("b"), "widgets");
    unreadable["status"]["conditions"] = "none".into();
    let mut elsewhere = bound(Some("../a"), "elsewhere");
    elsewhere["metadata"]["uid"] = "e".into();
    sick.set(
        "apibindings",
        bindings(&[
            bound(None, "nameless"),
            elsewhere,
            unreadable,
            bound(Some("a"), "widgets"),
        ]),
    );
    sick.set(
        "widgets",
        widgets_of(&[
            listed(None, "nobodys", "red"),
            listed(None, "second", "red"),
            listed(None, "third", "red"),
            listed(Some("a"), "w", "red"),
            listed(Some("c"), "w", "blue"),
        ]),
    );
    let running = Running::start(of_sick(&sick, "sick").build().or_fail());
    let in_a = running.ready("sick#a").await;
    Witness::of_widgets(&in_a).holds(&["default/w red"]).await;
    running.discovered().await;
    assert_eq!(running.fleet.clusters().len(), 1);
    for name in ["nameless", "nobodys"] {
        let line = eventually(PATIENCE, format!("{name} is logged"), || {
            log.lines_with(name).pop()
        })
        .await;
        assert!(line.contains("has no annotation kcp.io/cluster"), "{line}");
    }
    // The first, the second, the fourth, and so on.
    assert!(log.lines_with("third").is_empty(), "{}", log.text());
    let line = log
        .lines_with("an object of kind APIBinding can't be read")
        .pop()
        .expect("it is logged");
    assert!(
        line.contains("cluster=\"b\"") && line.contains("binding=\"widgets\""),
        "{line}"
    );
    running.stop().await;
}
