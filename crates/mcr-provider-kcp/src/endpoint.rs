//! The bindings, or the waiting LogicalClusters, at one endpoint.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::{BoxFuture, select_all};
use mcr_core::{
    Cluster, HubEvent, HubWatch, Object, ObjectKey, ObjectMetadata, WatchError, WatchRequest, WatchSettings,
};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    binding::{Binding, RawBinding},
    config::Config,
    connections::attempted,
    labels::LabelKeys,
    layout::{CLUSTER, WithoutCluster},
    readiness::Readiness,
    slice::Api,
    stage::{RawLogicalCluster, Stage},
    url::{Export, is_cluster_id},
};

/// The watch of the bindings at one endpoint. A LogicalCluster that waits counts as a binding.
pub(crate) struct EndpointWatch {
    pub(crate) url: Arc<str>,
    pub(crate) connection: Cluster,
    provider: Arc<str>,
    /// The export or the WorkspaceType.
    export: Export,
    api: Api,
    readiness: Readiness,
    label_keys: LabelKeys,
    settings: Arc<WatchSettings>,
    /// None until the first attempt to connect has ended.
    watch: Option<BindingWatch>,
    /// The bindings with a deletion timestamp, and the LogicalClusters that no longer wait. Noted before the watch merges a
    /// deletion with the change before it.
    deleting: Arc<Mutex<HashSet<ObjectKey>>>,
    /// Whether all bindings are known that existed at the start.
    pub(crate) listed: bool,
    /// The last problem: its start, when it was noticed, and text for people.
    failing: Option<(SystemTime, Instant, String)>,
    /// Since when it is not in the slice.
    left_slice: Option<Instant>,
}

/// A binding that can't be read has an error.
type BindingWatch = HubWatch<Result<Arc<Binding>, Arc<str>>>;

/// A change of a binding.
pub(crate) enum BindingEvent {
    Applied {
        cluster: Arc<str>,
        name: Arc<str>,
        binding: Arc<Binding>,
    },
    Gone {
        cluster: Arc<str>,
        name: Arc<str>,
        /// Whether the binding had a deletion timestamp before, or the LogicalCluster has stopped to wait.
        deleted: bool,
    },
    /// The endpoint is not in the slice, and fails since a long time.
    Lost,
}

/// How long an endpoint that is not in the slice may fail. Long, because what is slow to come back is not lost, and because the
/// workspaces need time to appear at the endpoint that takes its place.
const LOST_GRACE: Duration = Duration::from_secs(300);

impl EndpointWatch {
    pub(crate) fn new(
        config: &Config,
        settings: &Arc<WatchSettings>,
        url: Arc<str>,
        connection: Cluster,
        export: Export,
    ) -> Self {
        Self {
            url,
            connection,
            provider: config.name.clone(),
            export,
            api: config.api.clone(),
            readiness: config.readiness,
            label_keys: config.label_keys.clone(),
            settings: settings.clone(),
            watch: None,
            deleting: Arc::default(),
            listed: false,
            failing: None,
            left_slice: None,
        }
    }

    /// The slice has the endpoint now, or has it no longer.
    pub(crate) fn set_in_slice(&mut self, is_in: bool) {
        if is_in {
            self.left_slice = None;
        } else {
            self.left_slice.get_or_insert_with(Instant::now);
        }
    }

    fn start(&self) -> BindingWatch {
        let stage = self.api.stage();
        let request = WatchRequest::resource(&self.api.members());
        let without_cluster = WithoutCluster::new(self.provider.clone());
        let (export, readiness, deleting) = (self.export.clone(), self.readiness, self.deleting.clone());
        let keys = self.label_keys.clone();
        let watch = HubWatch::projected_by_cluster(
            self.connection.client(),
            request,
            move |metadata| cluster_of(metadata, &without_cluster),
            move |object| {
                let binding = match stage {
                    None => read(object, &export, readiness, &keys),
                    Some(stage) => Some(read_waiting(object, &export, stage, &keys)),
                };
                if matches!(&binding, Some(Ok(binding)) if binding.deleting) {
                    deleting.lock().insert(object.key().clone());
                } else {
                    deleting.lock().remove(object.key());
                }
                binding
            },
        );
        watch
            .name(self.connection.name().clone())
            .settings(self.settings.clone())
    }

