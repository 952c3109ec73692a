//! The work of suite `work`: a reconciler that applies one ConfigMap for each request.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, Patch, PatchParams},
};

/// The namespace of the objects that are watched.
pub const SOURCE: &str = "work-source";
/// The field manager of the applied ConfigMaps.
pub const MANAGER: &str = "mcr-bench";
/// The field of a watched object with the number of its last write. An object is applied if this is the round of the subject, so
/// that the first pass, until the subject is synced, applies nothing.
pub const ROUND: &str = "round";
/// How many reconciles each subject runs at once.
pub const CONCURRENCY: usize = 64;

/// Whether an object is to be applied in this round.
pub fn is_due(object: &ConfigMap, round: u64) -> bool {
    let output = object.data.as_ref().and_then(|data| data.get(ROUND));
    output.is_some_and(|output| output.parse() == Ok(round))
}

/// Applies a copy of an object, server-side, as a reconciler does that distributes configuration.
///
/// # Errors
///
/// When the server does not answer, or refuses.
pub async fn apply(maps: &Api<ConfigMap>, object: &ConfigMap) -> kube::Result<()> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let copy = copy(name.clone(), object.data.clone());
    let params = PatchParams::apply(MANAGER).force();
    maps.patch(&name, &params, &Patch::Apply(copy)).await?;
    Ok(())
}

fn copy(name: String, data: Option<BTreeMap<String, String>>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name),
        ..ObjectMeta::default()
    };
    ConfigMap {
        metadata,
        data,
        ..ConfigMap::default()
    }
}

/// Whether a ConfigMap on the server is what [`apply`] makes of this object.
pub fn is_copy(found: &ConfigMap, of: &ConfigMap) -> bool {
    let managers = found.metadata.managed_fields.iter().flatten();
    let mut managers = managers.map(|by| (by.manager.as_deref(), by.operation.as_deref()));
    found.metadata.name == of.metadata.name
        && found.data == of.data
        && managers.any(|by| by == (Some(MANAGER), Some("Apply")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: serde_json::Value) -> ConfigMap {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_what_was_written_in_this_round_is_due() {
        let written = |round: &str| map(json!({ "metadata": { "name": "a" }, "data": { "round": round } }));
        assert!(is_due(&written("7"), 7));
        assert!(!is_due(&written("6"), 7) && !is_due(&written(""), 7));
        assert!(!is_due(&map(json!({ "metadata": { "name": "a" } })), 7));
    }
}
