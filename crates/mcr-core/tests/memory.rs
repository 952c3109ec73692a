//! What a fleet needs of memory, to the byte: a peak that does not depend on how many clusters join at once,
//! nothing that is left of those that have left, and no second copy of the files they are found in. What a watch of a
//! hub needs that keeps a small part of each object. And a cluster that sends lists without end.
//!
//! By itself in its process, for the allocator counts what all of it allocates. API servers are simulated behind
//! `kube::Client`, with what they hold in memory before anything is measured, and time is tokio's paused clock.

#![allow(clippy::unwrap_used)]

#[path = "common/provider.rs"]
mod provider;

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service as KubeService, ServiceAccount};
use kube::client::Body;
use mcr_core::{
    Access, Cluster, ClusterName, ClusterSpec, ClusterState, CredentialSource, ExecPlugin, Fleet, FleetEvent,
    FleetSettings, HubEvent, HubWatch, KubeconfigFile, Kubeconfigs, Refresh, WatchHandle, WatchRequest,
    contexts, plugin_at,
};
use mcr_testkit::{
    sim::{SimCluster, SimService},
    waiting::{Background, eventually},
};
use peak_alloc::PeakAlloc;
use provider::{Clusters, announced};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// One test at a time, with paused time.
fn alone<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone: MutexGuard<'_, ()> = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test());
}

/// What all the API servers are asked, and when.
#[derive(Default)]
struct Asked {
    lists: UnderWay,
    /// All others but the watches.
    others: UnderWay,
    /// When each watch began.
    watches: Mutex<Vec<Instant>>,
}

/// How many there are now, and how many there were at most.
#[derive(Default)]
struct UnderWay {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl UnderWay {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

impl Asked {
    /// The most watches that began within any time as long as this.
    fn watches_within(&self, span: Duration) -> usize {
        let mut begun = self.watches.lock().unwrap().clone();
        begun.sort();
        let ends = begun.iter().enumerate();
        ends.map(|(at, end)| at + 1 - begun.partition_point(|begin| *begin + span <= *end))
            .max()
            .unwrap_or(0)
    }
}

/// A client of a simulated API server at some distance: a list is under way from its question to its last byte.
fn distant(server: SimService, asked: &Arc<Asked>) -> kube::Client {
    let asked = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, asked) = (server.clone(), asked.clone());
        async move {
            let watch = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("watch=true"));
            let list = request.uri().path().ends_with("/configmaps") && !watch;
            let under_way = if list { &asked.lists } else { &asked.others };
            if watch {
                asked.watches.lock().unwrap().push(Instant::now());
            } else {
                under_way.begin();
            }
            let answer = server.answer(request).await;
            // The answer is there and is being sent: what is not bounded piles up here.
            tokio::time::sleep(Duration::from_millis(100)).await;
            if !watch {
                under_way.end();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    kube::Client::new(service, "default")
}

struct Running {
    fleet: Fleet,
    clusters: Clusters,
    asked: Arc<Asked>,
    running: Background<()>,
}

impl Running {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut FleetSettings)) -> Self {
        let (clusters, provider) = announced(true);
        let fleet = Fleet::builder().provider(provider).settings(change).build();
        let runs = fleet.clone();
        Self {
            fleet,
            clusters,
            asked: Arc::default(),
            running: Background::start(|stop| async move { runs.run(stop).await }),
        }
    }

    fn join(&self, name: &str, server: &SimCluster) {
        let server = server.service().with_token(&server.admin_token());
        self.join_by(name, distant(server, &self.asked).into());
    }

    fn join_by(&self, name: &str, access: Access) {
        let spec = ClusterSpec::new(ClusterName::new(name).unwrap(), access);
        self.clusters.add(spec);
    }

    async fn until(&self, what: &str, true_now: impl Fn(&Fleet) -> bool) {
        eventually(Duration::from_secs(600), what, || true_now(&self.fleet)).await;
    }

    async fn end(self) {
        self.running.stop().await;
    }
}

fn watch(cluster: &Cluster) -> WatchHandle {
    cluster.watch(WatchRequest::of::<ConfigMap>(), None).unwrap()
}

