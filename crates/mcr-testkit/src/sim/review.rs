use serde_json::{Value, json};

use super::auth::{Attributes, SimUser};
use super::error::SimError;
use super::kinds::Kind;
use super::managed;
use super::state::ClusterState;

/// Answers a kind that only answers a question, and is not stored.
pub(super) fn answer(
    cluster: &ClusterState,
    kind: &Kind,
    user: &SimUser,
    manager: &str,
    mut object: Value,
) -> Result<Value, SimError> {
    object["kind"] = (*kind.kind).into();
    object["apiVersion"] = kind.api_version().into();
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    if kind.group == "authentication.k8s.io" {
        object["metadata"]["creationTimestamp"] = super::clock::now().into();
    }
    if kind.group == "authorization.k8s.io" {
        managed::track(kind, "", manager, &Value::Null, &mut object);
    }
    match &*kind.plural {
        "selfsubjectreviews" => {
            let info = json!({ "username": user.name, "groups": user.all_groups() });
            object["status"] = json!({ "userInfo": info });
        }
        "selfsubjectaccessreviews" => {
            let resource = &object["spec"]["resourceAttributes"];
            let word = |field: &str| resource[field].as_str().unwrap_or_default();
            let path = &object["spec"]["nonResourceAttributes"];
            let allowed = user.may(&Attributes {
                verb: path["verb"].as_str().unwrap_or(word("verb")),
                group: word("group"),
                resource: word("resource"),
                subresource: word("subresource"),
                namespace: word("namespace"),
                name: word("name"),
                path: path["path"].as_str(),
            });
            object["status"] = json!({ "allowed": allowed });
        }
        "tokenreviews" => {
            let token = object["spec"]["token"].as_str().unwrap_or_default();
            let header = format!("Bearer {token}");
            let found = cluster.users().authenticate(Some(&header), None);
            object["status"] = match found {
                Ok(user) => json!({
                    "authenticated": true,
                    "user": { "username": user.name, "groups": user.all_groups() },
                }),
                Err(_) => json!({ "error": "invalid bearer token", "user": {} }),
            };
        }
        _ => return Err(SimError::method_not_allowed()),
    }
    Ok(object)
}
