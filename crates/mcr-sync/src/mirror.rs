//! What servers and controllers add to an object, and what must not be copied to another cluster.

use kube::core::ApiResource;
use serde_json::Value;

/// Whether a kind belongs to its cluster as a whole: another cluster would refuse its objects, or give them another
/// meaning.
pub(crate) fn is_cluster_specific(kind: &ApiResource) -> bool {
    matches!(
        (&*kind.group, &*kind.kind),
        ("", "Pod" | "Node" | "Event") | ("events.k8s.io", "Event") | ("coordination.k8s.io", "Lease")
    )
}

/// Whether [`strip`] removes fields from objects of the kind, or refuses them.
pub(crate) fn has_strip_rules(kind: &ApiResource) -> bool {
    matches!(
        (&*kind.group, &*kind.kind),
        (
            "",
            "Service"
                | "PersistentVolumeClaim"
                | "PersistentVolume"
                | "ServiceAccount"
                | "Namespace"
                | "Secret"
        ) | ("batch", "Job")
    )
}

fn remove(object: &mut Value, at: &str, fields: &[&str]) {
    if let Some(object) = object.pointer_mut(at).and_then(Value::as_object_mut) {
        object.retain(|field, _| !fields.contains(&&**field));
    }
}

/// Removes the fields that the server or a controller of a cluster chooses. The error is the reason why an object
/// can't be copied.
pub(crate) fn strip(kind: &ApiResource, object: &mut Value) -> Result<(), &'static str> {
    match (&*kind.group, &*kind.kind) {
        ("", "Service") => {
            // `None` is a choice of the author: a Service without an address. Any other value is an address that the
            // cluster has assigned.
            if object["spec"]["clusterIP"] != "None" {
                remove(object, "/spec", &["clusterIP", "clusterIPs"]);
            }
            remove(object, "/spec", &["healthCheckNodePort", "ipFamilies"]);
            let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten() {
                remove(port, "", &["nodePort"]);
            }
        }
        ("batch", "Job") if object["spec"]["manualSelector"] != true => {
            remove(object, "/spec", &["selector"]);
            for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
                let controller = ["controller-uid", "batch.kubernetes.io/controller-uid"];
                remove(object, labels, &controller);
                remove(object, labels, &["job-name", "batch.kubernetes.io/job-name"]);
            }
        }
        ("", "PersistentVolumeClaim") => remove(object, "/spec", &["volumeName"]),
        ("", "PersistentVolume") => remove(object, "/spec", &["claimRef"]),
        ("", "ServiceAccount") => remove(object, "", &["secrets"]),
        ("", "Namespace") => remove(object, "/spec", &["finalizers"]),
        ("", "Secret") if object["type"] == "kubernetes.io/service-account-token" => {
            return Err("a token of a ServiceAccount is of use in its own cluster only");
        }
        _ => {}
    }
    Ok(())
}
