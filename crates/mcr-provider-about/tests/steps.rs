//! The provider with simulated members: the scenarios of `steps.yaml`, and tests in a fleet.

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
    Access, AccessPolicy, Change, Cluster, ClusterName, ClusterSpec, CredentialPluginPolicy, Discovery,
    Fleet, Provider, Trust,
};
use mcr_provider_about::{AboutApi, AboutHandle, CLUSTER_ID, CLUSTER_SET};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{
    discovery::{Followed, line, loopback_policy},
    sim::{SimCluster, SimRule, SimUser},
    steps::{HubProvider, Options},
    waiting::{Background, eventually},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

const CRD: &str = include_str!("data/clusterproperties.yaml");
const MANIFEST: &str = include_str!("../deploy/rbac.yaml");
const PROPERTIES: &str = "clusterproperties.about.k8s.io";

/// What never comes is given up after this. In paused time, where most tests run, it passes at once.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A member that serves these versions of the About API, and grants the rights of the manifest.
fn member_of(id: &str, versions: &[&str]) -> SimCluster {
    let mut crd: Value = serde_saphyr::from_str(CRD).unwrap();
    let all = crd["spec"]["versions"].as_array_mut().unwrap();
    all.retain(|version| versions.contains(&version["name"].as_str().unwrap()));
    all.last_mut().unwrap()["storage"] = true.into();
    let member = SimCluster::builder().build();
    member.create(crd).unwrap();
    for (name, value) in [
        (CLUSTER_ID, id),
        (CLUSTER_SET, "shop"),
        ("region.example.com", "eu"),
    ] {
        set(&member, versions[0], name, Some(value));
    }
    grant(&member);
    member
}

fn member(id: &str) -> SimCluster {
    member_of(id, &["v1beta1", "v1alpha1"])
}

fn grant(member: &SimCluster) {
    let rules = SimRule::of_role(MANIFEST).unwrap().into_iter();
    member.set_user("token", rules.fold(SimUser::new("about"), SimUser::rule));
}

/// Sets a ClusterProperty, or deletes it.
fn set(member: &SimCluster, version: &str, name: &str, value: Option<&str>) {
    match value {
        Some(value) => drop(
            member
                .apply(json!({
                    "apiVersion": format!("about.k8s.io/{version}"), "kind": "ClusterProperty",
                    "metadata": {"name": name}, "spec": {"value": value},
                }))
                .unwrap(),
        ),
        None => member.delete(PROPERTIES, name).unwrap(),
    }
}

fn spec(name: &str, access: impl Into<Access>) -> ClusterSpec {
    ClusterSpec::named(name, access).unwrap()
}

/// A client whose requests go through a function.
fn client<F, A>(call: F) -> kube::Client
where
    F: FnMut(Request<Body>) -> A + Clone + Send + 'static,
    A: Future<Output = Result<Response<Body>, std::io::Error>> + Send + 'static,
{
    kube::Client::new(service_fn(call), "default")
}

/// Every cluster may set the properties of these tests.
fn trusting(clusters: ClustersProvider) -> AboutApi {
    AboutApi::around(clusters).member_properties([CLUSTER_ID, CLUSTER_SET, "region.example.com"])
}

/// The answer of an API server with a ClusterProperty.
fn answer(text: &str) -> Response<Body> {
    let property = json!({"apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterProperty", "metadata": {"name": CLUSTER_SET}, "spec": {"value": text}});
    let list = json!({
        "apiVersion": "about.k8s.io/v1beta1", "kind": "ClusterPropertyList", "metadata": {}, "items": [property],
    });
    let response = Response::builder().header("content-type", "application/json");
    response.body(Body::from(list.to_string().into_bytes())).unwrap()
}

/// Clusters that a scenario adds, and members that they lead to.
struct Members {
    clusters: ClustersProvider,
    about: AboutApi,
    handle: AboutHandle,
    members: BTreeMap<&'static str, SimCluster>,
}

impl Members {
    fn client(&self, member: &str) -> kube::Client {
        match member {
            "silent" => client(|_| pending()),
            "large" => client(|_| async { Ok(answer(&"x".repeat(5 << 20))) }),
            "html" => client(|_| async { Ok(Response::new(Body::from(b"<html>log in</html>".to_vec()))) }),
            "slow" => {
                let service = self.members["berlin"].service().with_token("token");
                let slow = service_fn(move |request| {
                    let service = service.clone();
                    async move {
                        sleep(Duration::from_secs(5)).await;
                        service.oneshot(request).await
                    }
                });
                kube::Client::new(slow, "default")
            }
            member => self.members[member].client_with_token("token"),
        }
    }

    fn add(&self, name: &str, of: &Value) {
        let text = |field: &str| of[field].as_str().map(str::to_owned);
        let mut spec = spec(name, self.client(of["member"].as_str().unwrap()));
        spec.identity = text("identity").map(Into::into);
        if let Some(context) = text("context") {
            spec = spec.property("context", context);
        }
        if let Some(reason) = text("suspended") {
            spec = spec.suspended(reason);
        }
        self.clusters.handle().add(spec);
    }

    fn compare_status(&self, name: &str, expected: &Value) {
        let status = self.handle.status(name).unwrap();
        let error = status.last_error.as_deref().unwrap_or_default();
        for (field, value) in expected.as_object().unwrap() {
            let so = match &**field {
                "answered" => status.answered == *value,
                "id" => status.cluster_id.as_deref() == value.as_str(),
                _ => value.as_str().map_or(error.is_empty(), |part| {
                    !error.is_empty() && error.contains(part.trim_matches('.'))
                }),
            };
            assert!(so, "{name}: {field}: {status:?}");
        }
    }
}

impl HubProvider for Members {
    fn roles() -> &'static str {
        MANIFEST
    }

    fn start() -> Self {
        let clusters = ClustersProvider::new();
        let about = trusting(clusters.clone()).probes_at_once(3);
        let forbidden = member("forbidden");
        forbidden.set_user("token", SimUser::new("nobody"));
        let without = SimCluster::new();
        grant(&without);
        Self {
            clusters,
            handle: about.handle(),
            about,
            members: BTreeMap::from([
                ("berlin", member("berlin")),
                ("paris", member("paris")),
                ("old", member_of("old", &["v1alpha1"])),
                ("forbidden", forbidden),
                ("without", without),
            ]),
        }
    }

    fn provider(&self, _: kube::Client, _: &Options) -> Arc<dyn Provider> {
        Arc::new(self.about.clone())
    }

    fn act(&self, _: &SimCluster, action: &str, value: &Value) {
        let (clusters, name) = (self.clusters.handle(), value.as_str().unwrap_or_default());
        let each = value.as_object().into_iter().flatten();
        match action {
            "add" => each.for_each(|(name, of)| self.add(name, of)),
            "set" => {
                for (member, properties) in each {
                    for (name, value) in properties.as_object().unwrap() {
                        set(&self.members[&**member], "v1beta1", name, value.as_str());
                    }
                }
            }
            "status" => each.for_each(|(name, expected)| self.compare_status(name, expected)),
            "remove" => drop(clusters.remove(name)),
            "broken" => clusters.broken(
                ClusterName::new(name).unwrap(),
                format!("file {name}"),
                "cut short",
            ),
            "revoke" => assert!(self.members[name].remove_user("token")),
            "grant" => grant(&self.members[name]),
            _ => panic!("{action}"),
        }
    }

    fn count(&self, what: &str) -> Option<usize> {
        let member = &self.members[what.strip_prefix("lists of ")?];
        Some(
            member
                .audit()
                .count(|event| event.is_list("clusterproperties") && event.user == "about"),
        )
    }
}

