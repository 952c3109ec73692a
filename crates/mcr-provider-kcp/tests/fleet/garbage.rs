//! Answers that no kcp should give.

use mcr_provider_kcp::{KcpProvider, KcpProviderBuilder};
use mcr_testkit::log::Log;
use tracing::Level;

use crate::{scripted::*, world::*};

pub(crate) fn of_sick(kcp: &Scripted, name: &str) -> KcpProviderBuilder {
    KcpProvider::builder()
        .access(kcp.access())
        .slice("widgets")
        .provider_name(name)
        .name_prefix(format!("{name}#"))
}

/// The endpoint is named, nobody leaves, and the provider goes on when the garbage ends. `mcr-watch` has the other kinds of garbage.
#[tokio::test]
async fn kcp_garbage_in_place_of_bindings_is_named_and_costs_nobody_anything() {
    const PROBLEM: &str = "the APIBindings of an endpoint can't be watched";
    let log = Log::of_this_thread(Level::INFO);
    let sick = Scripted::start().await;
    sick.set_slice(&[&sick.endpoint()]);
    let known = bindings(&[bound(Some("a"), "widgets")]);
    sick.set("apibindings", known.clone());
    let running = Running::start(of_sick(&sick, "sick").build().or_fail());
    let in_a = running.ready("sick#a").await;
    let html = Answer::text("200 OK", "text/html", "<!doctype html><title>Sign in</title>");
    for garbage in [html, known.cut()] {
        let before = log.lines_with(PROBLEM).len();
        sick.set("apibindings", garbage.watched(&expired()));
        eventually(PATIENCE, "it is logged", || {
            log.lines_with(PROBLEM).get(before).cloned()
        })
        .await;
        assert!(running.fleet.get("sick#a").is_ok_and(|now| now.is_same(&in_a)));
        let both = [bound(Some("a"), "widgets"), bound(Some("b"), "widgets")];
        sick.set("apibindings", bindings(&both).watched(&expired()));
        running.ready("sick#b").await;
        let only = bindings(&both[..1]).watched(&expired());
        sick.set("apibindings", only);
    }
    assert!(in_a.state().is_ready());
    running.stop().await;
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
