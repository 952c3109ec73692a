//! Promise 15 in a fleet: hostile bytes never panic and never leak a secret into Debug, logs or errors.

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use mcr::{Action, ClusterName, ClusterSpec, Controller, Request, core::Access, core::Trust};
use mcr_testkit::{
    faults::{Fault, FaultProxy},
    sim::{SimCluster, SimUser},
};
use serde_json::json;

use crate::{
    fleet::{OrFail, PATIENCE, Running, Seen, alone, hasty, spec},
    process::in_a_process_of_its_own,
};

/// In the Secrets, as it is sent; in tokens; in kubeconfigs that are not right.
const IN_SECRETS: &str = "Y2FuYXJ5LW9mLWEtc2VjcmV0LTc3MQ";
const IN_TOKENS: &str = "canary-of-a-token-772";
const IN_KUBECONFIGS: &str = "canary-of-a-kubeconfig-773";

fn secret(name: &str, value: usize) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        // Its length must be one of base64.
        "stringData": {"value": value.to_string()},
        "data": {"token": format!("{IN_SECRETS}==")},
    })
}

async fn note(request: Request<Secret>, seen: Arc<Seen>) -> Result<Action, Infallible> {
    if request.live().is_some() {
        seen.note_as(&request.cluster, request.name(), "");
    }
    Ok(Action::await_change())
}