/// API servers that all have the same objects, and share them.
fn servers(count: usize, objects: usize) -> Vec<SimCluster> {
    let template = SimCluster::new();
    for i in 0..objects {
        let value = "x".repeat(1_000);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("map-{i}"), "namespace": "default"}, "data": {"value": value}});
        template.create(map).unwrap();
    }
    (0..count)
        .map(|i| {
            SimCluster::builder()
                .name(format!("c{i}"))
                .template(&template)
                .audit_limit(0)
                .build()
        })
        .collect()
}

#[test]
fn promise_11_a_thousand_clusters_at_once_need_no_more_memory_than_they_hold() {
    const CLUSTERS: usize = 1_000;
    const OBJECTS: usize = 50;
    const LIST: usize = OBJECTS * 1_300;
    alone(|| async {
        let servers = servers(CLUSTERS, OBJECTS);
        let running = Running::start();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let began = Instant::now();
        for (i, server) in servers.iter().enumerate() {
            running.join(&format!("c{i}"), server);
        }
        // As controllers do it: each cluster is watched as soon as it is told.
        let mut events = running.fleet.subscribe();
        let mut handles = Vec::new();
        while handles.len() < CLUSTERS {
            if let FleetEvent::Engaged(cluster) = events.next().await {
                handles.push(watch(&cluster));
            }
        }
        drop(events);
        running
            .until("all are listed", |_| {
                handles.iter().all(|handle| handle.status().synced)
            })
            .await;
        let listed = began.elapsed();
        // Whatever follows upon joining, such as the question who each is.
        tokio::time::sleep(Duration::from_secs(60)).await;
        let peak = MEMORY.peak_usage() - before;
        let steady = MEMORY.current_usage() - before;
        let asked = &running.asked;
        let (lists, others) = (asked.lists.most(), asked.others.most());
        println!(
            "at most {lists} lists and {others} other requests at once; all are listed after {listed:?}; {} KiB at the \
             peak, {} KiB in the end",
            peak >> 10,
            steady >> 10
        );
        assert!((24..=32).contains(&lists), "{lists} lists at once");
        assert!(others <= 64, "{others} other requests at once");
        // Each waits for its turn and no longer: 32 at once, 100 ms for each.
        assert!(listed < Duration::from_secs(6), "{listed:?}");
        // Nothing comes on top of what is held but the lists under way, each as it came and as it is taken over.
        assert!(
            peak <= steady + 2 * 32 * LIST,
            "{peak} bytes at the peak, {steady} in the end"
        );

        // Nor do the watches that began together all end and begin anew together.
        asked.watches.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_secs(300)).await;
        let anew = asked.watches.lock().unwrap().len();
        let at_once = asked.watches_within(Duration::from_secs(1));
        println!("of {anew} watches that ended and began anew, {at_once} did within a second");
        assert!(
            anew >= CLUSTERS && at_once <= CLUSTERS / 10,
            "{at_once} of {anew}"
        );
        drop(handles);
        running.end().await;
    });
}

#[test]
fn promise_16_names_that_come_and_go_leave_nothing() {
    const ROUNDS: usize = 600;
    alone(|| async {
        let server = &servers(1, 10)[0];
        let running = Running::start();
        let mut figures = BTreeMap::new();
        for round in 0..=ROUNDS {
            // A name that never was before, as preview environments have them.
            let name = format!("preview-{round:06}");
            running.join(&name, server);
            running
                .until("it is engaged", |fleet| fleet.get(&name).is_ok())
                .await;
            let cluster = running.fleet.get(&name).unwrap();
            let handle = watch(&cluster);
            running.until("it is listed", |_| handle.status().synced).await;
            running.clusters.remove(cluster.name());
            cluster.wait_for(|state| *state == ClusterState::Gone).await;
            drop((cluster, handle));
            // The notes of this test are not what is measured.
            running.asked.watches.lock().unwrap().clear();
            tokio::time::sleep(Duration::from_secs(40)).await;
            if round % (ROUNDS / 6) == 0 {
                figures.insert(round, MEMORY.current_usage());
            }
        }
        println!("bytes after rounds: {figures:?}");
        let (early, late) = (figures[&(ROUNDS / 3)], figures[&ROUNDS]);
        // Not one entry of a map: that would be some bytes for each round.
        assert!(late < early + ROUNDS, "{early} bytes grew to {late}");
        running.end().await;
    });
}

