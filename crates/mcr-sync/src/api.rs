//! The requests to API servers.

use std::sync::Arc;

use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    core::{ApiResource, DynamicObject, Status},
};
use mcr::{Cluster, ObjectKey, ObjectPath, RequestKey};
use serde_json::{Map, Value, json};

use crate::{
    desired::{self, Write},
    error::SyncError,
    functions::decode,
    name,
    silent::{Answering, SOON},
    values::without_quoted_values,
    writes::Namespaces,
};

/// One object in one cluster.
pub(crate) struct Remote {
    pub(crate) key: RequestKey,
    /// The name as a segment of a path. The name of an RBAC object may contain `?`, and kube does not escape names.
    segment: String,
    resource: ApiResource,
    api: Api<DynamicObject>,
    cluster: Cluster,
    manager: Option<String>,
    /// Whether objects that are read keep their `managedFields`.
    keeps_managed_fields: bool,
    answering: Option<Arc<Answering>>,
}

#[derive(Clone, Copy, PartialEq)]
enum RequestKind {
    Read,
    Write,
}

/// The outcome of a write that names the version that was read.
pub(crate) enum Written {
    Done(Arc<DynamicObject>),
    /// The object has changed since it was read. Read it again.
    Outdated,
}

impl Remote {
    pub(crate) fn new(
        cluster: &Cluster,
        resource: &ApiResource,
        object: &ObjectKey,
    ) -> Result<Self, SyncError> {
        let client = cluster.client();
        let key = RequestKey::new(cluster.name().clone(), object.clone());
        let path = ObjectPath {
            group: &resource.group,
            version: &resource.version,
            plural: &resource.plural,
            namespace: object.namespace.as_deref(),
            name: &object.name,
        };
        let path = path.path().map_err(|error| SyncError::Api {
            verb: "name",
            key: key.clone(),
            source: Box::new(kube::Error::Service(error.into())),
        })?;
        let mut segments = path.rsplit('/');
        let segment = segments.next().unwrap_or_default().to_owned();
        let namespace = segments.nth(1).filter(|_| object.namespace.is_some());
        Ok(Self {
            key,
            segment,
            resource: resource.clone(),
            api: match namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, resource),
                None => Api::all_with(client, resource),
            },
            cluster: cluster.clone(),
            manager: None,
            keeps_managed_fields: false,
            answering: None,
        })
    }

    /// Limits how long requests wait for the cluster.
    pub(crate) fn bounded_by(mut self, answering: Arc<Answering>) -> Self {
        self.answering = Some(answering);
        self
    }

    /// Sends a request, and waits for the answer as long as [`Answering`] allows.
    async fn send<A>(
        &self,
        kind: RequestKind,
        request: impl Future<Output = kube::Result<A>>,
    ) -> Result<kube::Result<A>, SyncError> {
        let Some(answering) = &self.answering else {
            return Ok(request.await);
        };
        let is_answer = |answer: &_| matches!(answer, Ok(_) | Err(kube::Error::Api(_)));
        let answer = answering
            .ask(SOON, kind == RequestKind::Write, is_answer, request)
            .await;
        answer.ok_or_else(|| SyncError::NoAnswer(self.key.clone()))
    }

    /// Sets the field manager of writes. Server-side apply also reads `managedFields`.
    pub(crate) fn managed_by(mut self, manager: String, keeps_managed_fields: bool) -> Self {
        self.manager = Some(manager);
        self.keeps_managed_fields = keeps_managed_fields;
        self
    }

    fn name(&self) -> &str {
        &self.key.object.name
    }

    /// The object without `managedFields`, as stores keep it. The `managedFields` are as long as the rest of the
    /// object, and merge patches do not need them.
    fn without_managed_fields(&self, mut object: DynamicObject) -> Arc<DynamicObject> {
        if !self.keeps_managed_fields {
            object.metadata.managed_fields = None;
        }
        Arc::new(object)
    }

    fn failed(&self, verb: &'static str) -> impl FnOnce(kube::Error) -> SyncError {
        failed(verb, self.key.clone())
    }

    /// Reads the object from its server. `None` if the server answers 404 for the name of the object. A 404 for the
    /// kind, or one from a proxy, proves nothing about the object.
    pub(crate) async fn get(&self) -> Result<Option<Arc<DynamicObject>>, SyncError> {
        match self.send(RequestKind::Read, self.api.get(&self.segment)).await? {
            Ok(object) => Ok(Some(self.without_managed_fields(object))),
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                if names(&status, self.name()) {
                    Ok(None)
                } else {
                    Err(SyncError::NotServed(self.key.clone()))
                }
            }
            Err(error) => Err(self.failed("read")(error)),
        }
    }

    /// As [`get`](Self::get), but `None` also if the object does not match the label selector.
    pub(crate) async fn get_labelled(&self, labels: &str) -> Result<Option<Arc<DynamicObject>>, SyncError> {
        let params = ListParams::default()
            .labels(labels)
            .fields(&format!("metadata.name={}", self.name()));
        let listed = self.send(RequestKind::Read, self.api.list(&params)).await?;
        let found = listed.map_err(self.failed("read"))?.items.pop();
        Ok(found.map(|object| self.without_managed_fields(object)))
    }

    /// Creates the object. With `namespaces`, also creates the object's namespace if it is missing and was not created
    /// recently.
    pub(crate) async fn create(
        &self,
        object: Value,
        namespaces: Option<&Namespaces>,
    ) -> Result<Written, SyncError> {
        let object = self.with_kind_and_name(object)?;
        let post = PostParams {
            field_manager: self.manager.clone(),
            ..PostParams::default()
        };
        let mut answer = self
            .send(RequestKind::Write, self.api.create(&post, &object))
            .await?;
        if let (Err(kube::Error::Api(status)), Some(namespace), Some(namespaces)) =
            (&answer, &self.key.object.namespace, namespaces)
            && status.is_not_found()
            && names(status, namespace)
        {
            if namespaces.may_create(&self.key.cluster, namespace) {
                self.create_namespace(namespace).await?;
                namespaces.note(&self.key.cluster, namespace);
            }
            // Sent again even if another reconcile has created the namespace meanwhile.
            answer = self
                .send(RequestKind::Write, self.api.create(&post, &object))
                .await?;
        }
        match answer {
            Ok(object) => Ok(Written::Done(self.without_managed_fields(object))),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Written::Outdated),
            Err(error) => Err(self.failed("create")(error)),
        }
    }

    /// The object with its kind and its name.
    fn with_kind_and_name(&self, mut object: Value) -> Result<DynamicObject, SyncError> {
        object["apiVersion"] = self.resource.api_version.clone().into();
        object["kind"] = self.resource.kind.clone().into();
        object["metadata"]["name"] = self.name().into();
        if let Some(namespace) = &self.key.object.namespace {
            object["metadata"]["namespace"] = (&**namespace).into();
        }
        decode("projection", object)
    }

    async fn create_namespace(&self, name: &str) -> Result<(), SyncError> {
        let resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("", "v1", "Namespace"));
        let namespaces: Api<DynamicObject> = Api::all_with(self.cluster.client(), &resource);
        let object = DynamicObject::new(name, &resource);
        let post = PostParams::default();
        match self
            .send(RequestKind::Write, namespaces.create(&post, &object))
            .await?
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => {
                let key = RequestKey::new(self.key.cluster.clone(), ObjectKey::cluster_scoped(name));
                Err(failed("create", key)(error))
            }
        }
    }

    /// Asks the server, by a dry run, whether it would create this object if the name were free. Writes nothing.
    pub(crate) async fn accepts(&self, object: Value) -> Result<bool, SyncError> {
        let post = PostParams {
            dry_run: true,
            field_manager: self.manager.clone(),
        };
        let answer = self
            .send(
                RequestKind::Write,
                self.api.create(&post, &self.with_kind_and_name(object)?),
            )
            .await?;
        // The server checks whether the name is taken after all other checks.
        Ok(matches!(answer, Err(kube::Error::Api(status)) if status.is_already_exists()))
    }

    /// Sends a merge patch that names the version which was read.
    pub(crate) async fn patch(&self, patch: Value) -> Result<Written, SyncError> {
        self.write(Write::Merge(patch)).await
    }

    /// Sends a write that names the version which was read.
    pub(crate) async fn write(&self, write: Write) -> Result<Written, SyncError> {
        let mut params = PatchParams {
            field_manager: self.manager.clone(),
            ..PatchParams::default()
        };
        let answer = match write {
            Write::Merge(patch) => {
                let patch = Patch::Merge(patch);
                self.send(RequestKind::Write, self.api.patch(&self.segment, &params, &patch))
                    .await?
            }
            Write::Apply { object, force } => {
                params.force = force;
                let object = self.with_kind_and_name(object)?;
                let patch = Patch::Apply(object);
                self.send(RequestKind::Write, self.api.patch(&self.segment, &params, &patch))
                    .await?
            }
        };
        let answer = answer.map_err(without_quoted_values);
        if let Err(kube::Error::Api(status)) = &answer
            && let Some(fields) = desired::conflicts(status)
        {
            let key = self.key.clone();
            return Err(SyncError::Conflict { key, fields });
        }
        self.written("update", answer)
    }

    /// Sends a merge patch of the status.
    pub(crate) async fn patch_status(&self, patch: Value) -> Result<Written, SyncError> {
        let answer = self
            .api
            .patch_status(&self.segment, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        match answer {
            Err(kube::Error::Api(status)) if status.is_not_found() && self.get().await?.is_some() => {
                Err(SyncError::NoStatus(self.key.clone()))
            }
            answer => self.written("update the status of", answer),
        }
    }

    fn written(&self, verb: &'static str, answer: kube::Result<DynamicObject>) -> Result<Written, SyncError> {
        match answer {
            Ok(object) => Ok(Written::Done(self.without_managed_fields(object))),
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
                Ok(Written::Outdated)
            }
            Err(error) => Err(self.failed(verb)(error)),
        }
    }

    /// Deletes the object if it is still in the state that was read. Returns whether the server has deleted it.
    pub(crate) async fn delete(&self, read: &DynamicObject) -> Result<bool, SyncError> {
        let only_this = Preconditions {
            uid: read.metadata.uid.clone(),
            resource_version: read.metadata.resource_version.clone(),
        };
        let delete = DeleteParams::default().preconditions(only_this);
        match self
            .send(RequestKind::Write, self.api.delete(&self.segment, &delete))
            .await?
        {
            Ok(_) => Ok(true),
            // The object has changed or is gone. The next read shows which.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(false),
            Err(error) => Err(self.failed("delete")(error)),
        }
    }
}

