//! The database service of kcp workspaces, with a kind cluster as its service cluster. kcp is the double of `mcr-testkit`, or a real
//! one if `MCR_KCP_KUBECONFIG` names a kubeconfig of its admin.

use mcr_testkit::e2e::E2eCluster::Hub;
use serde_json::Value;

use crate::{cluster::on_kind, program::run};

/// All steps of the demo, from the first binding to the last.
#[test]
fn kcp_mongodb_serves_workspaces_from_a_kind_cluster() {
    on_kind(|e2e| async move {
        let kubeconfig = e2e.kubeconfig(Hub);
        let args = [
            "--format",
            "json",
            "--service-kubeconfig",
            kubeconfig.to_str().unwrap(),
        ];
        let output = run("kcp-mongodb-demo", args);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["summary"]["failed"], 0, "{text}");
        assert!(last["summary"]["done"].as_u64() > Some(15), "{text}");
    });
}
