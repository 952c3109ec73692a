use serde_json::{Value, json};

use super::kinds::Kind;
use super::schema::ListKind;

/// The merge strategy of a field: how lists and maps in it are merged. Custom resources declare the strategy in their
/// schema. For built-in kinds, common lists are recognised by name.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeStrategy<'a> {
    kind: &'a Kind,
    /// The schema of this value; null if there is none.
    schema: &'a Value,
    /// The name of the field that contains this value.
    field: &'a str,
    /// The name of the parent field.
    parent: &'a str,
    item: bool,
}

static NONE: Value = Value::Null;

impl<'a> MergeStrategy<'a> {
    pub(super) fn root(kind: &'a Kind) -> Self {
        Self {
            kind,
            schema: kind.schema().map_or(&NONE, |schema| schema.root()),
            field: "",
            parent: "",
            item: false,
        }
    }

    pub(super) fn field(self, name: &'a str) -> Self {
        let known = &self.schema["properties"][name];
        let schema = if known.is_null() {
            &self.schema["additionalProperties"]
        } else {
            known
        };
        Self {
            schema,
            field: name,
            parent: self.field,
            item: false,
            ..self
        }
    }

    pub(super) fn item(self) -> Self {
        Self {
            schema: &self.schema["items"],
            item: true,
            ..self
        }
    }

    pub(super) fn is_atomic_map(self) -> bool {
        // An owner reference is merged as a whole.
        if self.item && self.field == "ownerReferences" {
            return true;
        }
        if self.kind.custom.is_some() {
            return self.schema["x-kubernetes-map-type"] == "atomic";
        }
        if self.item && matches!(self.field, "secrets" | "imagePullSecrets") {
            return true;
        }
        matches!(
            self.field,
            "labelSelector"
                | "namespaceSelector"
                | "podSelector"
                | "nodeSelector"
                | "valueFrom"
                | "resourceRef"
        ) || (self.field == "selector" && &*self.kind.resource != "services")
    }

    pub(super) fn list(self) -> ListKind {
        let keys = |keys: &[&str]| ListKind::Map(keys.iter().map(|key| (*key).to_owned()).collect());
        match self.field {
            "ownerReferences" => return keys(&["uid"]),
            "finalizers" => return ListKind::Set,
            _ => {}
        }
        if self.kind.custom.is_some() {
            return match self.schema["x-kubernetes-list-type"].as_str() {
                Some("set") => ListKind::Set,
                Some("map") => {
                    let words = self.schema["x-kubernetes-list-map-keys"].as_array();
                    let words = words.into_iter().flatten().filter_map(Value::as_str);
                    ListKind::Map(words.map(str::to_owned).collect())
                }
                _ => ListKind::Atomic,
            };
        }
        match (self.parent, self.field) {
            ("", "imagePullSecrets") => ListKind::Atomic,
            (_, "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env") => {
                keys(&["name"])
            }
            (_, "imagePullSecrets" | "secrets" | "resourceClaims") => keys(&["name"]),
            (_, "volumeMounts") => keys(&["mountPath"]),
            (_, "volumeDevices") => keys(&["devicePath"]),
            (_, "conditions") => keys(&["type"]),
            (_, "hostAliases") => keys(&["ip"]),
            (_, "topologySpreadConstraints") => keys(&["topologyKey", "whenUnsatisfiable"]),
            ("containers" | "initContainers", "ports") => keys(&["containerPort", "protocol"]),
            ("spec", "ports") => keys(&["port", "protocol"]),
            ("webhooks", _) => ListKind::Atomic,
            (_, "webhooks") => keys(&["name"]),
            _ => ListKind::Atomic,
        }
    }
}

/// The key of an item in a set of fields. `None` if the list is replaced as a whole.
pub(super) fn item_key(list: &ListKind, item: &Value) -> Option<String> {
    match list {
        ListKind::Atomic => None,
        ListKind::Set => Some(format!("v:{item}")),
        ListKind::Map(keys) => {
            let mut named = json!({});
            for key in keys {
                match item.get(key) {
                    Some(value) => named[key] = value.clone(),
                    // The only key that has a default in built-in kinds.
                    None if key == "protocol" => named[key] = "TCP".into(),
                    None => {}
                }
            }
            Some(format!("k:{named}"))
        }
    }
}
