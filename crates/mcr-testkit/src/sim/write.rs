use std::sync::Arc;

use serde_json::{Value, json};

use super::cause::Cause;
use super::error::SimError;
use super::kinds::{Kind, NAMESPACES};
use super::object::{Object, metadata_mut, text};
use super::patch::Patch;
use super::state::ClusterState;
use super::store::Store;
use super::{apply, clock, crd, defaults, managed};

/// The operation on an object.
#[derive(Debug)]
pub enum Verb {
    Create(Value),
    Update(Value),
    Patch(Patch),
    Apply {
        object: Value,
        force: bool,
    },
    /// The deletion, with its `DeleteOptions`.
    Delete(Value),
}

/// The target and the options of a write, and its field manager.
#[derive(Debug)]
pub struct Write<'a> {
    pub cluster: &'a ClusterState,
    pub kind: &'a Arc<Kind>,
    pub namespace: &'a str,
    pub name: &'a str,
    /// `status`, `finalize`, or empty for the object itself.
    pub subresource: &'a str,
    pub manager: String,
    pub dry_run: bool,
}

/// The result of a write.
#[derive(Debug)]
pub struct Done {
    pub object: Arc<Object>,
    pub created: bool,
    /// Whether a deletion has removed the object. `false` if it has only set `deletionTimestamp`.
    pub removed: bool,
}

impl Done {
    pub fn with(object: Arc<Object>) -> Self {
        Self {
            object,
            created: false,
            removed: false,
        }
    }
}

impl<'a> Write<'a> {
    pub fn new(
        cluster: &'a ClusterState,
        kind: &'a Arc<Kind>,
        namespace: &'a str,
        name: &'a str,
        manager: &str,
    ) -> Self {
        Self {
            cluster,
            kind,
            namespace,
            name,
            subresource: "",
            manager: manager.to_owned(),
            dry_run: false,
        }
    }

    pub fn run(&self, verb: Verb) -> Result<Done, SimError> {
        let mut store = self.cluster.store();
        self.run_in(&mut store, verb)
    }

    pub fn run_in(&self, store: &mut Store, verb: Verb) -> Result<Done, SimError> {
        match verb {
            Verb::Create(object) => self.create(store, object),
            Verb::Update(object) => self.update(store, object),
            Verb::Patch(patch) => self.patch(store, &patch),
            Verb::Apply { object, force } => self.apply(store, object, force),
            Verb::Delete(options) => self.delete(store, &options),
        }
    }

    pub fn live(&self, store: &Store) -> Result<Arc<Object>, SimError> {
        let key = self.cluster.key(self.namespace, self.name);
        let live = store.get(&self.kind.table, &key).cloned();
        live.ok_or_else(|| SimError::not_found(self.kind, self.name))
    }

    pub fn invalid(&self, name: &str, causes: &[Cause]) -> SimError {
        SimError::invalid(&self.kind.group, &self.kind.kind, name, causes)
    }

    fn create(&self, store: &mut Store, mut object: Value) -> Result<Done, SimError> {
        self.check_namespace(&mut object)?;
        if !text(&object, "resourceVersion").is_empty() {
            return Err(SimError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.namespace_is_open(store, &object)?;
        let now = clock::now();
        let uid = self.cluster.uid();
        let metadata = metadata_mut(&mut object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            metadata.remove(field);
        }
        let manages = metadata.remove("managedFields");
        metadata.insert("uid".to_owned(), uid.into());
        metadata.insert("creationTimestamp".to_owned(), now.clone().into());
        if self.kind.has_generation {
            metadata.insert("generation".to_owned(), 1.into());
        }
        let prefix = text(&object, "generateName").to_owned();
        let generated = text(&object, "name").is_empty() && !prefix.is_empty();
        if generated {
            let mut name = format!("{prefix}{}", self.cluster.suffix());
            while store
                .get(&self.kind.table, &self.cluster.key(self.namespace, &name))
                .is_some()
            {
                name = format!("{prefix}{}", self.cluster.suffix());
            }
            metadata_mut(&mut object).insert("name".to_owned(), name.into());
        }
        let name = text(&object, "name").to_owned();
        if self.kind.has_status
            && let Some(map) = object.as_object_mut()
        {
            map.remove("status");
        }
        defaults::on_create(self.kind, &mut object);
        self.prune_and_fill_in(&mut object);
        let mut causes = defaults::check_metadata(self.kind, &object);
        causes.extend(self.check(&object));
        if !causes.is_empty() {
            return Err(self.invalid(&name, &causes));
        }
        if self.kind.is_crds() {
            crd::complete(&mut object, &now);
        }
        match manages {
            // This create is part of a server-side apply, which has computed `managedFields` already.
            Some(manages) if self.manager.is_empty() => {
                metadata_mut(&mut object).insert("managedFields".to_owned(), manages);
            }
            _ if self.cluster.settings.managed_fields => {
                let nobodys = defaults::untracked(self.kind, &object);
                managed::track(self.kind, self.subresource, &self.manager, &nobodys, &mut object);
            }
            _ => {}
        }
        self.cluster.mark(&mut object);
        let key = self.cluster.key(self.namespace, &name);
        if let Some(there) = store.get(&self.kind.table, &key) {
            let leaving = !text(&there.value(), "deletionTimestamp").is_empty();
            return Err(SimError::already_exists(self.kind, &name, leaving));
        }
        self.cluster
            .admit(self.kind, self.subresource, None, &mut object)?;
        let object = self.commit(store, object)?;
        Ok(Done {
            created: true,
            ..Done::with(object)
        })
    }

    fn check_namespace(&self, object: &mut Value) -> Result<(), SimError> {
        let given = text(object, "namespace");
        if !given.is_empty() && given != self.namespace {
            return Err(SimError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !self.namespace.is_empty() {
            metadata_mut(object).insert("namespace".to_owned(), self.namespace.into());
        }
        Ok(())
    }

    fn namespace_is_open(&self, store: &Store, object: &Value) -> Result<(), SimError> {
        if !self.kind.namespaced {
            return Ok(());
        }
        let namespace = self.namespace;
        let found = store
            .get(NAMESPACES, &self.cluster.key("", namespace))
            .map(|object| object.value());
        let Some(found) = found else {
            let message = format!("namespaces \"{namespace}\" not found");
            let details = json!({ "name": namespace, "kind": "namespaces" });
            return Err(SimError::new(404, "NotFound", message).with(details));
        };
        if text(&found, "deletionTimestamp").is_empty() {
            return Ok(());
        }
        let name = text(object, "name");
        let message = format!(
            "{} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            self.kind.quoted(name)
        );
        let mut details = self.kind.details(name);
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Err(SimError::new(403, "Forbidden", message).with(details))
    }

    fn update(&self, store: &mut Store, mut object: Value) -> Result<Done, SimError> {
        let given = text(&object, "name");
        if given.is_empty() {
            return Err(SimError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.name
            )));
        }
        self.same_name(given)?;
        self.check_namespace(&mut object)?;
        match self.live(store) {
            Ok(live) => self.replace(store, &live, object, false),
            Err(_) if self.kind.create_on_update && self.subresource.is_empty() => self.create(store, object),
            Err(error) => Err(error),
        }
    }

    fn same_name(&self, given: &str) -> Result<(), SimError> {
        if given.is_empty() || given == self.name {
            return Ok(());
        }
        Err(SimError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({})",
            self.name
        )))
    }

