//! Functions for kubeconfigs, on paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use http::{Response, StatusCode};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use mcr_core::{
    AccessPolicy, ObjectKey, Trust,
    hub::{Called, Closure, ComputedKubeconfigs, HubOptions, Judge, KubeconfigOf, SecretKeyRef, Verdict},
};
use tokio::time::{Instant, sleep_until, timeout};

const KUBECONFIG: &str = "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
    clusters: [{name: k, cluster: {server: 'https://192.0.2.1'}}], users: [{name: u, user: {token: t}}]}";
const HOUR: Duration = Duration::from_secs(3600);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn map(name: &str) -> Arc<ConfigMap> {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.into()
}

fn refusing(status: StatusCode, retry_after: Option<u64>, requests: Arc<AtomicUsize>) -> Client {
    let service = tower::service_fn(move |_: http::Request<Body>| {
        requests.fetch_add(1, SeqCst);
        let mut response = Response::builder().status(status);
        if let Some(seconds) = retry_after {
            response = response.header("retry-after", seconds);
        }
        async move { Ok::<_, Infallible>(response.body(Body::empty()).unwrap()) }
    });
    Client::new(service, "fleet")
}

/// What a discovery does with the kubeconfigs of its objects.
struct World {
    computed: ComputedKubeconfigs<ConfigMap>,
    calls: FuturesUnordered<futures::future::BoxFuture<'static, Called>>,
    objects: BTreeMap<ObjectKey, Arc<ConfigMap>>,
    answered: BTreeSet<String>,
}

impl World {
    fn new(function: KubeconfigOf<ConfigMap>) -> Self {
        let mut options = HubOptions::new("test");
        options.client = Some(refusing(StatusCode::FORBIDDEN, None, Arc::default()));
        let judge = Judge {
            trust: Trust::Untrusted,
            policy: None,
            fleet_policy: AccessPolicy::default(),
        };
        Self {
            computed: ComputedKubeconfigs::new(&options.check().unwrap(), judge, function),
            calls: FuturesUnordered::new(),
            objects: BTreeMap::new(),
            answered: BTreeSet::new(),
        }
    }

    /// An object is ready, or ready as another one.
    fn apply(&mut self, name: &str) {
        self.objects
            .insert(ObjectKey::namespaced("fleet", name), map(name));
        self.verdict(name);
    }

    fn verdict(&mut self, name: &str) -> Option<Verdict> {
        let key = ObjectKey::namespaced("fleet", name);
        let object = &self.objects[&key];
        self.computed
            .verdict("ConfigMap", (&key, object), false, Instant::now())
    }

    /// Runs until this time, or until all these have a kubeconfig.
    async fn run(&mut self, until: Instant, wanted: &[&str]) {
        let is_done = |answered: &BTreeSet<String>| {
            !wanted.is_empty() && wanted.iter().all(|name| answered.contains(*name))
        };
        while Instant::now() < until && !is_done(&self.answered) {
            self.calls.extend(self.computed.start(Instant::now()));
            let due = self.computed.due().map_or(until, |due| due.min(until));
            tokio::select! {
                Some(called) = self.calls.next() => {
                    let key = self.computed.ended(called, Instant::now());
                    if let Some(name) = key.map(|key| key.name.to_string())
                        && let Some(Verdict::Good(_)) = self.verdict(&name)
                    {
                        self.answered.insert(name);
                    }
                }
                () = sleep_until(due) => {}
            }
        }
    }
}

