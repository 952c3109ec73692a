//! The provider with simulated members.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use http::{Request, Response};
use kube::client::Body;
use mcr::ClusterSelector;
use mcr_core::{
    Access, AccessPolicy, AddressPolicy, Change, Cluster, ClusterName, ClusterSpec, CredentialPluginPolicy,
    Discovery, Fleet, Provider, Trust,
};
use mcr_provider_about::{AboutApi, AboutHandle, CLUSTER_ID, CLUSTER_SET};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{
    log::Log,
    sim::{SimCluster, SimRule, SimUser},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};
use tracing::Level;

const CRD: &str = include_str!("data/clusterproperties.yaml");
const MANIFEST: &str = include_str!("../deploy/rbac.yaml");
const README: &str = include_str!("../README.md");
const PROPERTIES: &str = "clusterproperties.about.k8s.io";

/// What never comes is given up after this. In paused time, where most tests run, it passes at once.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The same for the tests with sockets.
const REAL_PATIENCE: Duration = Duration::from_secs(60);

/// A member that serves these versions of the About API.
fn member_of(versions: &[&str]) -> SimCluster {
    let mut crd: Value = serde_saphyr::from_str(CRD).unwrap();
    let all = crd["spec"]["versions"].as_array_mut().unwrap();
    all.retain(|version| versions.contains(&version["name"].as_str().unwrap()));
    all.last_mut().unwrap()["storage"] = true.into();
    let member = SimCluster::builder().build();
    member.create(crd).unwrap();
    member
}

fn property(version: &str, name: &str, value: &str) -> Value {
    json!({
        "apiVersion": format!("about.k8s.io/{version}"), "kind": "ClusterProperty",
        "metadata": {"name": name}, "spec": {"value": value},
    })
}

fn member(id: &str) -> SimCluster {
    let member = member_of(&["v1alpha1", "v1beta1"]);
    member.create(property("v1beta1", CLUSTER_ID, id)).unwrap();
    member.create(property("v1beta1", CLUSTER_SET, "shop")).unwrap();
    member
}

fn set(member: &SimCluster, name: &str, value: &str) {
    let mut there = member.get(PROPERTIES, name).unwrap();
    there["spec"]["value"] = value.into();
    member.update(there).unwrap();
}

fn spec(name: &str, access: impl Into<Access>) -> ClusterSpec {
    ClusterSpec::named(name, access).unwrap()
}

fn name(name: &str) -> ClusterName {
    ClusterName::new(name).unwrap()
}

/// How often a member was asked.
fn lists(member: &SimCluster) -> usize {
    member.audit().count(|event| event.is_list("clusterproperties"))
}