    fn patch(&self, store: &mut Store, patch: &Patch) -> Result<Done, SimError> {
        let live = self.live(store)?;
        let before = live.value_as(self.kind);
        let object = patch.apply(self.kind, &before)?;
        self.same_name(text(&object, "name"))?;
        let uid = text(&object, "uid");
        if !uid.is_empty() && uid != text(&before, "uid") {
            let cause = Cause::invalid("metadata.uid", format!("{uid:?}"), "field is immutable");
            return Err(self.invalid(self.name, &[cause.clone(), cause]));
        }
        self.replace(store, &live, object, false)
    }

    fn apply(&self, store: &mut Store, mut config: Value, force: bool) -> Result<Done, SimError> {
        self.same_name(text(&config, "name"))?;
        if !config["metadata"]["managedFields"].is_null() {
            return Err(SimError::bad_request("metadata.managedFields must be nil"));
        }
        self.check_namespace(&mut config)?;
        metadata_mut(&mut config).insert("name".to_owned(), self.name.into());
        match self.live(store) {
            Ok(live) => {
                let version = text(&config, "resourceVersion").to_owned();
                let before = live.value_as(self.kind);
                let mut merged =
                    apply::apply(self.kind, self.subresource, &self.manager, &before, config, force)?;
                if !version.is_empty() {
                    metadata_mut(&mut merged).insert("resourceVersion".to_owned(), version.into());
                }
                self.replace(store, &live, merged, true)
            }
            Err(error) if !self.subresource.is_empty() => Err(error),
            Err(_) => {
                let uid = text(&config, "uid");
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(SimError::conflict(self.kind, self.name, &why));
                }
                let empty = json!({ "metadata": {} });
                let object = apply::apply(self.kind, "", &self.manager, &empty, config, force)?;
                let write = Write {
                    manager: String::new(),
                    kind: self.kind,
                    ..*self
                };
                write.create(store, object)
            }
        }
    }

    /// Removes fields that are not in the schema of the CRD, and sets defaults.
    pub fn prune_and_fill_in(&self, object: &mut Value) {
        if let Some(schema) = self.kind.schema() {
            schema.prune(object);
            schema.fill_in(object);
        }
    }

    pub fn check(&self, object: &Value) -> Vec<Cause> {
        let below = if self.subresource == "status" {
            "status"
        } else {
            ""
        };
        let causes = self.kind.schema().map(|schema| schema.check(object, below));
        causes.unwrap_or_default()
    }

    pub fn commit(&self, store: &mut Store, object: Value) -> Result<Arc<Object>, SimError> {
        let kinds = if self.kind.is_crds() {
            Some(crd::kinds(&object)?)
        } else {
            None
        };
        if self.dry_run {
            let mut object = Object::new(&self.cluster.part, object, store.version);
            object.forget_version();
            return Ok(Arc::new(object));
        }
        let object = Arc::new(Object::new(&self.cluster.part, object, store.next_version()));
        store.put(&self.kind.table, object.clone());
        if let Some(kinds) = kinds {
            store.kinds_mut(&self.cluster.part).set_crd(object.name(), kinds);
        }
        Ok(object)
    }

    pub fn remove(&self, store: &mut Store, object: &Object) {
        store.remove(&self.kind.table, &object.key);
        if !self.kind.is_crds() {
            return;
        }
        // With a CRD, its objects are deleted.
        for kind in store.kinds_mut(&self.cluster.part).remove_crd(object.name()) {
            let keys: Vec<_> = store
                .current(&kind.table, &self.cluster.prefix(""), "")
                .map(|object| object.key.clone())
                .collect();
            for key in keys {
                store.remove(&kind.table, &key);
            }
            store.wake_resource(&kind.table);
        }
    }
}