/// Kubeconfigs that can't be used, with a secret wherever there may be one.
fn kubeconfigs() -> Vec<Vec<u8>> {
    let canary = IN_KUBECONFIGS;
    let user = |user: &str| {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: 'https://127.0.0.1:1'}}}}], users: [{{name: a, user: {user}}}]}}"
        )
    };
    let users = [
        format!("{{token: [{canary}]}}"),
        format!("{{token: {{{canary}: {canary}}}}}"),
        format!("{{token: \"{canary}\\n\"}}"),
        format!("{{client-certificate-data: {canary}, client-key-data: {canary}}}"),
        format!("{{client-certificate-data: Y2Fu, client-key-data: '{canary}'}}"),
        format!("{{username: {canary}, password: [{canary}]}}"),
        format!("{{exec: {{command: {canary}, apiVersion: nothing, env: {canary}}}}}"),
        format!("{{auth-provider: {{name: x, config: {{access-token: {canary}}}}}}}"),
        format!("{{token: {canary}"),
        format!("{{token: &a [*a, {canary}]}}"),
    ];
    let others = [
        canary.to_owned(),
        format!("token: {canary}\n\t- x"),
        format!("users: {{a: {canary}}}"),
    ];
    let all = others.into_iter().chain(users.map(|of| user(&of)));
    let mut all: Vec<Vec<u8>> = all.map(String::into_bytes).collect();
    let broken = user(&format!("{{token: {canary}"));
    all.push([broken.as_bytes(), &[0xff, 0xfe, 0x00]].concat());
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promise_15_hostile_servers_and_kubeconfigs_leak_nothing_and_hurt_nobody() {
    let _alone = alone().await;
    let name =
        "promise_15_hostile_bytes::promise_15_hostile_servers_and_kubeconfigs_leak_nothing_and_hurt_nobody";
    if !tokio::task::block_in_place(|| in_a_process_of_its_own(name)) {
        return;
    }
    let log = mcr_testkit::log::Log::of_this_process();
    let faults = [
        Fault::Truncated,
        Fault::CutOff,
        Fault::Garbage,
        Fault::Undecodable { name: None },
        Fault::NoResourceVersion,
        Fault::GoneEvent,
        Fault::DuplicateEvents,
        Fault::Unauthorized,
    ];
    let (mut clusters, mut servers, mut specs) = (Vec::new(), Vec::new(), Vec::new());
    for (i, fault) in std::iter::once(None).chain(faults.iter().map(Some)).enumerate() {
        let admin = SimUser::new("admin").group("system:masters");
        let cluster = SimCluster::builder()
            .name(format!("hostile-{i}"))
            .user(format!("{IN_TOKENS}-{i}"), admin)
            .build();
        cluster.create(secret("hello", 0)).or_fail();
        let server = cluster.serve().await.or_fail();
        let proxy = FaultProxy::start(&server).await.or_fail();
        // One is hostile from the start, the other has been well for a while.
        specs.push(spec(
            cluster.name(),
            &proxy.kubeconfig_with_token(&format!("{IN_TOKENS}-{i}")),
        ));
        if let Some(fault) = fault.filter(|_| i % 2 == 0) {
            proxy.set(fault.clone()).await;
        }
        servers.push((server, proxy, fault));
        clusters.push(cluster);
    }
    let broken = kubeconfigs();
    for (i, bytes) in broken.iter().enumerate() {
        for trust in [Trust::Trusted, Trust::Untrusted] {
            let name = ClusterName::new(format!("broken-{i}-{trust:?}")).or_fail();
            specs.push(ClusterSpec::new(name, Access::kubeconfig(bytes, trust)));
        }
    }
    let mut announced: Vec<String> = specs.iter().map(|spec| format!("{spec:?}")).collect();
    let running = Running::start(
        specs,
        |seen| {
            Controller::<Secret>::new("noting")
                .watch_request(|watch| watch.namespace("default"))
                .build(note, seen)
        },
        hasty,
    );
    // One that is never hostile, and those that are not yet.
    let not_yet = (0..clusters.len()).filter(|i| i % 2 == 1);
    for i in [0].into_iter().chain(not_yet) {
        running
            .reconciled_as(&format!("hostile-{i}"), "hello", "", PATIENCE)
            .await;
    }
    for (_, proxy, fault) in &servers {
        if let Some(fault) = fault {
            proxy.set((*fault).clone()).await;
        }
    }
    // Events, new connections, lists and reads, while the servers are hostile.
    for round in 0.. {
        for cluster in &clusters {
            cluster.create(secret(&format!("round-{round}"), round)).or_fail();
        }
        if round % 5 == 4 {
            for (_, proxy, _) in &servers {
                proxy.reset_connections().await;
            }
        }
        announced.push(running.all_reports());
        // Not where an object is well-formed and of another type than asked for: what kube logs of that can't be kept
        // from the log here, see `kube_itself_logs_well_formed_answers_of_another_type` in mcr-core.
        let undecodable = faults
            .iter()
            .position(|fault| matches!(fault, Fault::Undecodable { .. }));
        let undecodable = undecodable.map(|i| format!("hostile-{}", i + 1));
        for cluster in running.fleet.clusters() {
            if undecodable.as_deref() == Some(cluster.name().as_str()) {
                continue;
            }
            let secrets = cluster.namespaced::<Secret>("default");
            let read = tokio::time::timeout(Duration::from_millis(200), secrets.get("hello"));
            if let Ok(Err(error)) = read.await {
                announced.push(format!("{error} {error:?} {}", mcr::core::explain_error(&error)));
            }
        }
        // What is healthy does not notice.
        running
            .reconciled_as("hostile-0", &format!("round-{round}"), "", PATIENCE)
            .await;
        // Until watches have failed in many ways, and the log is seen to be captured.
        if round > 8 && log.lines_with("watch failed").len() > 3 {
            break;
        }
        assert!(round < 300, "watches don't fail");
    }
    for (i, _) in broken.iter().enumerate() {
        for trust in ["Trusted", "Untrusted"] {
            let name = format!("broken-{i}-{trust}");
            let snapshot = running.fleet.snapshot();
            let found = snapshot.clusters.iter().find(|cluster| *cluster.name == *name);
            let shown = found.is_none_or(|cluster| cluster.reason.is_some() || !cluster.warnings.is_empty());
            assert!(shown, "{found:?}");
        }
    }
    for (_, proxy, _) in &servers {
        proxy.clear().await;
    }
    // What was read as a Secret with a field of the wrong type stays so until it changes; all else is back.
    for cluster in &clusters {
        cluster.create(secret("end", 0)).or_fail();
    }
    for cluster in &clusters {
        running.reconciled_as(cluster.name(), "end", "", PATIENCE).await;
    }
    running.stop().await;
    for canary in [IN_SECRETS, IN_TOKENS, IN_KUBECONFIGS] {
        assert_eq!(log.lines_with(canary), [] as [String; 0]);
        let leaks: Vec<_> = announced.iter().filter(|text| text.contains(canary)).collect();
        assert!(leaks.is_empty(), "{leaks:?}");
    }
}