#[test]
fn contexts_taken_one_at_a_time_need_no_second_copy_of_their_file() {
    alone(async || {
        let secret = "c2VjcmV0".repeat(400);
        let entry = |count: usize| {
            (
                format!("- {{name: c{count}, context: {{cluster: c{count}, user: c{count}}}}}\n"),
                format!(
                    "- {{name: c{count}, cluster: {{server: 'https://c{count}', certificate-authority-data: {secret}}}}}\n"
                ),
                format!(
                    "- {{name: c{count}, user: {{client-certificate-data: {secret}, client-key-data: {secret}}}}}\n"
                ),
            )
        };
        let (named, clusters, users): (String, String, String) = (0..200).map(entry).collect();
        let yaml = format!("contexts:\n{named}clusters:\n{clusters}users:\n{users}");
        let len = yaml.len();
        let files = [KubeconfigFile::new("/fleet", yaml)];

        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let parsed = Kubeconfigs::parse(&files);
        assert!(parsed.contexts().all(|found| found.access.is_ok()));
        drop(parsed);
        let one_at_a_time = MEMORY.peak_usage() - before;
        assert_eq!(contexts(&files).len(), 200);
        let all = MEMORY.peak_usage() - before;
        assert!(
            one_at_a_time < len / 4 && len < all,
            "a file of {len} bytes took {one_at_a_time} at most, and {all} all at once"
        );
    });
}

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;

/// A simulated API server that answers the lists of some kinds in another way. `lists` returns none for the others.
fn faulty(server: &SimCluster, lists: fn(&str) -> Option<AnyBody>) -> Access {
    let server = server.service().with_token(&server.admin_token());
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            let resource = request.uri().path().rsplit('/').next().unwrap_or_default();
            let list = (!query.contains("watch=true")).then(|| lists(resource)).flatten();
            Ok::<_, Infallible>(match list {
                Some(body) => Response::new(body),
                None => server.answer(request).await.map(BodyExt::boxed_unsync),
            })
        }
    });
    kube::Client::new(service, "default").into()
}

/// A list with these `items`, each of which begins with a comma but the first.
fn list_of(metadata: &str, items: &str) -> String {
    format!(r#"{{"kind": "List", "apiVersion": "v1", "metadata": {metadata}, "items": [{items}"#)
}

/// An object of about `bytes` bytes, of which other objects have none.
fn large_object(name: &str, bytes: usize) -> String {
    let text = format!("{name}{}", "-".repeat(bytes));
    format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "resourceVersion": "7"}}, "data": {{"value": "{text}"}}}}"#
    )
}

/// How much a hostile server sends in one answer. Far more than the budget, and little enough for a test that fails.
const NO_END: usize = 128 << 20;

