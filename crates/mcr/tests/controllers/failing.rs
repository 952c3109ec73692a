//! Failing requests: the list in the status, the log, and the error policies.

use std::{sync::Arc, time::Duration};

use crate::support::{Seen, World, maps::maps, sleep, until, until_true};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use mcr::{
    Action, Backoff, BoxError, ClusterSelector, Controller, ControllerClusterStatus, ControllerHandle,
    Request, RequestObject, TerminalError,
};
use mcr_testkit::{
    log::Log,
    sim::{SimCluster, SimRule, SimUser},
};
use serde_json::json;
use tokio::time::Instant;
use tracing::Level;

const TOKEN: &str = "a-token";

/// A simulated cluster with one controller, whose user has no right on Secrets at first.
struct Sim {
    world: World,
    server: SimCluster,
    handle: ControllerHandle,
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
    fn start<T: Send + 'static>(
        controller: Controller<ConfigMap>,
        reconcile: impl mcr::Reconciler<ConfigMap, Seen<T>>,
        objects: &[&str],
    ) -> (Self, Seen<T>) {
        let server = SimCluster::builder().user(TOKEN, user()).build();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        server.create(namespace).unwrap();
        let mut world = World::new();
        world.add("local", &server.client_with_token(TOKEN).into(), &[]);
        let (handle, seen) = world.run_with(controller, reconcile);
        let sim = Self {
            world,
            server,
            handle,
        };
        objects.iter().for_each(|object| sim.put(object, "1"));
        (sim, seen)
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
        until(|| self.status().filter(|status| status.failing_count == count)).await
    }

    async fn end(self) {
        self.world.end().await;
    }
}

/// Reads the Secrets of the namespace.
async fn read_secrets(request: Request<ConfigMap>, _: Arc<Seen<()>>) -> Result<(), BoxError> {
    let secrets = request.cluster.namespaced::<Secret>("ns");
    secrets.list(&Default::default()).await?;
    Ok(())
}

fn value(request: &Request<ConfigMap>) -> String {
    let data = request.live().and_then(|map| map.data.clone());
    data.unwrap_or_default().remove("value").unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_right_is_shown_with_key_and_403_until_it_is_granted_again() {
    let (sim, _) = Sim::start(controller(), read_secrets, &[]);
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
        let error = &failing.error;
        assert!(
            error.starts_with("403 Forbidden: secrets is forbidden: "),
            "{error}"
        );
        assert!(!error.contains("Status") && !error.contains("s3cr3t"), "{error}");
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
    let reconcile = |request: Request<ConfigMap>, seen: Arc<Seen<String>>| async move {
        let value = value(&request);
        seen.push(value.clone());
        if value == "good" {
            return Ok(());
        }
        let error = format!("{} is not good", &value[..1]);
        Err(BoxError::from(TerminalError::new(error)))
    };
    let (sim, seen) = Sim::start(controller(), reconcile, &["x"]);
    let status = sim.failing(1).await;
    assert_eq!((status.failing[0].retry_at, status.failing[0].attempt), (None, 1));
    assert_eq!(status.failing[0].error, "1 is not good");
    sleep(7_200_000).await;
    assert_eq!(seen.all(), ["1"]);
    assert_eq!(sim.failing(1).await.delayed, 0);
    assert_eq!(lines().len(), 1);
    let line = &lines()[0];
    let expected = "ERROR reconcile{controller=maps cluster=local namespace=\"ns\" name=x attempt=1}: mcr::reconcile: \
                    reconcile failed with a terminal error; it is not retried until the object changes error=1 is not good \
                    controller=maps kind=configmaps cluster=local key=ns/x attempt=1";
    assert!(line.contains(expected) && !line.contains("retry_in"), "{line}");
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
    let controller = controller().timeout(Duration::from_secs(2)).on_error(policy);
    let (sim, seen) = Sim::start(controller, reconcile, &objects);
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
    let of_pauses = asked.iter().filter(|(of, _)| of == "pauses");
    let of_pauses: Vec<_> = of_pauses.map(|(_, attempt)| *attempt).collect();
    assert_eq!(of_pauses[..2], [1, 2]);
    let may_ask = ["pauses", "ends", "backs-off"];
    assert!(asked.iter().all(|(of, _)| may_ask.contains(&&**of)), "{asked:?}");
    let failing = sim.failing(6).await.failing;
    let error = |object: &str| {
        let found = failing.iter().find(|failing| failing.object == object);
        found.unwrap().error.clone()
    };
    assert_eq!(error("ns/panics"), "the reconciler panicked: as it is meant to");
    assert_eq!(error("ns/hangs"), "the reconciler did not end within 2 s");
    let panicked = "ERROR reconcile{controller=maps cluster=local namespace=\"ns\" name=panics";
    assert_eq!(log.lines_with(panicked).len(), 3);
    let ended = failing.iter().filter(|failing| failing.retry_at.is_none());
    assert_eq!(ended.count(), 2, "{failing:?}");
    let line = &log.lines_with("mcr::reconcile: reconcile failed error=pauses")[0];
    assert!(line.ends_with("key=ns/pauses attempt=1 retry_in=30s"), "{line}");
    assert_eq!(log.lines_with("by its error policy it is not retried").len(), 1);
    sim.end().await;
}

#[tokio::test(start_paused = true)]
async fn equal_failures_are_logged_three_times_and_then_once_a_minute() {
    let log = Log::of_this_thread(Level::INFO);
    let lines = || log.lines_with("mcr::reconcile");
    let (sim, _) = Sim::start(controller(), read_secrets, &["a", "b"]);
    until_true(|| sim.handle.status().counts.errors >= 100).await;
    assert_eq!(lines().len(), 3, "{:#?}", lines());
    for line in lines() {
        for words in [
            "WARN reconcile{controller=maps cluster=local namespace=\"ns\" name=",
            ": mcr::reconcile: reconcile failed error=403 Forbidden: secrets is forbidden: User \"controller\" ",
            " controller=maps kind=configmaps cluster=local key=ns/",
        ] {
            assert!(line.contains(words), "{line}");
        }
        assert!(!line.contains("Status {") && !line.contains("repeated"), "{line}");
        let attempts = [" attempt=1 retry_in=1s", " attempt=2 retry_in=1s"];
        assert!(attempts.iter().any(|attempt| line.contains(attempt)), "{line}");
    }
    until_true(|| sim.handle.status().counts.errors >= 250).await;
    let repeated: Vec<u64> = lines()[3..]
        .iter()
        .map(|line| line.split_once(" repeated=").unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(repeated.len(), 2, "{:#?}", lines());
    let expected = 110..=125;
    assert!(
        repeated.iter().all(|count| expected.contains(count)),
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
        for key in ["ns/x", "ns/y", "ns/z"] {
            api.put_map(key, "1");
        }
    }
    let count = |cluster: &str| handle.status().clusters.get(cluster).map(|of| of.failing_count);
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
    let failing = &handle.status().clusters["b"].failing;
    assert!(failing.iter().all(|failing| failing.attempt < 5));
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
    let listed = until(|| {
        let status = handle.status();
        let all: Vec<_> = ["a", "b", "c"]
            .iter()
            .filter_map(|name| status.clusters.get(*name))
            .collect();
        let counted = all.len() == 3 && all.iter().all(|status| status.failing_count == 80);
        let listed = || all.iter().map(|status| status.failing.len()).collect::<Vec<_>>();
        (counted && all[2].failing[0].attempt > 5).then(listed)
    })
    .await;
    assert_eq!((listed[2], listed[0] + listed[1]), (80, 20), "{listed:?}");
    world.end().await;
}