/// One whose name begins with `h` hangs.
fn hanging(calls: Arc<AtomicUsize>) -> KubeconfigOf<ConfigMap> {
    KubeconfigOf::new(seconds(60), move |map: Arc<ConfigMap>| {
        calls.fetch_add(1, SeqCst);
        async move {
            if map.metadata.name.as_ref().unwrap().starts_with('h') {
                pending::<()>().await;
            }
            Ok(Some(KUBECONFIG.into()))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn functions_that_hang_hold_up_no_other_cluster() {
    for (hung, known_within, new_within) in [(100, 2, 3), (500, 2, 3), (1_500, 2, 60)] {
        let mut world = World::new(hanging(Arc::default()));
        world.apply("known");
        world.run(Instant::now() + HOUR, &["known"]).await;
        world.answered.clear();
        (0..hung).for_each(|number| world.apply(&format!("h{number}")));
        ["n1", "n2", "n3"].into_iter().for_each(|name| world.apply(name));
        let began = Instant::now();
        world.apply("known");
        world.run(began + HOUR, &["known"]).await;
        let known = began.elapsed();
        assert!(known <= seconds(known_within), "{hung} hang: {known:?}");
        world.run(began + HOUR, &["n1", "n2", "n3"]).await;
        let new = began.elapsed();
        assert!(new <= seconds(new_within), "{hung} hang: {new:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_ready_on_and_off_gets_no_more_calls() {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut world = World::new(hanging(calls.clone()));
    let key = ObjectKey::namespaced("fleet", "a");
    let began = Instant::now();
    for turn in 1..=100 {
        world.apply("a");
        world.run(began + turn * Duration::from_millis(100), &[]).await;
        world.computed.pause(&key);
        assert!(world.verdict("a").is_none(), "what it gave before is not used");
        world.computed.pause(&key);
    }
    let called = calls.load(SeqCst);
    assert!((9..=11).contains(&called), "{called}");
    world.computed.forget(&key);
    assert_eq!(world.computed.due(), None);
}

/// An object that changes while a call runs is called for again a second later, however the call ends.
#[tokio::test(start_paused = true)]
async fn a_change_during_a_call_that_fails_is_not_left_to_the_pause_after_failures() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let fails = KubeconfigOf::new(HOUR, move |_| {
        counted.fetch_add(1, SeqCst);
        async {
            tokio::time::sleep(seconds(5)).await;
            Err("no".into())
        }
    });
    let mut world = World::new(fails);
    let began = Instant::now();
    world.apply("a");
    // The pauses after failures have grown to a minute.
    world.run(began + seconds(400), &[]).await;
    let before = calls.load(SeqCst);
    while calls.load(SeqCst) == before {
        world.run(Instant::now() + seconds(1), &[]).await;
    }
    world.apply("a");
    world.run(Instant::now() + seconds(7), &[]).await;
    assert_eq!(calls.load(SeqCst), before + 2);
}

/// With it, a controller would take the cluster for the one that the object describes now.
#[tokio::test(start_paused = true)]
async fn what_is_given_for_other_labels_is_not_used() {
    let slow = KubeconfigOf::new(HOUR, |_| async {
        tokio::time::sleep(seconds(5)).await;
        Ok(Some(KUBECONFIG.into()))
    });
    let mut world = World::new(slow);
    let (key, began) = (ObjectKey::namespaced("fleet", "a"), Instant::now());
    world.apply("a");
    world.run(began + seconds(2), &[]).await;
    world.computed.outdate(&key);
    world.apply("a");
    world.run(began + Duration::from_millis(5_500), &[]).await;
    let verdict = world.verdict("a");
    assert!(
        matches!(verdict, Some(Verdict::Waiting(_))),
        "the discovery does not wait: {verdict:?}"
    );
    world.run(began + seconds(12), &[]).await;
    assert!(matches!(world.verdict("a"), Some(Verdict::Good(_))));
    world.computed.outdate(&key);
    world.apply("a");
    assert!(world.verdict("a").is_none());
    world.run(began + seconds(18), &[]).await;
    assert!(matches!(world.verdict("a"), Some(Verdict::Good(_))));
}

#[tokio::test(start_paused = true)]
async fn the_longest_time_between_calls_is_a_time() {
    let mut world = World::new(KubeconfigOf::new(Duration::MAX, |_| async {
        Ok(Some(KUBECONFIG.into()))
    }));
    world.apply("a");
    world.run(Instant::now() + HOUR, &["a"]).await;
    let due = world.computed.due().unwrap();
    assert!(due > Instant::now() + 300 * 24 * HOUR);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_refuses_secrets_is_asked_at_its_pace_however_often_objects_change() {
    for (status, retry_after, most) in [
        (StatusCode::FORBIDDEN, None, 200 + 4 * 60 + 10),
        (StatusCode::TOO_MANY_REQUESTS, Some(300), 16),
    ] {
        let requests = Arc::new(AtomicUsize::new(0));
        let hub = refusing(status, retry_after, requests.clone());
        let name = |map: &ConfigMap| {
            let name = map.metadata.name.as_deref().unwrap();
            SecretKeyRef::new(name, "value").namespace("credentials")
        };
        let mut world = World::new(KubeconfigOf::in_secret(hub, Closure::new(name)));
        let began = Instant::now();
        for second in 1..=60 {
            for number in 0..200 {
                let name = format!("a{number}");
                // Half of them are ready on and off.
                if number % 2 == 0 {
                    world
                        .computed
                        .pause(&ObjectKey::namespaced("fleet", name.as_str()));
                }
                world.apply(&name);
            }
            world.run(began + seconds(second), &[]).await;
        }
        let sent = requests.load(SeqCst);
        assert!((16..=most).contains(&sent), "{status}: {sent}");
        if let Some(Verdict::Broken { object, why }) = world.verdict("a1") {
            assert_eq!(object, "ConfigMap fleet/a1");
            assert!(
                why.starts_with("Secret credentials/a1 can't be read in the hub: "),
                "{why}"
            );
        }
    }
}

/// A function that reads Secrets elsewhere by itself.
#[tokio::test(start_paused = true)]
async fn a_function_that_reads_secrets_elsewhere_heeds_retry_after() {
    let requests = Arc::new(AtomicUsize::new(0));
    let vault = refusing(StatusCode::TOO_MANY_REQUESTS, Some(120), requests.clone());
    let mut world = World::new(KubeconfigOf::new(HOUR, move |_| {
        let vault = vault.clone();
        async move {
            let secret = ObjectKey::namespaced("fleet", "a");
            mcr_core::hub::kubeconfig_in_secret(&vault, &secret, "value").await
        }
    }));
    world.apply("a");
    let began = Instant::now();
    world.run(began + seconds(119), &[]).await;
    world.apply("a");
    assert_eq!(requests.load(SeqCst), 1);
    let again = world.run(began + seconds(200), &[]);
    assert!(timeout(HOUR, again).await.is_ok());
    assert_eq!(requests.load(SeqCst), 2);
}
