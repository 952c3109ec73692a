//! What an object has from its server and from controllers, and must not have in another cluster.

use kube::core::ApiResource;
use serde_json::Value;

/// Whether a kind belongs to its cluster as a whole: other clusters refuse its objects, or give them another meaning.
pub(crate) fn is_of_its_cluster(kind: &ApiResource) -> bool {
    matches!(
        (&*kind.group, &*kind.kind),
        ("", "Pod" | "Node" | "Event") | ("events.k8s.io", "Event") | ("coordination.k8s.io", "Lease")
    )
}

/// Whether objects of the kind have fields that [`strip`] removes or refuses.
pub(crate) fn has_own_fields(kind: &ApiResource) -> bool {
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

/// Removes the fields that the server or a controller of a cluster chooses. The error has the reason why an object can't be copied.
pub(crate) fn strip(kind: &ApiResource, object: &mut Value) -> Result<(), &'static str> {
    match (&*kind.group, &*kind.kind) {
        ("", "Service") => {
            // A Service without an address has none by the word of its author.
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
