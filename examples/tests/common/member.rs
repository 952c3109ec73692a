//! A cluster that a program works on, whatever it is made of.

use std::{
    fmt::Debug,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster as its administrator sees it.
pub(crate) struct Member {
    /// Its context is named so as well.
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) kubeconfig: String,
}

impl Member {
    /// Puts its kubeconfig into a folder, at once and whole. Returns its path.
    pub(crate) fn join(&self, folder: &Path) -> PathBuf {
        let (new, path) = (
            folder.join("new"),
            folder.join(format!("{}.kubeconfig", self.name)),
        );
        fs::write(&new, &self.kubeconfig).unwrap();
        fs::rename(new, &path).unwrap();
        path
    }

    pub(crate) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    pub(crate) fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Makes a namespace with labels.
    pub(crate) async fn namespace(&self, name: &str, labels: Value) {
        create(
            &self.namespaces(),
            json!({"metadata": {"name": name, "labels": labels}}),
        )
        .await;
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + DeserializeOwned + serde::Serialize + Debug,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Changes an object as somebody with an editor would.
pub(crate) async fn edit<K>(api: &Api<K>, name: &str, patch: Value)
where
    K: Clone + DeserializeOwned + Debug,
{
    let somebody = PatchParams {
        field_manager: Some("somebody".into()),
        ..PatchParams::default()
    };
    api.patch(name, &somebody, &Patch::Merge(patch)).await.unwrap();
}

pub(crate) async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + DeserializeOwned + Debug,
{
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until an object is as it should be; none for one that is not there.
pub(crate) async fn eventually<K>(api: &Api<K>, name: &str, what: &str, wanted: impl Fn(Option<&K>) -> bool)
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = api.get_opt(name).await.unwrap();
        if wanted(found.as_ref()) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {name} is {found:#?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// An entry of a ConfigMap.
pub(crate) fn entry<'a>(map: Option<&'a ConfigMap>, key: &str) -> Option<&'a str> {
    map?.data.as_ref()?.get(key).map(String::as_str)
}

/// A name that no other test and no earlier run has.
pub(crate) fn unique(purpose: &str) -> String {
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    format!("{purpose}-{}-{:x}", std::process::id(), nanos)
}
