use serde_json::{Value, json};

use mcr_testkit::sim::clock;

/// Sets a condition as kcp does. `Ready` comes first, the others are sorted by name. The time changes only with the
/// status.
pub(super) fn set(object: &mut Value, kind: &str, status: &str, why: Option<(&str, &str)>) {
    let mut condition = json!({ "type": kind, "status": status, "lastTransitionTime": clock::now() });
    if let Some((reason, message)) = why {
        condition["severity"] = "Error".into();
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    let mut all = object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    match all.iter_mut().find(|known| known["type"] == kind) {
        Some(known) => {
            if known["status"] == status {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => all.push(condition),
    }
    all.sort_by_key(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default().to_owned();
        (kind != "Ready", kind)
    });
    object["status"]["conditions"] = all.into();
}

/// Sets conditions to `True`.
pub(super) fn ok(object: &mut Value, kinds: &[&str]) {
    for kind in kinds {
        set(object, kind, "True", None);
    }
}
