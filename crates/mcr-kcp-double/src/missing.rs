use serde_json::json;

use super::kinds::WORKSPACES;
use mcr_testkit::sim::SimError;

/// The 404 for a path that leads to no workspace.
pub(super) fn no_workspace(name: &str) -> SimError {
    let message = format!("{WORKSPACES} {name:?} not found");
    let details = json!({ "name": name, "group": "tenancy.kcp.io", "kind": "workspaces" });
    SimError::new(404, "NotFound", message).with(details)
}
