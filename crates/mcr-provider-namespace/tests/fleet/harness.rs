//! Helpers of the tests in this folder.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use mcr::{Action, Cluster, Controller, Fleet, Manager, Provider, Request, RequestObject};
use mcr_core::{Access, Trust};
use mcr_provider_namespace::{NamespaceProvider, NamespaceProviderBuilder};
use mcr_testkit::control_plane::ControlPlane;
pub(crate) use mcr_testkit::waiting::OrFail;
use mcr_testkit::waiting::{Answer, Background};

/// The limit for any wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

#[track_caller]
pub(crate) fn eventually<A: Answer>(what: &str, ask: impl FnMut() -> A) -> impl Future<Output = A::Value> {
    mcr_testkit::waiting::eventually(PATIENCE, what, ask)
}

pub(crate) fn provider(plane: &ControlPlane) -> NamespaceProviderBuilder {
    NamespaceProvider::builder().access(Access::kubeconfig(plane.kubeconfig(), Trust::Trusted))
}

pub(crate) async fn namespace(client: &Client, name: &str, labels: &[(&str, &str)]) -> Namespace {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        labels: Some(pairs(labels)),
        ..ObjectMeta::default()
    };
    let namespace = Namespace {
        metadata,
        ..Namespace::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .or_fail()
}

fn pairs(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// An animal, or who else lives somewhere.
pub(crate) async fn lives(client: &Client, namespace: &str, name: &str, kind: &str) {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            labels: Some(pairs(&[("type", kind)])),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    maps(client, namespace)
        .create(&PostParams::default(), &map)
        .await
        .or_fail();
}

/// Merges this into an object.
pub(crate) async fn merge<K>(api: &Api<K>, name: &str, patch: serde_json::Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(patch);
    api.patch(name, &PatchParams::default(), &patch).await.or_fail();
}

/// Waits until a cluster is ready.
pub(crate) async fn ready(cluster: &Cluster) {
    let ready = cluster.wait_for(|state| *state == mcr::ClusterState::Ready);
    tokio::time::timeout(PATIENCE, ready).await.or_fail();
}

pub(crate) async fn feed(client: &Client, namespace: &str, name: &str, stomach: &str) {
    let stomach = serde_json::json!({"data": {"stomach": stomach}});
    merge(&maps(client, namespace), name, stomach).await;
}

pub(crate) async fn dies(client: &Client, namespace: &str, name: &str) {
    maps(client, namespace)
        .delete(name, &DeleteParams::default())
        .await
        .or_fail();
}

/// What reconcilers saw, as `live island island/crusoe`.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<String>>);

impl Seen {
    pub(crate) fn has(&self, line: &str) -> bool {
        self.0.lock().unwrap().iter().any(|known| known == line)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Notes what it sees, and feeds who has an empty stomach through the cluster's own client.
async fn keeper(request: Request<ConfigMap>, seen: Arc<Seen>) -> Result<Action, kube::Error> {
    let what = match &request.object {
        RequestObject::Live(_) => "live",
        RequestObject::Deleted { .. } => "deleted",
        _ => "absent",
    };
    let namespace = request.namespace().unwrap_or_default();
    let line = format!("{what} {} {namespace}/{}", request.cluster.name(), request.name());
    seen.0.lock().unwrap().push(line);
    if let Some(map) = request.live()
        && map
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key("type"))
        && map
            .data
            .as_ref()
            .is_none_or(|data| data.get("stomach").is_none_or(|stomach| stomach != "food"))
    {
        let food = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": request.name(), "namespace": namespace},
            "data": {"stomach": "food"},
        });
        let maps = request.cluster.namespaced::<ConfigMap>(namespace);
        maps.patch(
            request.name(),
            &PatchParams::apply("keeper").force(),
            &Patch::Apply(food),
        )
        .await?;
    }
    Ok(Action::await_change())
}

/// A manager with the keeper over a provider.
pub(crate) struct Running {
    pub(crate) fleet: Fleet,
    pub(crate) seen: Arc<Seen>,
    running: Background<Result<(), mcr::ManagerError>>,
}

impl Running {
    pub(crate) fn start(provider: impl Provider) -> Self {
        let seen = Arc::<Seen>::default();
        let controller = Controller::<ConfigMap>::new("keeper").build(keeper, seen.clone());
        let manager = Manager::builder()
            .provider(provider)
            .controller(controller)
            .build()
            .or_fail();
        let fleet = manager.fleet().clone();
        fleet.index::<ConfigMap>("type", |map| {
            map.metadata
                .labels
                .iter()
                .flatten()
                .filter(|(key, _)| *key == "type")
                .map(|(_, kind)| kind.clone())
                .collect()
        });
        Self {
            fleet,
            seen,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.fleet
            .clusters()
            .iter()
            .map(|cluster| cluster.name().to_string())
            .collect()
    }

    pub(crate) async fn cluster(&self, name: &str) -> Cluster {
        eventually(&format!("{name} joins"), || self.fleet.get(name).ok()).await
    }

    pub(crate) async fn sees(&self, line: &str) {
        eventually(line, || self.seen.has(line)).await;
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}
