//! Failing requests: the list in the status, the log, and the error policies.
#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    Action, Backoff, BoxError, BuildError, ClusterSelector, Controller, ControllerClusterStatus,
    ControllerHandle, Manager, ManagerError, Request, RequestObject, TerminalError,
};
use mcr_testkit::{
    log::Log,
    sim::{SimCluster, SimRule, SimUser},
    waiting::Background,
};
use serde_json::json;
use support::{Seen, World, maps::maps, name, sleep, until_true};
use tokio::time::Instant;
use tracing::Level;

const TOKEN: &str = "a-token";

/// A simulated cluster with one controller, whose user has no right on Secrets at first.
struct Sim {
    server: SimCluster,
    handle: ControllerHandle,
    running: Background<Result<(), ManagerError>>,
}

fn user() -> SimUser {
    SimUser::new("controller").rule(SimRule::new([""], ["configmaps", "namespaces"], ["*"]))
}

/// The same pause after each failure, so that the tests know the times.
fn each_second() -> Backoff {
    Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(1),
        jitter: 0.0,
    }
}

fn controller() -> Controller<ConfigMap> {
    maps()
        .backoff(each_second())
        .watch_request(|watch| watch.namespace("ns"))
}

impl Sim {
    fn start<Ctx: Send + Sync + 'static>(
        controller: Controller<ConfigMap>,
        reconcile: impl mcr::Reconciler<ConfigMap, Ctx>,
        ctx: Ctx,
        objects: &[&str],
    ) -> Self {
        let server = SimCluster::builder().user(TOKEN, user()).build();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        server.create(namespace).unwrap();
        let manager = Manager::single(server.client_with_token(TOKEN))
            .controller(controller.build(reconcile, Arc::new(ctx)))
            .build()
            .unwrap();
        let handle = manager.controllers().remove(0);
        let running = Background::start(|stop| async move { manager.run_until(stop).await });
        let sim = Self {
            server,
            handle,
            running,
        };
        objects.iter().for_each(|object| sim.put(object, "1"));
        sim
    }

    fn put(&self, name: &str, value: &str) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns"}, "data": {"value": value},
        });
        self.server.apply(map).unwrap();
    }

    fn grant_secrets(&self) {
        let user = user().rule(SimRule::new([""], ["secrets"], ["*"]));
        self.server.set_user(TOKEN, user);
    }

    fn withdraw_secrets(&self) {
        self.server.set_user(TOKEN, user());
    }

    /// The state of the controller in the cluster, which has no state before it joins.
    fn status(&self) -> Option<ControllerClusterStatus> {
        self.handle.status().clusters.remove("local")
    }

    async fn failing(&self, count: usize) -> ControllerClusterStatus {
        support::until(|| self.status().filter(|status| status.failing_count == count)).await
    }

    async fn end(self) {
        self.running.stop().await.unwrap();
    }
}

/// Reads the Secrets of the namespace.
async fn read_secrets(request: Request<ConfigMap>, _: Arc<()>) -> Result<(), BoxError> {
    request
        .cluster
        .namespaced::<Secret>("ns")
        .list(&Default::default())
        .await?;
    Ok(())
}