    /// Why the bindings could not be watched the last time.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.failing.as_ref().map(|(.., problem)| &**problem)
    }

    fn explain(&self, error: &WatchError) -> String {
        let WatchError::Forbidden { message } = error else {
            return error.to_string();
        };
        let right = match self.api.stage() {
            Some(stage) => format!("the verb {} on workspacetypes.tenancy.kcp.io", stage.verb()),
            None => "the resource apiexports/content".to_owned(),
        };
        format!(
            "forbidden: {message}. Grant {right} with the name {} in workspace {} to the credentials in use; a user who is no ServiceAccount \
             there needs the verb access on the nonResourceURL / as well",
            self.export.name, self.export.cluster
        )
    }

    /// The next change of a binding; none for any other event. Cancel safe.
    async fn next(&mut self) -> Option<BindingEvent> {
        if self.watch.is_none() {
            attempted(&self.connection).await;
            self.watch = Some(self.start());
        }
        match self.watch.as_mut()?.next().await {
            // It no longer waits, and kcp shows it for some more time.
            HubEvent::Applied(key, Ok(binding)) if binding.deleting && self.api.stage().is_some() => {
                Some(BindingEvent::Gone {
                    cluster: key.namespace?,
                    name: key.name,
                    deleted: true,
                })
            }
            HubEvent::Applied(key, Ok(binding)) => Some(BindingEvent::Applied {
                cluster: key.namespace?,
                name: key.name,
                binding,
            }),
            // What is known of the binding stays.
            HubEvent::Applied(key, Err(error)) => {
                tracing::warn!(
                    provider = &*self.provider, endpoint = &*self.url, cluster = key.namespace.as_deref(),
                    binding = &*key.name, %error, "an object of kind {} can't be read; its workspace stays as it is",
                    self.api.watched()
                );
                None
            }
            HubEvent::Deleted(key) => Some(BindingEvent::Gone {
                deleted: self.deleting.lock().remove(&key),
                cluster: key.namespace?,
                name: key.name,
            }),
            HubEvent::Synced => {
                self.listed = true;
                None
            }
            HubEvent::Failing(problem) => {
                // Every attempt reports the problem. It is logged once.
                if self
                    .failing
                    .as_ref()
                    .is_none_or(|(since, ..)| *since != problem.since)
                {
                    let text = self.explain(&problem.error);
                    tracing::warn!(
                        provider = &*self.provider,
                        endpoint = &*self.url,
                        error = text,
                        "the {}s of an endpoint can't be watched at the moment; its workspaces stay as they are",
                        self.api.watched()
                    );
                    self.failing = Some((problem.since, Instant::now(), text));
                }
                let noticed = self.failing.as_ref().map(|(_, noticed, _)| *noticed);
                let lost = noticed.max(self.left_slice).filter(|_| self.left_slice.is_some());
                lost.is_some_and(|since| since.elapsed() >= LOST_GRACE)
                    .then_some(BindingEvent::Lost)
            }
            _ => None,
        }
    }
}

/// Waits for the next event of any endpoint. Cancel safe.
pub(crate) async fn next_event(
    endpoints: &mut BTreeMap<Arc<str>, EndpointWatch>,
) -> (Arc<str>, Option<BindingEvent>) {
    if endpoints.is_empty() {
        return std::future::pending().await;
    }
    let events = endpoints.iter_mut().map(|(url, endpoint)| -> BoxFuture<'_, _> {
        Box::pin(async { (url.clone(), endpoint.next().await) })
    });
    select_all(events).await.0
}

/// The id of an object's logical cluster. None if there is none, or if it can't be part of a path.
fn cluster_of<'o>(metadata: &ObjectMetadata<'o>, without_cluster: &WithoutCluster) -> Option<Cow<'o, str>> {
    let cluster = metadata.annotation(CLUSTER).filter(|id| is_cluster_id(id));
    if cluster.is_none() {
        without_cluster.log(metadata);
    }
    cluster
}

fn read(
    object: &Object,
    export: &Export,
    readiness: Readiness,
    keys: &LabelKeys,
) -> Option<Result<Arc<Binding>, Arc<str>>> {
    match object.decode::<RawBinding>() {
        Ok(raw) => Binding::of(&raw, export, readiness, keys).map(|binding| Ok(Arc::new(binding))),
        Err(error) => Some(Err(error.to_string().into())),
    }
}

fn read_waiting(
    object: &Object,
    of_type: &Export,
    stage: Stage,
    keys: &LabelKeys,
) -> Result<Arc<Binding>, Arc<str>> {
    let raw: RawLogicalCluster = object.decode().map_err(|error| error.to_string())?;
    let name = format!("{}:{}", of_type.cluster, of_type.name);
    Ok(Arc::new(Binding::of_logical_cluster(
        &raw,
        stage.waits(&raw, &name),
        keys,
    )))
}