mcr_testkit::steps!(
    Members, "steps.yaml";
    a_cluster_is_announced_at_once_and_again_with_what_it_reports_of_itself,
    a_member_without_the_api_or_without_the_right_has_no_properties_and_that_is_no_error,
    a_failing_probe_keeps_the_last_properties,
    members_that_never_answer_delay_no_other_and_are_given_up,
    a_member_that_leaves_or_breaks_while_it_is_probed_stays_so,
    a_suspended_member_is_probed_when_it_is_back,
    another_access_is_probed_at_once_and_another_id_is_another_identity,
);

#[test]
fn the_page_has_the_rules_of_the_manifest() {
    let page = include_str!("../README.md").split("```yaml").nth(1).unwrap();
    let rules = |role: &str| format!("{:?}", SimRule::of_role(role).unwrap());
    assert_eq!(rules(page.split("```").next().unwrap()), rules(MANIFEST));
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_members_are_probed_at_once() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let clusters = ClustersProvider::new();
    let about = trusting(clusters.clone()).probes_at_once(3);
    for i in 0..20 {
        let (running, most) = (running.clone(), most.clone());
        let slow = client(move |_| {
            let (running, most) = (running.clone(), most.clone());
            async move {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, SeqCst);
                Ok(answer("b"))
            }
        });
        clusters.handle().add(spec(&format!("c{i}"), slow));
    }
    let mut followed = Followed::of(&about);
    // Each at once, and again with its property.
    for _ in 0..41 {
        followed.next().await;
    }
    assert_eq!(most.load(SeqCst), 3);
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
        let fleet = Fleet::builder()
            .provider(trusting(clusters).refresh_every(Duration::from_secs(1)))
            .build();
        let runs = fleet.clone();
        let running = Background::start(|stop| async move { runs.run(stop).await });
        let in_shop = |cluster: &Cluster| ClusterSelector::cluster_set("shop").matches(cluster);
        let first = engaged(&fleet, "it is in the shop", in_shop).await;
        assert_eq!(first.property(CLUSTER_ID).as_deref(), Some("berlin"));
        set(&berlin, "v1beta1", CLUSTER_SET, Some("mall"));
        let moved = engaged(&fleet, "it is in the mall", |cluster| !in_shop(cluster)).await;
        assert!(moved.is_same(&first), "another ClusterSet is no other cluster");
        set(&berlin, "v1beta1", CLUSTER_ID, Some("paris"));
        let second = engaged(&fleet, "another cluster", |cluster| !cluster.is_same(&first)).await;
        assert_eq!(second.property(CLUSTER_ID).as_deref(), Some("paris"));
        assert!(first.token().is_cancelled());
        running.stop().await;
    }
}

