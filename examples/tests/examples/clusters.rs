//! Three API servers that all tests share, each working in namespaces of its own.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mcr_testkit::control_plane::{ControlPlane, Etcd};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    runtime::Runtime,
    sync::OnceCell,
    time::{Duration, Instant, sleep},
};

use crate::common::member::Member;

/// `berlin`, `lyon` and `hub`.
pub(crate) struct Clusters {
    pub(crate) berlin: ControlPlane,
    pub(crate) lyon: ControlPlane,
    pub(crate) hub: ControlPlane,
}

/// Runs a test on the clusters. They live as long as this process: their watchdogs end them with it.
pub(crate) fn on_clusters<F: Future>(test: impl FnOnce(&'static Clusters) -> F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static CLUSTERS: OnceCell<Clusters> = OnceCell::const_new();
    RUNTIME
        .get_or_init(|| Runtime::new().unwrap())
        .block_on(async { test(CLUSTERS.get_or_init(start).await).await })
}

async fn start() -> Clusters {
    let etcd = Etcd::start().await.unwrap();
    let plane = |name: &'static str| ControlPlane::builder().name(name).etcd(&etcd).audit(true).start();
    let (berlin, lyon, hub) = tokio::try_join!(plane("berlin"), plane("lyon"), plane("hub")).unwrap();
    Clusters { berlin, lyon, hub }
}

/// A folder for kubeconfigs.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A cluster, for a story.
pub(crate) fn member(plane: &ControlPlane) -> Member {
    Member {
        name: plane.name().to_owned(),
        client: plane.client(),
        kubeconfig: plane.kubeconfig(),
    }
}

/// Writes the kubeconfig of a cluster into a file named after it.
pub(crate) fn kubeconfig(folder: &Path, plane: &ControlPlane) -> PathBuf {
    let path = folder.join(format!("{}.kubeconfig", plane.name()));
    let new = folder.join("new");
    std::fs::write(&new, plane.kubeconfig()).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}

pub(crate) async fn namespace(plane: &ControlPlane, name: &str) {
    let object = Namespace {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        ..Default::default()
    };
    Api::all(plane.client())
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

pub(crate) fn maps(client: Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client, namespace)
}

/// A ConfigMap with one label and one entry.
pub(crate) async fn create(plane: &ControlPlane, namespace: &str, name: &str, label: (&str, &str)) {
    let object = json!({
        "metadata": {"name": name, "labels": {label.0: label.1}},
        "data": {"key": "value"},
    });
    let object = serde_json::from_value(object).unwrap();
    maps(plane.client(), namespace)
        .create(&PostParams::default(), &object)
        .await
        .unwrap();
}

pub(crate) async fn patch(plane: &ControlPlane, namespace: &str, name: &str, patch: Value) {
    maps(plane.client(), namespace)
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

pub(crate) async fn delete(plane: &ControlPlane, namespace: &str, name: &str) {
    maps(plane.client(), namespace)
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

/// Waits until an object is as it should be; none for one that is not there.
pub(crate) async fn eventually(
    plane: &ControlPlane,
    namespace: &str,
    name: &str,
    what: &str,
    wanted: impl Fn(Option<&ConfigMap>) -> bool,
) {
    let maps = maps(plane.client(), namespace);
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let found = maps.get_opt(name).await.unwrap();
        if wanted(found.as_ref()) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{what}: {} has {found:#?}",
            plane.name()
        );
        sleep(Duration::from_millis(50)).await;
    }
}

/// An entry of a ConfigMap.
pub(crate) fn entry<'a>(map: Option<&'a ConfigMap>, key: &str) -> Option<&'a str> {
    map?.data.as_ref()?.get(key).map(String::as_str)
}