fn value(request: &Request<ConfigMap>) -> String {
    let data = request.live().and_then(|map| map.data.clone());
    data.unwrap_or_default().remove("value").unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_right_is_shown_with_key_and_403_until_it_is_granted_again() {
    let sim = Sim::start(controller(), read_secrets, (), &[]);
    sim.grant_secrets();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "stringData": {"password": "s3cr3t"},
    });
    sim.server.create(secret).unwrap();
    sim.put("b", "1");
    until_true(|| sim.handle.status().counts.successes == 1).await;
    assert_eq!(sim.failing(0).await.failing, []);

    sim.withdraw_secrets();
    let began = std::time::SystemTime::now();
    sim.put("b", "2");
    until_true(|| sim.handle.status().counts.errors == 2).await;
    sim.put("a", "1");
    let status = sim.failing(2).await;
    // The worst first.
    let objects: Vec<_> = status.failing.iter().map(|failing| &*failing.object).collect();
    assert_eq!(objects, ["ns/b", "ns/a"]);
    assert_eq!((status.failing[0].attempt, status.failing[1].attempt), (2, 1));
    for failing in &status.failing {
        assert!(
            failing.error.starts_with("403 Forbidden: secrets is forbidden: "),
            "{failing:?}"
        );
        assert!(
            !failing.error.contains("Status") && !failing.error.contains("s3cr3t"),
            "{failing:?}"
        );
        let pause = failing.retry_at.unwrap().duration_since(failing.since).unwrap();
        assert!(
            failing.since >= began && pause < Duration::from_secs(60),
            "{failing:?}"
        );
    }
    let since = status.failing[0].since;
    until_true(|| sim.status().unwrap().failing[0].attempt == 4).await;
    assert_eq!(sim.status().unwrap().failing[0].since, since);

    sim.grant_secrets();
    assert_eq!(sim.failing(0).await.failing, []);
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_is_not_retried_until_the_object_changes_and_is_logged_once() {
    let log = Log::of_this_thread(Level::INFO);
    let lines = || log.lines_with("mcr::reconcile");
    let seen: Seen<String> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        let value = value(&request);
        seen.push(value.clone());
        if value != "good" {
            return Err(BoxError::from(TerminalError::new(format!(
                "{} is not good",
                &value[..1]
            ))));
        }
        Ok(())
    };
    let sim = Sim::start(controller(), reconcile, seen.clone(), &["x"]);
    let status = sim.failing(1).await;
    assert_eq!((status.failing[0].retry_at, status.failing[0].attempt), (None, 1));
    assert_eq!(status.failing[0].error, "1 is not good");
    sleep(7_200_000).await;
    assert_eq!(seen.all(), ["1"]);
    assert_eq!(sim.failing(1).await.delayed, 0);
    assert_eq!(lines().len(), 1);
    assert!(
        lines()[0].contains(
            "ERROR reconcile{controller=maps cluster=local namespace=\"ns\" name=x attempt=1}: mcr::reconcile: reconcile failed \
             with a terminal error; it is not retried until the object changes error=1 is not good controller=maps \
             kind=configmaps cluster=local key=ns/x attempt=1"
        ) && !lines()[0].contains("retry_in"),
        "{}",
        lines()[0]
    );
    // A change leads to another reconcile. The same error is not logged again, another one is.
    sim.put("x", "10");
    seen.wait_for(2).await;
    sim.put("x", "2");
    until_true(|| sim.handle.status().counts.terminal == 3).await;
    assert_eq!(lines().len(), 2);
    sim.put("x", "good");
    assert_eq!(sim.failing(0).await.failing, []);
    let counts = sim.handle.status().counts;
    assert_eq!(
        (counts.terminal, counts.errors, counts.retries, counts.successes),
        (3, 0, 0, 1)
    );
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_error_policy_chooses_the_pause_or_ends_the_retries_or_leaves_it_to_the_back_off() {
    let log = Log::of_this_thread(Level::INFO);
    let seen: Seen<(String, u32, Instant)> = Seen::default();
    let asked: Seen<(String, u32)> = Seen::default();
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<(String, u32, Instant)>>| async move {
        let name = request.name().to_owned();
        seen.push((name.clone(), request.attempt, Instant::now()));
        match name.as_str() {
            "terminal" => Err::<(), BoxError>(TerminalError::new(name).into()),
            "panics" => panic!("as it is meant to"),
            "hangs" => std::future::pending().await,
            _ => Err(name.into()),
        }
    };
    let policy = {
        let asked = asked.clone();
        move |error: &(dyn std::error::Error + 'static), attempt: u32| {
            asked.push((error.to_string(), attempt));
            match error.to_string().as_str() {
                "pauses" => Some(Action::requeue(Duration::from_secs(30))),
                "ends" => Some(Action::done()),
                _ => None,
            }
        }
    };
    let objects = ["pauses", "ends", "backs-off", "terminal", "panics", "hangs"];
    let sim = Sim::start(
        controller().timeout(Duration::from_secs(2)).on_error(policy),
        reconcile,
        seen.clone(),
        &objects,
    );
    let of = |name: &str| -> Vec<(String, u32, Instant)> {
        let all = seen.all();
        all.into_iter().filter(|(of, ..)| of == name).collect()
    };
    until_true(|| of("pauses").len() == 3).await;
    let gaps = |name: &str| -> Vec<u128> {
        let at = of(name);
        let gaps = at
            .windows(2)
            .map(|pair| (pair[1].2 - pair[0].2).as_millis() / 100);
        gaps.take(2).collect()
    };
    assert_eq!(
        (gaps("pauses"), gaps("backs-off")),
        (vec![300, 300], vec![10, 10])
    );
    assert_eq!((of("ends").len(), of("terminal").len()), (1, 1));
    assert!(of("panics").len() > 20 && of("hangs").len() > 10);
    // The policy gets the number of failures in a row, and neither terminal errors nor panics and timeouts.
    let asked = asked.all();
    let of_pauses: Vec<_> = asked
        .iter()
        .filter(|(of, _)| of == "pauses")
        .map(|(_, attempt)| *attempt)
        .collect();
    assert_eq!(of_pauses[..2], [1, 2]);
    assert!(
        asked
            .iter()
            .all(|(of, _)| ["pauses", "ends", "backs-off"].contains(&&**of)),
        "{asked:?}"
    );
    let failing = sim.failing(6).await.failing;
    let error = |object: &str| {
        failing
            .iter()
            .find(|failing| failing.object == object)
            .unwrap()
            .error
            .clone()
    };
    assert_eq!(error("ns/panics"), "the reconciler panicked: as it is meant to");
    assert_eq!(error("ns/hangs"), "the reconciler did not end within 2 s");
    assert_eq!(
        log.lines_with("ERROR reconcile{controller=maps cluster=local namespace=\"ns\" name=panics")
            .len(),
        3
    );
    let ended: Vec<_> = failing
        .iter()
        .filter(|failing| failing.retry_at.is_none())
        .collect();
    assert_eq!(ended.len(), 2, "{failing:?}");
    let lines = log.lines_with("mcr::reconcile: reconcile failed error=pauses");
    assert!(
        lines[0].ends_with("key=ns/pauses attempt=1 retry_in=30s"),
        "{}",
        lines[0]
    );
    assert_eq!(log.lines_with("by its error policy it is not retried").len(), 1);
    sim.end().await;
}