/// A provider that announces this, and ends.
struct Announces;

impl Provider for Announces {
    fn name(&self) -> &str {
        "announces"
    }

    fn discover(&self, _: CancellationToken) -> Discovery {
        let broken = mcr_core::BrokenCluster::new(ClusterName::new("b").unwrap(), "file b", "cut short");
        stream::iter([
            Ok(Change::Upsert(spec("a", client(|_| pending())))),
            Ok(Change::Synced),
            Ok(Change::Broken(broken)),
            Err("the hub is gone".into()),
            Ok(Change::Remove(ClusterName::new("a").unwrap())),
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
        ("announces", "everywhere")
    );
    let received: Vec<_> = provider
        .discover(CancellationToken::new())
        .map(|item| item.map_or_else(|error| error.to_string(), |change| line(&change)))
        .collect()
        .await;
    assert_eq!(
        received,
        ["+a", "synced", "!b: file b: cut short", "the hub is gone"],
        "no change follows an error"
    );
    let text = format!("{provider:?}");
    assert!(
        text.contains("announces") && text.contains("at_once: 8"),
        "{text}"
    );
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
    let with = |policy: AccessPolicy| {
        let clusters = ClustersProvider::builder()
            .cluster(spec("a", kubeconfig.clone()))
            .cluster(spec("b", Access::kubeconfig(plugin, Trust::Untrusted)));
        let about = trusting(clusters.build());
        let handle = about.handle();
        let mut discovery = about.discover_with(CancellationToken::new(), &policy.into());
        let listens = Background::start(|stop| async move {
            while stop
                .run_until_cancelled(discovery.next())
                .await
                .flatten()
                .is_some()
            {}
        });
        (handle, listens)
    };
    let (handle, listens) = with(AccessPolicy::default());
    let error = |handle: &AboutHandle, name: &str| handle.status(name).and_then(|status| status.last_error);
    let refused = || error(&handle, "a").zip(error(&handle, "b"));
    let (a, b) = eventually(Duration::from_secs(60), "both are refused", refused).await;
    assert!(a.contains("loopback") && b.contains("exec"), "{a} {b}");
    listens.stop().await;
    let (handle, _listens) =
        with(loopback_policy().credential_plugins(CredentialPluginPolicy::allowlist(["/bin/false"])));
    let allowed = || {
        handle
            .status("a")
            .is_some_and(|status| status.cluster_id.as_deref() == Some("berlin"))
    };
    eventually(Duration::from_secs(60), "it is allowed", allowed).await;
}
