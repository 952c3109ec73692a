//! The harness of this folder: a manager over a folder of kubeconfig files, and a reconciler that records its
//! requests.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use mcr::{
    Action, BuildError, BuiltController, Controller, ControllerHandle, Fleet, FleetSettings, Manager,
    Request, RequestObject, core::TransportSettings,
};
use mcr_provider_file::FileProvider;
use mcr_testkit::control_plane::{ControlPlane, Credentials, KubeconfigBuilder, policy_rule};
use mcr_testkit::waiting::Background;
pub(crate) use mcr_testkit::waiting::{OrFail, eventually};

/// The timeout of a wait in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The recorded requests of a reconciler, and the number of running reconciles of each object.
#[derive(Default)]
pub(crate) struct Seen {
    lines: Mutex<Vec<String>>,
    running: Mutex<HashMap<String, usize>>,
    at_once: AtomicUsize,
}

impl Seen {
    pub(crate) fn has(&self, line: &str) -> bool {
        self.count(line) > 0
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.lines
            .lock()
            .unwrap()
            .iter()
            .filter(|known| *known == line)
            .count()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub(crate) fn any(&self, matches: impl Fn(&str) -> bool) -> bool {
        self.lines.lock().unwrap().iter().any(|line| matches(line))
    }

    /// The highest number of reconciles of one object that ran at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.at_once.load(Ordering::SeqCst)
    }

    fn begin(&self, key: &str) {
        let mut running = self.running.lock().unwrap();
        let now = running.entry(key.to_owned()).or_default();
        *now += 1;
        self.at_once.fetch_max(*now, Ordering::SeqCst);
    }

    fn end(&self, key: &str, line: String) {
        *self.running.lock().unwrap().get_mut(key).unwrap() -= 1;
        self.lines.lock().unwrap().push(line);
    }
}

/// Records `live|deleted|absent <context> <name>`.
pub(crate) async fn note(
    request: Request<ConfigMap>,
    seen: Arc<Seen>,
) -> Result<Action, std::convert::Infallible> {
    let key = request.key.to_string();
    seen.begin(&key);
    tokio::task::yield_now().await;
    let what = match &request.object {
        RequestObject::Live(_) => "live",
        RequestObject::Deleted { .. } => "deleted",
        _ => "absent",
    };
    let cluster = request.cluster.name().as_str();
    let context = cluster.rsplit_once('+').map_or(cluster, |(_, context)| context);
    seen.end(&key, format!("{what} {context} {}", request.name()));
    Ok(Action::await_change())
}

/// A controller of ConfigMaps in the `default` namespace that records its requests.
pub(crate) fn noting(seen: &Arc<Seen>) -> Result<BuiltController, BuildError> {
    Controller::<ConfigMap>::new("noting")
        .watch_request(|watch| watch.namespace("default"))
        .build(note, seen.clone())
}

/// A running manager over a folder of kubeconfig files.
pub(crate) struct Running {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) fleet: Fleet,
    pub(crate) controllers: Vec<ControllerHandle>,
    running: Background<Result<(), mcr::ManagerError>>,
}

impl Running {
    /// Starts with these files in the folder. Watches with rotated credentials end within a second.
    pub(crate) fn start(
        files: &[(&str, &str)],
        controllers: Vec<Result<BuiltController, BuildError>>,
    ) -> Self {
        Self::start_with(files, controllers, |settings| {
            let mut transport = TransportSettings::default();
            transport.rotation_spread = Duration::from_secs(1);
            settings.transport = transport.into();
        })
    }

    /// Starts with other settings.
    pub(crate) fn start_with(
        files: &[(&str, &str)],
        controllers: Vec<Result<BuiltController, BuildError>>,
        settings: impl FnOnce(&mut FleetSettings),
    ) -> Self {
        let folder = tempfile::tempdir().or_fail();
        for (name, yaml) in files {
            std::fs::write(folder.path().join(name), yaml).or_fail();
        }
        let provider = FileProvider::builder().dir(folder.path()).build().or_fail();
        let settings = |chosen: &mut FleetSettings| {
            // Several contexts of these files are of one API server.
            chosen.allow_duplicates = true;
            settings(chosen);
        };
        let mut builder = Manager::builder().provider(provider).settings(settings);
        for controller in controllers {
            builder = builder.controller(controller);
        }
        let manager = builder.build().or_fail();
        let (fleet, controllers) = (manager.fleet().clone(), manager.controllers());
        Self {
            folder,
            fleet,
            controllers,
            running: Background::start(|stop| manager.run_until(stop)),
        }
    }

    /// Replaces a file in one step, as editors and mounted volumes do.
    pub(crate) fn write(&self, name: &str, yaml: &str) {
        let torn = self.folder.path().join(".torn");
        std::fs::write(&torn, yaml).or_fail();
        std::fs::rename(torn, self.path(name)).or_fail();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    pub(crate) async fn stop(self) {
        self.running.stop().await.or_fail();
    }
}

/// A kubeconfig with these contexts.
pub(crate) fn kubeconfig<'a>(
    contexts: impl IntoIterator<Item = (&'a str, String, String, Credentials)>,
) -> String {
    let mut builder = KubeconfigBuilder::new();
    for (name, server, ca, credentials) in contexts {
        builder = builder.context(name, server, ca, credentials);
    }
    builder.to_yaml()
}

/// A context with the rights of an administrator of a control plane.
pub(crate) fn admin<'a>(name: &'a str, plane: &ControlPlane) -> (&'a str, String, String, Credentials) {
    (name, plane.url(), plane.ca_pem(), plane.admin_credentials())
}

pub(crate) fn config_maps(plane: &ControlPlane) -> kube::Api<ConfigMap> {
    kube::Api::namespaced(plane.client(), "default")
}

pub(crate) async fn create(plane: &ControlPlane, name: &str) {
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    config_maps(plane)
        .create(&PostParams::default(), &map)
        .await
        .or_fail();
}

pub(crate) async fn touch(plane: &ControlPlane, name: &str, value: &str) {
    let patch = Patch::Merge(serde_json::json!({"data": {"value": value}}));
    config_maps(plane)
        .patch(name, &PatchParams::default(), &patch)
        .await
        .or_fail();
}

pub(crate) async fn delete(plane: &ControlPlane, name: &str) {
    config_maps(plane)
        .delete(name, &DeleteParams::default())
        .await
        .or_fail();
}

pub(crate) fn may_read_config_maps() -> Vec<PolicyRule> {
    vec![
        policy_rule([""], ["configmaps"], ["get", "list", "watch"]),
        policy_rule([""], ["namespaces"], ["get"]),
    ]
}