/// A body of `first`, and then of `next` until no reader can have the patience.
fn without_end(first: String, mut next: impl FnMut(usize) -> String + Send + 'static) -> AnyBody {
    let frames = (0..).scan(0, move |sent, i| {
        let frame = if i == 0 { first.clone() } else { next(i) };
        *sent += frame.len();
        (*sent < NO_END).then(|| Ok::<_, Infallible>(Frame::data(Bytes::from(frame))))
    });
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// The lists of a hostile server: objects without end, pages without end, and one object without end.
fn hostile(resource: &str) -> Option<AnyBody> {
    let objects = |i: usize| format!(",{}", large_object(&format!("object-{i}"), 64 << 10));
    static PAGES: AtomicUsize = AtomicUsize::new(0);
    match resource {
        "configmaps" => {
            let first = large_object("first", 1_000);
            Some(without_end(
                list_of(r#"{"resourceVersion": "7"}"#, &first),
                objects,
            ))
        }
        "secrets" => {
            let page = PAGES.fetch_add(1, Ordering::SeqCst);
            if page * (1 << 20) > NO_END {
                return None;
            }
            let objects = (0..16).map(|i| large_object(&format!("object-{page}-{i}"), 64 << 10));
            let metadata = format!(r#"{{"resourceVersion": "7", "continue": "{page}"}}"#);
            let list = list_of(&metadata, &objects.collect::<Vec<_>>().join(","));
            Some(Full::from(list + "]}").boxed_unsync())
        }
        "services" => {
            let object = r#"{"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"value": ""#;
            let first = list_of(r#"{"resourceVersion": "7"}"#, object);
            Some(without_end(first, |_| "x".repeat(64 << 10)))
        }
        _ => None,
    }
}

/// A list of 1.2 MB that takes 20 seconds. Most of it is not held: fields that name who wrote them.
fn slow(resource: &str) -> Option<AnyBody> {
    static LIST: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    const PIECES: usize = 20;
    if resource != "configmaps" {
        return None;
    }
    let list = LIST.get_or_init(|| {
        let fields = "x".repeat(12_000);
        let object = |i| {
            json!({"metadata": {"name": format!("map-{i}"), "namespace": "default", "resourceVersion": "1",
            "managedFields": [{"manager": fields}]}, "data": {"value": "a"}})
        };
        let items: Vec<_> = (0..100).map(object).collect();
        let metadata = json!({"resourceVersion": "1"});
        Bytes::from(
            json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}).to_string(),
        )
    });
    let piece = list.len().div_ceil(PIECES);
    let frames = stream::unfold(0, move |sent| async move {
        let at = |position: usize| position.min(list.len());
        let frame = list.slice(at(sent)..at(sent + piece));
        tokio::time::sleep(Duration::from_secs(1)).await;
        (!frame.is_empty()).then(|| (Ok::<_, Infallible>(Frame::data(frame)), sent + piece))
    });
    Some(StreamBody::new(frames).boxed_unsync())
}

/// One cluster that sends all that it can, and fifty whose lists take long.
#[test]
fn promise_15_lists_without_end_and_slow_ones_take_no_more_memory_than_their_budget() {
    const SLOW: usize = 50;
    const BUDGET: usize = 48 << 20;
    alone(async || {
        let servers = servers(SLOW + 1, 1);
        let running = Running::start_with(|settings| {
            let watch = Arc::make_mut(&mut settings.watch);
            (watch.list_bytes, watch.fleet_list_bytes) = (16 << 20, BUDGET);
        });
        // What is made once.
        drop((slow("configmaps"), hostile("services")));
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        running.join_by("hostile", faulty(&servers[SLOW], hostile));
        for (i, server) in servers[..SLOW].iter().enumerate() {
            running.join_by(&format!("slow-{i}"), faulty(server, slow));
        }
        running
            .until("all are engaged", |fleet| fleet.clusters().len() == SLOW + 1)
            .await;
        let clusters = running.fleet.clusters();
        let (hostile, slow): (Vec<_>, Vec<_>) = clusters
            .iter()
            .partition(|cluster| cluster.name().as_str() == "hostile");
        let hostile = hostile[0];
        let follow = |request| hostile.watch(request, None).unwrap();
        let endless = [
            follow(WatchRequest::of::<ConfigMap>()),
            follow(WatchRequest::of::<Secret>()),
            follow(WatchRequest::of::<KubeService>()),
        ];
        let live = [
            follow(WatchRequest::of::<Pod>()),
            follow(WatchRequest::of::<ServiceAccount>()),
        ];
        let slow: Vec<WatchHandle> = slow.into_iter().map(watch).collect();
        // Nothing that is held takes so much: without a budget the test need not wait until the servers end.
        let take_too_much = || MEMORY.peak_usage() - before > 2 * BUDGET;
        running
            .until("all but the endless kinds are listed", |_| {
                assert!(!take_too_much(), "lists take more than their budget");
                slow.iter().chain(&live).all(|handle| handle.status().synced)
            })
            .await;
        running
            .until("the endless kinds have failed", |_| {
                assert!(!take_too_much(), "lists take more than their budget");
                endless.iter().all(|handle| handle.status().problem.is_some())
            })
            .await;
        let (peak, idle) = (MEMORY.peak_usage() - before, MEMORY.current_usage() - before);
        println!("{} KiB at the peak, {} KiB in the end", peak >> 10, idle >> 10);
        let problems = endless
            .each_ref()
            .map(|handle| handle.status().problem.unwrap().error.to_string());
        println!("{problems:#?}");
        assert!(
            peak <= idle + BUDGET + (32 << 20),
            "{peak} bytes at the peak, {idle} in the end"
        );
        for problem in &problems {
            assert!(problem.contains(" MiB"), "{problem}");
        }
        assert!(endless.iter().all(|handle| !handle.status().synced));
        // The others of the same cluster are live.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "new", "namespace": "default"}});
        servers[SLOW].create(account).unwrap();
        let accounts = hostile.store::<ServiceAccount>().unwrap();
        running
            .until("it is there", |_| accounts.len().is_ok_and(|count| count == 1))
            .await;
        drop((endless, live, slow));
        running.end().await;
    });
}

/// Objects as providers find them in a hub: of 6 kB, of which some bytes say where a cluster is.
#[test]
fn a_hub_watch_holds_the_projections_of_its_objects_and_nothing_else() {
    const OBJECTS: usize = 1_000;
    alone(async || {
        let hub = SimCluster::builder().audit_limit(0).build();
        let map = |i: usize, region: &str| {
            let data = json!({"region": region, "status": format!("{i:06}").repeat(1_000)});
            json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("map-{i}"), "namespace": "default"}, "data": data})
        };
        for i in 0..OBJECTS {
            hub.create(map(i, "eu")).unwrap();
        }
        let bytes = async |region: &'static str| {
            let before = MEMORY.current_usage();
            let request = WatchRequest::of::<ConfigMap>();
            let mut watch = HubWatch::projected(hub.client(), request, move |object| {
                let data = object.decode::<ConfigMap>().ok()?.data?;
                data.get("region").filter(|found| *found == region).cloned()
            });
            let mut applied = 0;
            loop {
                match watch.next().await {
                    HubEvent::Applied(..) => applied += 1,
                    HubEvent::Synced => break,
                    other => panic!("{other:?}"),
                }
            }
            eventually(Duration::from_secs(600), "it watches", || hub.watches() == 1).await;
            let after = MEMORY.current_usage();
            drop(watch);
            eventually(Duration::from_secs(600), "it has ended", || hub.watches() == 0).await;
            (applied, after.saturating_sub(before) / OBJECTS)
        };
        // The first watch pays for the caches of the hub and of the thread, too.
        bytes("eu").await;
        let (all, none) = (bytes("eu").await, bytes("none").await);
        println!("bytes for each projection, and for each object without one: {all:?}, {none:?}");
        assert!(all.0 == OBJECTS && all.1 < 1_000, "{all:?}");
        assert!(none.0 == 0 && none.1 < 50, "{none:?}");
    });
}

/// A part of one byte takes fifty where parts are kept until the last one.
#[test]
#[cfg(unix)]
fn an_answer_of_a_credential_service_in_parts_of_one_byte_takes_what_its_bytes_take() {
    alone(async || {
        tokio::time::resume();
        let path = std::env::temp_dir().join(format!("mcr-memory-{}.sock", std::process::id()));
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let parts = b"1\r\n \r\n".repeat(100_000);
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            _ = stream.read(&mut [0; 4096]).await.unwrap();
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            for bytes in [head.as_slice(), &parts, b"0\r\n\r\n"] {
                stream.write_all(bytes).await.unwrap();
            }
        });
        let service = plugin_at(&format!("unix://{}", path.display()), None).unwrap();
        let source = ExecPlugin::new("login").service(service);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let error = source.credential(Refresh::First).await.unwrap_err();
        let peak = MEMORY.peak_usage() - before;
        std::fs::remove_file(&path).unwrap();
        server.await.unwrap();
        assert!(error.to_string().contains("answered with nothing"), "{error}");
        assert!(peak < 2 << 20, "{peak} bytes");
    });
}
