//! A host with a namespace that is a cluster.

use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::ConfigMap};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams, WatchEvent},
};
use mcr_provider_namespace::NamespaceMapping;
use mcr_testkit::control_plane::ControlPlane;
use serde::{Serialize, de::DeserializeOwned};

use crate::harness::{Raw, Reply, ask, crd, namespace};

/// The limit for any wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) host: Client,
    pub(crate) island: Client,
    pub(crate) kept: Client,
}

impl World {
    /// Reads a path inside.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        ask(&self.island, &Raw::new("GET", path)).await.unwrap()
    }

    /// The objects of a kind inside, and where they really are.
    pub(crate) fn both<K>(&self) -> (Api<K>, Api<K>)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let of = |client: &Client, namespace| Api::namespaced(client.clone(), namespace);
        (of(&self.island, "default"), of(&self.host, "island"))
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> K
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), object).await.unwrap()
}

pub(crate) async fn world() -> World {
    let plane = ControlPlane::builder()
        .crd(crd("widgets", "Widget", "Namespaced"))
        .start()
        .await
        .unwrap();
    let host = plane.client();
    for name in ["island", "zoo"] {
        namespace(&host, name).await;
    }
    let island = NamespaceMapping::new().client(&host, "island").unwrap();
    let kept = NamespaceMapping::new()
        .keep_names(true)
        .client(&host, "island")
        .unwrap();
    World {
        plane,
        host,
        island,
        kept,
    }
}

pub(crate) fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(key, value)| ((*key).into(), (*value).into()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

pub(crate) fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused by a Status: {other:?}"),
    }
}

/// The next event of a watch that is no bookmark.
pub(crate) async fn next<K: std::fmt::Debug>(
    watch: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
) -> WatchEvent<K> {
    loop {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await;
        match event.expect("something is told").unwrap().unwrap() {
            WatchEvent::Bookmark(_) => {}
            event => return event,
        }
    }
}

/// Nothing but bookmarks has come by now.
pub(crate) fn has_been_quiet<K: std::fmt::Debug>(
    watch: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
) {
    while let Some(event) = watch.next().now_or_never() {
        assert!(matches!(event, Some(Ok(WatchEvent::Bookmark(_)))), "{event:?}");
    }
}

pub(crate) fn names<K: Resource>(objects: impl IntoIterator<Item = K>) -> Vec<(String, String)> {
    let both = |object: K| {
        (
            object.meta().namespace.clone().unwrap_or_default(),
            object.meta().name.clone().unwrap_or_default(),
        )
    };
    let mut names: Vec<_> = objects.into_iter().map(both).collect();
    names.sort();
    names
}