fn failed(verb: &'static str, key: RequestKey) -> impl FnOnce(kube::Error) -> SyncError {
    move |source| {
        let source = Box::new(without_quoted_values(source));
        match &*source {
            kube::Error::Api(status) if is_too_large(status) => SyncError::TooLarge { key, source },
            _ => SyncError::Api { verb, key, source },
        }
    }
}

/// Lists objects of a kind, in one namespace or in all.
pub(crate) async fn list(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
    labels: Option<&str>,
) -> Result<Vec<Arc<DynamicObject>>, SyncError> {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, resource),
        None => Api::all_with(cluster.client(), resource),
    };
    let params = ListParams {
        label_selector: labels.map(str::to_owned),
        ..ListParams::default()
    };
    match api.list(&params).await {
        Ok(list) => Ok(list.items.into_iter().map(Arc::new).collect()),
        Err(error) => {
            let object = name::key(namespace, resource.plural.as_str());
            Err(failed("list", RequestKey::new(cluster.name().clone(), object))(
                error,
            ))
        }
    }
}

/// Whether the error is about the object of this name.
fn names(status: &Status, name: &str) -> bool {
    let details = status.details.as_ref();
    details.is_some_and(|details| details.name == name)
}

/// Whether the server refused an object as too large. There are three limits: of a request (413), of the contents of
/// some kinds (422 with this cause), and of etcd (500).
fn is_too_large(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 413
        || causes.any(|cause| cause.reason == "FieldValueTooLong")
        || status.message.contains("etcdserver: request is too large")
}

/// An object as JSON. The metadata of a dynamic object always serialises.
pub(crate) fn value(object: &DynamicObject) -> Value {
    // The derived `Serialize` is not used, because it copies each field of a flattened object twice. This function runs
    // at every observation.
    let mut all = match &object.data {
        Value::Object(fields) => fields.clone(),
        _ => Map::new(),
    };
    let metadata = serde_json::to_value(&object.metadata);
    all.insert("metadata".to_owned(), metadata.unwrap_or_else(|_| json!({})));
    if let Some(types) = &object.types {
        all.insert("apiVersion".to_owned(), types.api_version.clone().into());
        all.insert("kind".to_owned(), types.kind.clone().into());
    }
    Value::Object(all)
}
