//! Secrets that mean harm, or can't be used, at a real hub: each is explained, and hurts only itself.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use mcr::{Action, BoxError, Controller, Manager, Request};
use mcr_core::{AccessPolicy, AddressPolicy};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    control_plane::{Etcd, policy_rule},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;

use crate::harness::{User, namespace, planes, put, secrets};

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

async fn reconcile(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, BoxError> {
    Ok(Action::await_change())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_secrets_are_explained_and_hurt_only_themselves() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member] = planes(&etcd, ["hub", "zoo"]).await;
    namespace(&hub, "fleet").await;
    let user = User::with([hub.kubeconfig()]);
    let ran = user.home().join("ran");
    let server = "server: 'https://c.example.invalid'";
    let exec = format!(
        "exec: {{command: /bin/touch, args: ['{}'], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}",
        ran.display()
    );
    let large = |text: &str| format!("{text}# {}", "x".repeat((1 << 20) - text.len() - 2));
    let mut hostile: Vec<(&str, String, &str)> = vec![
        ("exec", kubeconfig(server, &exec), "exec"),
        (
            "token-file",
            kubeconfig(server, "tokenFile: /etc/shadow"),
            "names a file",
        ),
        (
            "ca-file",
            kubeconfig(&format!("{server}, certificate-authority: /etc/x"), "token: t"),
            "certificate-authority",
        ),
        (
            "insecure",
            kubeconfig(&format!("{server}, insecure-skip-tls-verify: true"), "token: t"),
            "insecure-skip-tls-verify",
        ),
        (
            "proxy",
            kubeconfig(&format!("{server}, proxy-url: 'http://p.example'"), "token: t"),
            "proxy-url",
        ),
        (
            "metadata",
            kubeconfig("server: 'https://169.254.169.254'", "token: t"),
            "link-local or metadata",
        ),
        ("html", "<html></html>".to_owned(), ""),
        ("large", large("contexts: {\n"), "line "),
        ("empty", String::new(), "is empty"),
    ];
    for (name, text, _) in &hostile {
        put(&hub, "fleet", name, text).await;
    }
    // As large as can be, and a cluster like any other.
    put(&hub, "fleet", "zoo", large(&member.kubeconfig())).await;
    // Its kubeconfig is under another key.
    put(&hub, "fleet", "no-key", member.kubeconfig()).await;
    let renamed = Patch::Merge(json!({"data": {"kubeconfig": null, "value": "eA=="}}));
    let params = PatchParams::default();
    secrets(&hub, "fleet")
        .patch("no-key", &params, &renamed)
        .await
        .or_fail();
    hostile.push(("no-key", String::new(), "has no key \"kubeconfig\""));
    // A name that leads to this machine.
    put(
        &hub,
        "fleet",
        "by-name",
        kubeconfig("server: 'https://localhost:1'", "token: t"),
    )
    .await;
    put(&hub, "fleet", "stranger", member.kubeconfig()).await;
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": null}}));
    secrets(&hub, "fleet")
        .patch("stranger", &PatchParams::default(), &unlabelled)
        .await
        .or_fail();

    let doctor = "doctor --provider kubeconfig --timeout 60s -o json -n fleet";
    let text_of = user.run(format!("{doctor} --allow-loopback")).await.ended(1);
    for (name, _, part) in &hostile {
        let (level, message, fix) = text_of.found(name, "description");
        assert!(
            level == "problem" && message.contains(part),
            "{name}: {level} {message}"
        );
        assert!(fix.contains(&format!("--name {name} -n fleet")), "{name}: {fix}");
    }
    for check in ["connection", "tls", "clock", "version", "rights"] {
        assert_eq!(text_of.found("zoo", check).0, "ok", "{check}");
    }
    assert!(!ran.exists(), "a program from a Secret was run");
    // Without that flag it is as in a controller: what is on this machine is refused, however it is called.
    let text_of = user.run(doctor).await.ended(1);
    text_of.finds(
        "zoo     | description | problem | loopback | --server https://
         zoo     | description | problem | | --allow-loopback
         by-name | address     | problem | loopback | --server",
    );
    // One that no provider announces.
    let text_of = user.run(format!("{doctor} stranger")).await.ended(1);
    let (level, message, fix) = text_of.found("stranger", "name");
    assert!(
        level == "problem" && message.contains("without the label"),
        "{message}"
    );
    assert!(
        fix.starts_with("kubectl -n fleet label --overwrite secret stranger"),
        "{fix}"
    );
    // What is printed works when it is typed.
    user.types(&fix);
    let text_of = user.run(format!("{doctor} --allow-loopback stranger")).await;
    text_of.ended(0).finds("stranger | rights | ok | |");
    secrets(&hub, "fleet")
        .patch("stranger", &PatchParams::default(), &unlabelled)
        .await
        .or_fail();
    let elsewhere = doctor.replace("-n fleet", "-n default zoo");
    let text_of = user.run(elsewhere).await.ended(1);
    text_of.finds("zoo | name | problem | in namespace fleet, but the provider looks in default |");

    // A namespace that does not exist is the problem, and not that it has no Secrets.
    let nowhere = doctor.replace("-n fleet", "-n nons");
    let text_of = user.run(&nowhere).await.ended(1);
    let missing = text_of.of_provider("hub", "the hub has no namespace nons");
    assert_eq!(missing["result"], "problem");
    user.types("kubectl create namespace nons");
    let text_of = user.run(nowhere).await.ended(0).json();
    assert_eq!(text_of["problems"], 0, "{text_of}");

    // A user who may not read Secrets gets that as the error, with advice.
    let robot = hub
        .user("robot")
        .rules_in("fleet", [policy_rule([""], ["secrets"], ["list"])])
        .create()
        .await
        .or_fail();
    let weak = User::with([robot.kubeconfig()]);
    let doctor = "doctor --provider kubeconfig -n fleet --timeout 9s";
    let text_of = weak.run(format!("{doctor} -q")).await.ended(1);
    let text_of = text_of.prints("robot may not watch secrets in namespace fleet (403)");
    let text_of = text_of
        .prints("kubectl create role mcr-secrets -n fleet")
        .prints("may not create, patch events.events.k8s.io");
    let fixes = text_of
        .out
        .lines()
        .filter_map(|line| line.trim().strip_prefix("fix: kubectl create role "));
    let fixes: Vec<&str> = fixes.collect();
    assert_eq!(fixes.len(), 2, "{}", text_of.out);
    for fix in fixes {
        user.types(&format!("kubectl create role {fix}"));
    }
    let hub_only = format!("{doctor} no-such");
    // An API server takes a moment until it grants what a new role allows.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut text_of = weak.run(&hub_only).await.ended(1);
    while text_of.out.contains("(403)") && tokio::time::Instant::now() < deadline {
        text_of = weak.run(&hub_only).await.ended(1);
    }
    let text_of = text_of.prints("may list, watch secrets in namespace fleet");
    text_of.prints("may create, patch events.events.k8s.io in namespace fleet");

    // A controller reports the same: on the Secret, and at /clusters.
    let locally = AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true));
    let provider = KubeconfigProvider::builder()
        .client(hub.client())
        .namespace("fleet")
        .build()
        .or_fail();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let manager = Manager::builder()
        .provider(provider)
        .settings(|settings| settings.access_policy = locally)
        .controller(Controller::<ConfigMap>::new("c").build(reconcile, Arc::new(())))
        .serve(listener)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let running = Background::start(|stop| manager.run_until(stop));
    eventually(Duration::from_secs(60), "all is decided", || {
        let clusters = fleet.snapshot().clusters;
        let broken = clusters
            .iter()
            .filter(|cluster| cluster.state == "Broken")
            .count();
        let ready = clusters.iter().filter(|cluster| cluster.state == "Ready").count();
        (broken == hostile.len() && ready == 1).then_some(())
    })
    .await;
    let json = user
        .mcr(["clusters", "--server", &server, "-o", "json"])
        .await
        .ended(0)
        .json();
    let events: Api<Event> = Api::namespaced(hub.client(), "fleet");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    for (name, _, part) in &hostile {
        let all = json["clusters"].as_array().unwrap();
        let cluster = all.iter().find(|cluster| cluster["name"] == *name).unwrap();
        let reason = cluster["reason"].as_str().unwrap();
        assert!(cluster["state"] == "Broken" && reason.contains(part), "{cluster}");
        loop {
            let on = ListParams::default().fields(&format!("regarding.name={name}"));
            if !events.list(&on).await.or_fail().items.is_empty() {
                break;
            }
            assert!(tokio::time::Instant::now() < deadline, "no event on {name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    running.stop().await.or_fail();
}
