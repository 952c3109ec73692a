use serde_json::{Value, json};

use mcr_testkit::sim::clock;

/// Sets a condition as kcp does: `Ready` first, then by name; the time changes with the status.
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
    match all.iter_mut().find(|there| there["type"] == kind) {
        Some(there) => {
            if there["status"] == status {
                condition["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = condition;
        }
        None => all.push(condition),
    }
    all.sort_by_key(|condition| {
        let kind = condition["type"].as_str().unwrap_or_default().to_owned();
        (kind != "Ready", kind)
    });
    object["status"]["conditions"] = all.into();
}

pub(super) fn ok(object: &mut Value, kinds: &[&str]) {
    for kind in kinds {
        set(object, kind, "True", None);
    }
}