/// A client whose requests go through a function.
fn client<F, A>(call: F) -> kube::Client
where
    F: FnMut(Request<Body>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Response<Body>, std::io::Error>> + Send + 'static,
{
    kube::Client::new(service_fn(call), "default")
}

/// A client of a cluster that accepts requests and never answers.
fn silent() -> kube::Client {
    client(|_| pending())
}

/// Every cluster may set the properties of these tests.
fn trusting(clusters: ClustersProvider) -> AboutApi {
    AboutApi::around(clusters).member_properties([CLUSTER_ID, CLUSTER_SET, "region.example.com"])
}

/// Clusters that the test adds, and what is announced of them.
struct World {
    clusters: ClustersProvider,
    about: AboutHandle,
    discovery: Discovery,
    received: Vec<String>,
}

impl World {
    fn new() -> Self {
        Self::with(&AccessPolicy::default(), |about| about)
    }

    fn with(policy: &AccessPolicy, options: impl FnOnce(AboutApi) -> AboutApi) -> Self {
        let clusters = ClustersProvider::new();
        let provider = options(trusting(clusters.clone()));
        Self {
            clusters,
            about: provider.handle(),
            discovery: provider.discover_with(CancellationToken::new(), &policy.clone().into()),
            received: Vec::new(),
        }
    }

    fn add(&self, spec: ClusterSpec) {
        self.clusters.handle().add(spec);
    }

    /// Listens until this is announced. Returns what was announced until then.
    async fn until(&mut self, line: &str) -> Vec<String> {
        while self.received.last().is_none_or(|last| last != line) {
            let Ok(item) = timeout(PATIENCE, self.discovery.next()).await else {
                panic!("not announced: {line}, but {:?}", self.received)
            };
            self.received.push(shown(item.unwrap().unwrap()));
        }
        std::mem::take(&mut self.received)
    }

    /// Listens until the handle shows this.
    async fn until_shown(&mut self, what: &str, so: impl Fn(&AboutHandle) -> bool) {
        let listen = async {
            while !so(&self.about) {
                tokio::select! {
                    item = self.discovery.next() => self.received.push(shown(item.unwrap().unwrap())),
                    () = sleep(Duration::from_millis(5)) => {}
                }
            }
        };
        if timeout(PATIENCE, listen).await.is_err() {
            panic!("not so: {what}, but {:?}", self.about.statuses())
        }
    }

    /// All that is announced until a suspended cluster of this name is.
    async fn until_marked(&mut self, marker: &str) -> Vec<String> {
        self.add(spec(marker, silent()).suspended("a marker"));
        self.until(&format!("+{marker}")).await
    }
}

/// `+name#identity id/set other properties`, without what there is not.
fn shown(change: Change) -> String {
    match change {
        Change::Upsert(spec) => {
            let mut line = format!("+{}", spec.name);
            if let Some(identity) = spec.identity {
                line += &format!("#{identity}");
            }
            let mut properties: BTreeMap<_, _> = spec.properties.into_iter().collect();
            for name in [CLUSTER_ID, CLUSTER_SET] {
                if let Some(value) = properties.remove(name) {
                    line += &format!(" {value}");
                }
            }
            for (name, value) in properties {
                line += &format!(" {name}={value}");
            }
            line
        }
        Change::Remove(name) => format!("-{name}"),
        Change::Broken(broken) => format!("!{}", broken.name),
        Change::Synced => "synced".into(),
        other => format!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_announced_at_once_and_again_with_what_it_reports_of_itself() {
    let berlin = member("berlin");
    berlin
        .create(property("v1beta1", "region.example.com", "eu"))
        .unwrap();
    let mut world = World::new();
    world.add(spec("a", berlin.client()).property("context", "x"));
    assert_eq!(
        world
            .until("+a berlin shop context=x region.example.com=eu")
            .await,
        [
            "synced",
            "+a context=x",
            "+a berlin shop context=x region.example.com=eu"
        ]
    );
    let status = world.about.status("a").unwrap();
    assert_eq!(status.cluster_id.as_deref(), Some("berlin"));
    assert_eq!(status.cluster_set.as_deref(), Some("shop"));
    assert!(status.answered);
    assert_eq!(world.until_marked("m").await, ["+m"], "nothing is said twice");
}

#[tokio::test(start_paused = true)]
async fn v1alpha1_is_read_where_v1beta1_is_not_served() {
    let old = member_of(&["v1alpha1"]);
    old.create(property("v1alpha1", CLUSTER_ID, "old")).unwrap();
    let mut world = World::new();
    world.add(spec("a", old.client()));
    assert_eq!(world.until("+a old").await, ["synced", "+a", "+a old"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_without_the_api_or_without_the_right_has_no_properties_and_that_is_no_error() {
    let log = Log::of_this_thread(Level::DEBUG);
    let without = SimCluster::builder().build();
    let forbidden = member("berlin");
    forbidden.set_user("token", SimUser::new("nobody"));
    let mut world = World::new();
    world.add(spec("a", without.client()));
    world.add(spec("b", forbidden.client_with_token("token")));
    let answered = |about: &AboutHandle| {
        let statuses = about.statuses();
        statuses.len() == 2
            && statuses
                .iter()
                .all(|status| status.answered && status.last_error.is_none())
    };
    world.until_shown("both have answered", answered).await;
    assert_eq!(world.until_marked("m").await, ["synced", "+a", "+b", "+m"]);
    assert_eq!(log.lines_with("no ClusterProperties").len(), 2, "{}", log.text());
    assert_eq!(log.lines_with("WARN").len(), 0, "{}", log.text());
}

fn rules(manifest: &str) -> Vec<SimRule> {
    SimRule::of_role(manifest).unwrap()
}

#[test]
fn the_page_has_the_rules_of_the_manifest() {
    let page = README
        .split("```yaml")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    assert_eq!(format!("{:?}", rules(page)), format!("{:?}", rules(MANIFEST)));
}

#[tokio::test(start_paused = true)]
async fn the_right_of_the_manifest_is_enough() {
    let berlin = member("berlin");
    let user = rules(MANIFEST)
        .into_iter()
        .fold(SimUser::new("about"), SimUser::rule);
    berlin.set_user("token", user);
    let mut world = World::new();
    world.add(spec("a", berlin.client_with_token("token")));
    world.until("+a berlin shop").await;
    let audit = berlin.audit();
    let asked: Vec<_> = audit.events().filter(|event| event.user == "about").collect();
    assert_eq!(asked.len(), 1, "one request: {asked:?}");
    assert!(asked[0].code < 300, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn what_changes_or_vanishes_is_seen_at_the_next_refresh() {
    let berlin = member("berlin");
    let mut world = World::new();
    world.add(spec("a", berlin.client()));
    world.until("+a berlin shop").await;
    set(&berlin, CLUSTER_SET, "mall");
    assert_eq!(world.until("+a berlin mall").await, ["+a berlin mall"]);
    berlin.delete(PROPERTIES, CLUSTER_SET).unwrap();
    assert_eq!(world.until("+a berlin").await, ["+a berlin"]);
    assert_eq!(lists(&berlin), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_keeps_the_last_properties() {
    let berlin = member("berlin");
    let rights = SimUser::new("about").rule(SimRule::all());
    berlin.set_user("token", rights.clone());
    let mut world = World::new();
    world.add(spec("a", berlin.client_with_token("token")));
    world.until("+a berlin shop").await;
    berlin.remove_user("token");
    let failed = |about: &AboutHandle| about.status("a").unwrap().last_error.is_some();
    world.until_shown("a probe has failed", failed).await;
    let status = world.about.status("a").unwrap();
    assert_eq!(status.cluster_id.as_deref(), Some("berlin"));
    assert_eq!(
        world.until_marked("m").await,
        ["+m"],
        "nothing is announced of it"
    );
    // The inner provider says something else of the cluster: the properties are still there.
    world.add(spec("a", berlin.client_with_token("token")).property("context", "x"));
    assert_eq!(
        world.until("+a berlin shop context=x").await,
        ["+a berlin shop context=x"]
    );
    berlin.set_user("token", rights);
    set(&berlin, CLUSTER_SET, "mall");
    world.until("+a berlin mall context=x").await;
    assert_eq!(world.about.status("a").unwrap().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn members_that_never_answer_delay_no_other_and_are_given_up() {
    let berlin = member("berlin");
    let mut world = World::with(&AccessPolicy::default(), |about| about.probes_at_once(2));
    world.add(spec("a", silent()));
    world.add(spec("b", berlin.client()));
    world.until("+b berlin shop").await;
    assert_eq!(
        world.about.status("a").unwrap().last_error,
        None,
        "its probe still runs"
    );
    for silents in ["c", "d", "e", "f"] {
        world.add(spec(silents, silent()));
    }
    let all_failed = |about: &AboutHandle| {
        let failed = about
            .statuses()
            .into_iter()
            .filter(|status| status.last_error.is_some());
        failed.count() == 5
    };
    world
        .until_shown("all silent ones are given up", all_failed)
        .await;
    let error = world.about.status("a").unwrap().last_error.unwrap();
    assert_eq!(&*error, "no answer within 10 s");
    assert_eq!(world.until_marked("m").await.last().unwrap(), "+m");
}

/// The answer of an API server with these ClusterProperties.
fn answer(properties: &[Value]) -> Response<Body> {
    let list = json!({
        "apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterPropertyList", "metadata": {}, "items": properties,
    });
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(list.to_string().into_bytes())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_or_of_no_api_server_is_a_failure() {
    let large = client(|_| async { Ok(answer(&[property("v1beta1", "a", &"x".repeat(5 << 20))])) });
    let other = client(|_| async { Ok(Response::new(Body::from(b"<html>log in</html>".to_vec()))) });
    let mut world = World::new();
    world.add(spec("a", large));
    world.add(spec("b", other));
    let failed = |about: &AboutHandle| {
        let statuses = about.statuses();
        statuses.len() == 2 && statuses.iter().all(|status| status.last_error.is_some())
    };
    world.until_shown("both have failed", failed).await;
    let error = |name| world.about.status(name).unwrap().last_error.unwrap();
    assert!(error("a").contains("larger than 4 MiB"), "{}", error("a"));
    assert!(error("b").contains("not JSON"), "{}", error("b"));
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_members_are_probed_at_once() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut world = World::with(&AccessPolicy::default(), |about| about.probes_at_once(3));
    for i in 0..20 {
        let (running, most) = (running.clone(), most.clone());
        let slow = client(move |_| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, SeqCst);
                Ok(answer(&[property("v1beta1", "a", "b")]))
            }
        });
        world.add(spec(&format!("c{i}"), slow));
    }
    let answered = |about: &AboutHandle| {
        let statuses = about.statuses();
        statuses.len() == 20 && statuses.iter().all(|status| status.answered)
    };
    world.until_shown("all have answered", answered).await;
    assert_eq!(most.load(SeqCst), 3);
}

/// A client of a member, the number of requests, and the gate that each of them waits at.
fn gated(member: &SimCluster) -> (kube::Client, Arc<AtomicUsize>, Arc<Semaphore>) {
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let service = member.service().with_token(&member.admin_token());
    let slow = service_fn({
        let (asked, gate) = (asked.clone(), gate.clone());
        move |request| {
            let (asked, gate, service) = (asked.clone(), gate.clone(), service.clone());
            async move {
                asked.fetch_add(1, SeqCst);
                gate.acquire().await.unwrap().forget();
                service.oneshot(request).await
            }
        }
    });
    (kube::Client::new(slow, "default"), asked, gate)
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_while_it_is_probed_is_never_announced_again() {
    let (slow, asked, gate) = gated(&member("berlin"));
    let mut world = World::new();
    world.add(spec("a", slow.clone()));
    world
        .until_shown("it is probed", |_| asked.load(SeqCst) == 1)
        .await;
    world.clusters.handle().remove("a");
    assert_eq!(world.until("-a").await, ["synced", "+a", "-a"]);
    gate.add_permits(10);
    assert_eq!(world.until_marked("m").await, ["+m"]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.until_marked("n").await, ["+n"]);
    assert!(world.about.status("a").is_none());
    // It comes back as any other.
    world.add(spec("a", slow));
    assert_eq!(world.until("+a berlin shop").await, ["+a", "+a berlin shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_description_breaks_while_it_is_probed_stays_broken() {
    let (slow, asked, gate) = gated(&member("berlin"));
    let mut world = World::new();
    world.add(spec("a", slow.clone()));
    world
        .until_shown("it is probed", |_| asked.load(SeqCst) == 1)
        .await;
    world.clusters.handle().broken(name("a"), "file a", "cut short");
    world.until("!a").await;
    gate.add_permits(10);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.until_marked("m").await, ["+m"]);
    world.add(spec("a", slow));
    assert_eq!(world.until("+a berlin shop").await, ["+a", "+a berlin shop"]);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_member_is_probed_when_it_is_back() {
    let berlin = member("berlin");
    let mut world = World::new();
    world.add(spec("a", berlin.client()).suspended("hibernates"));
    assert_eq!(world.until_marked("m").await, ["synced", "+a", "+m"]);
    assert_eq!(lists(&berlin), 0);
    world.add(spec("a", berlin.client()));
    assert_eq!(world.until("+a berlin shop").await, ["+a", "+a berlin shop"]);
    world.add(spec("a", berlin.client()).suspended("hibernates"));
    assert_eq!(
        world.until("+a berlin shop").await,
        ["+a berlin shop"],
        "what it said stays"
    );
    let before = lists(&berlin);
    let _ = timeout(PATIENCE, world.discovery.next()).await;
    assert_eq!(lists(&berlin), before, "no refresh while it is suspended");
}

#[tokio::test(start_paused = true)]
async fn another_access_is_probed_at_once_and_another_id_is_another_identity() {
    let (berlin, paris) = (member("berlin"), member("paris"));
    let mut world = World::with(&AccessPolicy::default(), |about| {
        about.refresh_every(Duration::from_secs(1_000_000))
    });
    world.add(spec("a", berlin.client()).identity("uid"));
    world.until("+a#uid berlin shop").await;
    world.add(spec("a", paris.client()).identity("uid"));
    assert_eq!(
        world.until("+a#uid/paris paris shop").await,
        ["+a#uid berlin shop", "+a#uid/paris paris shop"]
    );
    world.add(spec("a", paris.client()).identity("other"));
    assert_eq!(
        world.until("+a#other paris shop").await,
        ["+a#other", "+a#other paris shop"],
        "the inner provider says that it is another cluster: all is forgotten"
    );
}

/// A fleet of one cluster, and the way to wait for an engagement of it.
async fn engaged(fleet: &Fleet, what: &str, so: impl Fn(&Cluster) -> bool) -> Cluster {
    eventually(PATIENCE, what, || fleet.get("a").ok().filter(&so)).await
}

#[tokio::test(start_paused = true)]
async fn a_fleet_selects_by_cluster_set_and_replaces_a_cluster_whose_id_changes() {
    for identity in [None, Some("uid")] {
        let berlin = member("berlin");
        let mut spec = spec("a", berlin.client());
        spec.identity = identity.map(Into::into);
        let clusters = ClustersProvider::builder().cluster(spec).build();
        let fleet = Fleet::builder().provider(trusting(clusters)).build();
        let runs = fleet.clone();
        let running = Background::start(|stop| async move { runs.run(stop).await });
        let in_shop = |cluster: &Cluster| ClusterSelector::cluster_set("shop").matches(cluster);
        let first = engaged(&fleet, "it is in the shop", in_shop).await;
        assert_eq!(first.property(CLUSTER_ID).as_deref(), Some("berlin"));
        set(&berlin, CLUSTER_SET, "mall");
        let moved = engaged(&fleet, "it is in the mall", |cluster| !in_shop(cluster)).await;
        assert!(moved.is_same(&first), "another ClusterSet is no other cluster");
        set(&berlin, CLUSTER_ID, "paris");
        let second = engaged(&fleet, "another cluster", |cluster| !cluster.is_same(&first)).await;
        assert_eq!(second.property(CLUSTER_ID).as_deref(), Some("paris"));
        assert!(first.token().is_cancelled());
        running.stop().await;
    }
}

/// A provider that says this, and ends.
struct Announces;

impl Provider for Announces {
    fn name(&self) -> &str {
        "says"
    }

    fn discover(&self, _: CancellationToken) -> Discovery {
        let broken = mcr_core::BrokenCluster::new(name("b"), "file b", "cut short");
        stream::iter([
            Ok(Change::Upsert(spec("a", silent()))),
            Ok(Change::Synced),
            Ok(Change::Broken(broken)),
            Err("the hub is gone".into()),
            Ok(Change::Remove(name("a"))),
            Ok(Change::Synced),
        ])
        .boxed()
    }

    fn searched(&self) -> String {
        "everywhere".into()
    }
}

#[tokio::test(start_paused = true)]
async fn errors_syncs_and_the_end_of_the_inner_discovery_are_passed_on() {
    let provider = AboutApi::around(Announces);
    assert_eq!(
        (provider.name(), provider.searched().as_str()),
        ("says", "everywhere")
    );
    let received: Vec<_> = provider
        .discover(CancellationToken::new())
        .map(|item| item.map_or_else(|error| error.to_string(), shown))
        .collect()
        .await;
    assert_eq!(
        received,
        ["+a", "synced", "!b", "the hub is gone"],
        "no change follows an error"
    );
    let text = format!("{provider:?}");
    assert!(text.contains("says") && text.contains("at_once: 8"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_discovery_that_starts_again_knows_the_cluster_id_and_forgets_who_is_gone() {
    let (berlin, paris) = (member("berlin"), member("paris"));
    let clusters = ClustersProvider::new();
    let provider = trusting(clusters.clone());
    let mut world = World {
        about: provider.handle(),
        discovery: provider.discover(CancellationToken::new()),
        clusters,
        received: Vec::new(),
    };
    world.add(spec("a", berlin.client()).identity("uid"));
    world.add(spec("b", silent()));
    world.until("+a#uid berlin shop").await;
    world.add(spec("a", paris.client()).identity("uid"));
    world.until("+a#uid/paris paris shop").await;
    world.discovery = stream::empty().boxed();
    world.clusters.handle().remove("b");
    world.discovery = provider.discover(CancellationToken::new());
    assert_eq!(world.until("synced").await, ["+a#uid/paris paris shop", "synced"]);
    assert_eq!(world.about.statuses().len(), 1, "b is shown no more");
}

#[tokio::test]
async fn untrusted_accesses_are_probed_under_the_policy_of_the_fleet_only() {
    let served = member("berlin").serve().await.unwrap();
    let kubeconfig = Access::kubeconfig(served.kubeconfig(), Trust::Untrusted);
    let plugin = "current-context: x\n\
         contexts: [{name: x, context: {cluster: c, user: u}}]\n\
         clusters: [{name: c, cluster: {server: 'https://192.0.2.1'}}]\n\
         users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, \
         interactiveMode: Never}}}]\n";
    let fails = |about: &AboutHandle| {
        let statuses = about.statuses();
        statuses.len() == 2 && statuses.iter().all(|status| status.last_error.is_some())
    };
    let mut world = World::new();
    world.add(spec("a", kubeconfig.clone()));
    world.add(spec("b", Access::kubeconfig(plugin, Trust::Untrusted)));
    let refused = world.until_shown("both are refused", fails);
    timeout(REAL_PATIENCE, refused).await.expect("both are refused");
    let error = |world: &World, name| world.about.status(name).unwrap().last_error.unwrap();
    assert!(error(&world, "a").contains("loopback"), "{}", error(&world, "a"));
    assert!(error(&world, "b").contains("exec"), "{}", error(&world, "b"));
    let policy = AccessPolicy::default()
        .addresses(AddressPolicy::default().allow_loopback(true))
        .credential_plugins(CredentialPluginPolicy::allowlist(["/bin/false"]));
    let mut world = World::with(&policy, |about| about);
    world.add(spec("a", kubeconfig));
    let allowed = world.until("+a berlin shop");
    timeout(REAL_PATIENCE, allowed).await.expect("it is allowed");
}