#[test]
fn two_error_policies_are_refused() {
    let policy = |_, _: &kube::Error, _| kube::runtime::controller::Action::await_change();
    let reconcile =
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok(kube::runtime::controller::Action::await_change());
    let built = maps()
        .on_error(|_, _| Action::done())
        .build_uniform(reconcile, policy, |_| ());
    assert!(
        matches!(built, Err(BuildError::TwoErrorPolicies { .. })),
        "{built:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn equal_failures_are_logged_three_times_and_then_once_a_minute() {
    let log = Log::of_this_thread(Level::INFO);
    let lines = || log.lines_with("mcr::reconcile");
    let sim = Sim::start(controller(), read_secrets, (), &["a", "b"]);
    until_true(|| sim.handle.status().counts.errors >= 100).await;
    assert_eq!(lines().len(), 3, "{:#?}", lines());
    for line in lines() {
        let words = "WARN reconcile{controller=maps cluster=local namespace=\"ns\" name=";
        assert!(line.contains(words), "{line}");
        let words = ": mcr::reconcile: reconcile failed error=403 Forbidden: secrets is forbidden: User \"controller\" ";
        assert!(line.contains(words), "{line}");
        let words = " controller=maps kind=configmaps cluster=local key=ns/";
        assert!(
            line.contains(words) && !line.contains("Status {") && !line.contains("repeated"),
            "{line}"
        );
        assert!(
            line.contains(" attempt=1 retry_in=1s") || line.contains(" attempt=2 retry_in=1s"),
            "{line}"
        );
    }
    until_true(|| sim.handle.status().counts.errors >= 250).await;
    let repeated: Vec<u64> = lines()[3..]
        .iter()
        .map(|line| line.split_once(" repeated=").unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(repeated.len(), 2, "{:#?}", lines());
    assert!(
        repeated.iter().all(|repeated| (110..=125).contains(repeated)),
        "{repeated:?}"
    );
    // After nothing failed any more, a failure is logged like the first.
    sim.grant_secrets();
    sim.failing(0).await;
    sim.withdraw_secrets();
    sim.put("a", "2");
    until_true(|| lines().len() == 6).await;
    assert!(!lines()[5].contains("repeated"), "{}", lines()[5]);
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_is_no_longer_failing_when_it_is_dropped_or_its_cluster_leaves_or_is_deselected() {
    let mut world = World::new();
    let (a, b) = (world.join("a"), world.join("b"));
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        match &request.object {
            RequestObject::Deleted { .. } => Ok(()),
            _ => Err(BoxError::from("no")),
        }
    };
    let chosen = [("in", "yes")];
    world.add("a", &a, &chosen);
    world.add("b", &b, &chosen);
    let controller = maps()
        .backoff(each_second())
        .clusters(ClusterSelector::label("in", "yes"));
    let handle = world.run(controller.build(reconcile, Arc::new(())).unwrap());
    for api in [&a, &b] {
        ["ns/x", "ns/y", "ns/z"]
            .iter()
            .for_each(|key| api.put_map(key, "1"));
    }
    let count = |cluster: &str| {
        let status = handle.status();
        status
            .clusters
            .get(&name(cluster))
            .map(|status| status.failing_count)
    };
    until_true(|| count("a") == Some(3) && count("b") == Some(3)).await;
    // An object that can't be decoded is dropped, a deleted one succeeds.
    a.put("configmaps", "ns/x", json!({"data": 5}));
    a.delete("configmaps", "ns/y");
    until_true(|| count("a") == Some(1)).await;
    world.remove("a");
    until_true(|| count("a").is_none()).await;
    world.add("b", &b, &[]);
    until_true(|| count("b").is_none()).await;
    // In the next membership, the failures begin again.
    b.delete("configmaps", "ns/x");
    world.add("b", &b, &chosen);
    until_true(|| count("b") == Some(2)).await;
    let status = handle.status();
    assert!(
        status.clusters[&name("b")]
            .failing
            .iter()
            .all(|failing| failing.attempt < 5)
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_are_listed_of_all_clusters_and_all_are_counted() {
    let mut world = World::new();
    let clusters = ["a", "b", "c"].map(|cluster| world.join(cluster));
    let reconcile = |request: Request<ConfigMap>, _: Arc<()>| async move {
        // Those of cluster `c` fail more often.
        let often = request.cluster.name().as_str() == "c";
        sleep(if often { 10 } else { 10_000 }).await;
        Err::<(), BoxError>("no".into())
    };
    let controller = maps()
        .cluster_concurrency(1_000)
        .concurrency(1_000)
        .backoff(each_second());
    let handle = world.run(controller.build(reconcile, Arc::new(())).unwrap());
    for api in &clusters {
        (0..80).for_each(|number| api.put_map(&format!("ns/{number}"), "1"));
    }
    let status = || {
        let status = handle.status();
        ["a", "b", "c"].map(|cluster| status.clusters.get(&name(cluster)).cloned())
    };
    let all = support::until(|| {
        let [Some(a), Some(b), Some(c)] = status() else {
            return None;
        };
        let all = [a, b, c];
        let counted = all.iter().all(|status| status.failing_count == 80);
        (counted && all[2].failing[0].attempt > 5).then_some(all)
    })
    .await;
    let listed = all.each_ref().map(|status| status.failing.len());
    assert_eq!((listed[2], listed[0] + listed[1]), (80, 20), "{listed:?}");
    world.end().await;
}
