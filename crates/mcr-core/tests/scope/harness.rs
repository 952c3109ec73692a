//! A fleet, a layout of namespaces as clusters, and what the tests of this folder share.

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    api::{DeleteParams, PostParams},
    client::Body,
};
use mcr_core::{
    AnswerBody, BoxError, Capabilities, Cluster, ClusterSpec, FleetSettings, ObjectMetadata, Placement,
    Scope, ScopeLayout, ScopeRefusal, Upstream, WatchRequest,
};
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};

pub(crate) use crate::{common::*, paused::paused};

/// How long anything is waited for, in real and in paused time.
pub(crate) const SOON: Duration = Duration::from_secs(120);

pub(crate) type Sent = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

/// What a layout says, so that a test writes down only what differs from [`NAMESPACES`] or
/// [`WORKSPACES`](crate::workspaces::WORKSPACES).
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) capabilities: fn() -> Capabilities,
    pub(crate) deletions_are_certain: fn() -> bool,
    pub(crate) default_namespace: fn(&str) -> &str,
    pub(crate) watch_prefix: &'static str,
    pub(crate) watch: fn(&WatchRequest) -> Result<WatchRequest, ScopeRefusal>,
    pub(crate) place: for<'o> fn(&ObjectMetadata<'o>) -> Option<Placement<'o>>,
    pub(crate) localize: Option<fn(&mut serde_json::Value)>,
    pub(crate) send: fn(Arc<str>, Request<Body>, Upstream) -> Sent,
}

impl ScopeLayout for Layout {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        (self.capabilities)()
    }

    fn deletions_are_certain(&self) -> bool {
        (self.deletions_are_certain)()
    }

    fn default_namespace<'p>(&'p self, place: &'p str) -> Cow<'p, str> {
        (self.default_namespace)(place).into()
    }

    fn watch_prefix(&self) -> &str {
        self.watch_prefix
    }

    fn watch(&self, wanted: &WatchRequest) -> Result<WatchRequest, ScopeRefusal> {
        (self.watch)(wanted)
    }

    fn place<'o>(&self, object: &ObjectMetadata<'o>) -> Option<Placement<'o>> {
        (self.place)(object)
    }

    fn localizes(&self, _: &WatchRequest) -> bool {
        self.localize.is_some()
    }

    fn localize(&self, _: &str, object: &mut serde_json::Value) {
        if let Some(localize) = self.localize {
            localize(object);
        }
    }

    fn send(&self, place: Arc<str>, request: Request<Body>, upstream: Upstream) -> Sent {
        (self.send)(place, request, upstream)
    }
}

/// Each namespace is a cluster and keeps its name inside. Nothing is rewritten, so this shows what scopes do by
/// themselves.
pub(crate) const NAMESPACES: Layout = Layout {
    name: "namespaces",
    capabilities: Capabilities::default,
    deletions_are_certain: || false,
    default_namespace: |_| "default",
    watch_prefix: "",
    watch: |wanted| match wanted.plural() {
        "nodes" => Err(ScopeRefusal::new("a namespace has no nodes")),
        _ => Ok(wanted.clone().all_namespaces()),
    },
    place: |object| object.namespace().map(Placement::new),
    localize: None,
    send: |_, request, upstream| Box::pin(async move { upstream.send(request).await }),
};

pub(crate) fn short_pauses(settings: &mut FleetSettings) {
    pause_at_most(settings, Duration::from_millis(200));
}

impl Running {
    /// It is the cluster that it was.
    #[track_caller]
    pub(crate) fn keeps(&self, cluster: &Cluster) {
        assert!(self.fleet.get(cluster.name()).or_fail().is_same(cluster));
    }

    /// Announces a place as a cluster of the same name and waits until it is engaged.
    pub(crate) async fn join(&self, scope: &Scope, endpoint: &str, place: &str) -> Cluster {
        self.announce(spec(scope, endpoint, place)).await
    }
}

pub(crate) fn spec(scope: &Scope, endpoint: &str, place: &str) -> ClusterSpec {
    ClusterSpec::new(name(place), scope.place(endpoint, place)).identity(format!("id of {place}"))
}

/// The names of the ConfigMaps that a cluster's store holds.
pub(crate) fn held(cluster: &Cluster) -> Vec<String> {
    let store = cluster.store::<ConfigMap>().or_fail();
    let mut names: Vec<String> = store
        .keys()
        .or_fail()
        .iter()
        .map(|key| key.name.to_string())
        .filter(|name| !name.starts_with("kube-"))
        .collect();
    names.sort();
    names
}

pub(crate) async fn get(cluster: &Cluster, name: &str) -> kube::Result<ConfigMap> {
    cluster.namespaced("default").get(name).await
}

pub(crate) async fn create(client: &kube::Client, namespace: &str, name: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), &config_map(name))
        .await
        .or_fail();
}

pub(crate) async fn delete(client: &kube::Client, namespace: &str, name: &str) {
    let api = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
    api.delete(name, &DeleteParams::default()).await.or_fail();
}
