//! Secrets that can't be used, and what is told on them.

use std::time::Duration;

use mcr_testkit::{
    control_plane::Etcd,
    waiting::{OrFail, eventually},
};
use serde_json::{Value, json};

use crate::{
    harness::{Hub, PATIENCE, Running, create, is_fed, logged, planes},
    support::{LABEL, base64, secret},
};

const CANARY: &str = "canary-5e5a11fb";

/// In each place of a kubeconfig that somebody else writes.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: {CANARY}-x\n\
         contexts: [{{name: {CANARY}-x, context: {{cluster: {CANARY}-c, user: {CANARY}-u}}}}]\n\
         clusters: [{{name: {CANARY}-c, cluster: {{{cluster}}}}}]\n\
         users: [{{name: {CANARY}-u, user: {{{user}}}}}]\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_24_and_25_secrets_without_a_kubeconfig_are_broken_and_others_work() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, zoo] = planes(&etcd).await;
    let hub = Hub::new(hub, "missing").await;
    create(&zoo, "elephant", "animal").await;
    let mut no_key = secret("missing", "no-key", "");
    no_key["data"] = json!({"another": base64(zoo.kubeconfig())});
    hub.apply("no-key", no_key).await;
    hub.put("empty", "").await;
    hub.put("zoo", zoo.kubeconfig()).await;
    let running = Running::start(hub.provider().await.build().or_fail());
    is_fed(&zoo, "elephant").await;
    running
        .shows(
            "no-key",
            "Broken",
            "has no key \"kubeconfig\"; put the kubeconfig under it",
        )
        .await;
    running.shows("empty", "Broken", "is empty").await;
    assert_eq!(running.names(), ["zoo"]);

    // Told on the Secrets, once, and again when they are well.
    let events = hub.events_are("no-key", &["KubeconfigBroken"]).await;
    assert_eq!(
        events[0].1,
        "the Secret has no key \"kubeconfig\"; put the kubeconfig under it"
    );
    hub.events_are("empty", &["KubeconfigBroken"]).await;
    hub.annotate("empty", "example.com/touched", "today").await;
    hub.put("empty", zoo.kubeconfig()).await;
    running.ready("empty").await;
    hub.events_are("empty", &["KubeconfigBroken", "KubeconfigUsable"])
        .await;
    assert_eq!(
        hub.events("zoo").await,
        [],
        "nothing is told on what was always well"
    );

    // Emptied it leaves; with half a kubeconfig it goes on.
    let before = running.ready("empty").await;
    hub.put("empty", &zoo.kubeconfig()[..100]).await;
    running
        .shows("empty", "Ready", "Secret missing/empty, key \"kubeconfig\"")
        .await;
    assert!(running.fleet.get("empty").or_fail().is_same(&before));
    hub.events_are(
        "empty",
        &["KubeconfigBroken", "KubeconfigUsable", "KubeconfigBroken"],
    )
    .await;
    hub.put("empty", "").await;
    running.names_are(&["zoo"]).await;
    running.shows("empty", "Broken", "is empty").await;
    hub.put("empty", zoo.kubeconfig()).await;
    running.ready("empty").await;
    hub.merge("empty", json!({"data": {"kubeconfig": null}})).await;
    running.names_are(&["zoo"]).await;

    // Deleted with a finalizer: it stays until it is gone. Without the label: it leaves.
    hub.put("kept", zoo.kubeconfig()).await;
    hub.merge("kept", json!({"metadata": {"finalizers": ["example.com/keep"]}}))
        .await;
    let kept = running.ready("kept").await;
    hub.delete("kept").await;
    hub.annotate("kept", "property.mcr.dev/fate", "sealed").await;
    eventually(PATIENCE, "the deletion is seen", || {
        kept.properties().get("fate").cloned()
    })
    .await;
    assert!(running.fleet.get("kept").or_fail().is_same(&kept));
    hub.merge("kept", json!({"metadata": {"finalizers": null}})).await;
    running.names_are(&["zoo"]).await;
    hub.merge("zoo", json!({"metadata": {"labels": {LABEL: null}}}))
        .await;
    running.names_are(&[]).await;
    hub.merge("zoo", json!({"metadata": {"labels": {LABEL: "true"}}}))
        .await;
    running.names_are(&["zoo"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_secrets_hurt_only_themselves_and_nothing_of_them_is_reported() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, zoo] = planes(&etcd).await;
    let hub = Hub::new(hub, "hostile").await;
    create(&zoo, "elephant", "animal").await;
    let server = "server: 'https://c.example'";
    let token = format!("token: {CANARY}");
    let bomb = (1..12).fold("a0: &a0 [x]\n".to_owned(), |bomb, n| {
        format!(
            "{bomb}a{n}: &a{n} [{}]\n",
            vec![format!("*a{}", n - 1); 10].join(", ")
        )
    });
    let exec = format!(
        "exec: {{command: /bin/{CANARY}, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}"
    );
    // As much as the API server takes: a Secret has at most a MiB of data.
    let large = |kubeconfig: &str| format!("{kubeconfig}# {}", "x".repeat((1 << 20) - kubeconfig.len() - 2));
    let hostile: Vec<(&str, Vec<u8>)> = [
        ("exec", kubeconfig(server, &exec)),
        (
            "auth-provider",
            kubeconfig(server, &format!("auth-provider: {{name: {CANARY}}}")),
        ),
        (
            "token-file",
            kubeconfig(server, &format!("tokenFile: /etc/{CANARY}")),
        ),
        (
            "ca-file",
            kubeconfig(&format!("{server}, certificate-authority: /etc/{CANARY}"), &token),
        ),
        (
            "insecure",
            kubeconfig(&format!("{server}, insecure-skip-tls-verify: true"), &token),
        ),
        (
            "proxy",
            kubeconfig(&format!("{server}, proxy-url: 'http://{CANARY}'"), &token),
        ),
        (
            "metadata",
            kubeconfig("server: 'https://169.254.169.254'", &token),
        ),
        ("bomb", format!("{bomb}{}", kubeconfig(server, &token))),
        ("deep", format!("{CANARY}: {}", "[".repeat(500_000))),
        ("large", large(&format!("{CANARY}: {{\n"))),
        (
            "pod",
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {CANARY}}}\n"),
        ),
        ("html", format!("<html>{CANARY}</html>")),
        ("nul", format!("token: \0{CANARY}")),
        ("half", format!("users: [{{name: a, user: {{token: {CANARY}")),
    ]
    .map(|(name, text)| (name, text.into_bytes()))
    .into_iter()
    .chain([("not-utf-8", [b"token: \xff\xfe", CANARY.as_bytes()].concat())])
    .collect();
    for (name, content) in &hostile {
        hub.put(name, content).await;
    }
    // A cluster like any other, though its Secret is as large as can be.
    hub.put("zoo", large(&format!("{}\n", zoo.kubeconfig()))).await;
    // One that others would like to be read.
    let mut stranger = secret("hostile", "stranger", CANARY);
    stranger["metadata"]["labels"] = Value::Null;
    hub.apply("stranger", stranger).await;

    let running = Running::start(hub.provider().await.build().or_fail());
    is_fed(&zoo, "elephant").await;
    for (name, _) in &hostile {
        running.shows(name, "Broken", "").await;
    }
    assert_eq!(running.names(), ["zoo"]);
    running
        .shows(
            "token-file",
            "Broken",
            "names a file, which untrusted kubeconfigs may not do",
        )
        .await;
    for (name, content) in &hostile {
        let events = hub.events_are(name, &["KubeconfigBroken"]).await;
        let text = &events[0].1;
        assert!(
            text.len() > 20 && !text.contains(CANARY) && !text.contains("169."),
            "{name}: {text}"
        );
        // Nothing new, if the same is said again.
        hub.annotate(name, "example.com/touched", "today").await;
        assert!(!content.is_empty());
    }
    assert_eq!(hub.events("stranger").await, []);
    assert!(running.shown("stranger").is_none());

    // They become worse and better without a word on the others.
    let before = running.ready("zoo").await;
    hub.put("half", zoo.kubeconfig()).await;
    running.ready("half").await;
    hub.put("half", kubeconfig(server, &exec)).await;
    running
        .shows("half", "Ready", "untrusted kubeconfigs may not do")
        .await;
    create(&zoo, "lion", "animal").await;
    is_fed(&zoo, "lion").await;
    assert!(running.fleet.get("zoo").or_fail().is_same(&before));
    hub.events_are(
        "half",
        &["KubeconfigBroken", "KubeconfigUsable", "KubeconfigBroken"],
    )
    .await;
    for (name, _) in hostile.iter().filter(|(name, _)| *name != "half") {
        hub.events_are(name, &["KubeconfigBroken"]).await;
    }

    // The names that somebody chose may be in the log of this process; what is secret is not.
    let secrets = logged(CANARY).into_iter().filter(|line| {
        let names = ["-x", "-c", "-u"].map(|end| format!("{CANARY}{end}"));
        let quoted = [
            format!("\"/bin/{CANARY}"),
            format!("\"{CANARY}\" is a login helper"),
        ];
        let line = names
            .iter()
            .chain(&quoted)
            .fold(line.replace('\\', ""), |line, known| line.replace(known, ""));
        line.contains(CANARY)
    });
    assert_eq!(secrets.collect::<Vec<_>>(), [""; 0]);
    running.stop().await;
    let asked = hub.asked().await;
    for asked in &asked {
        let event = asked.contains(" /apis/events.k8s.io/v1/namespaces/hostile/events");
        let secrets = asked.starts_with("list ") || asked.starts_with("watch ");
        assert!(event || (secrets && asked.contains("labelSelector=")), "{asked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_write_events_all_else_works_and_the_log_reports_so_once() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, zoo] = planes(&etcd).await;
    let hub = Hub::new(hub, "silent").await;
    create(&zoo, "elephant", "animal").await;
    let mut rules = crate::harness::documented_rules();
    rules.retain(|rule| {
        rule.resources
            .as_ref()
            .is_some_and(|names| names.iter().any(|name| name == "secrets"))
    });
    assert_eq!(rules.len(), 1);
    hub.robot.revoke().await.or_fail();
    hub.robot.allow_in("silent", rules).await.or_fail();
    for name in ["first", "second", "third"] {
        hub.put(name, "").await;
    }
    hub.put("zoo", zoo.kubeconfig()).await;
    let warned = || logged("events on Secrets can't be written: forbidden").len();
    let before = warned();
    let running = Running::start(hub.provider().await.build().or_fail());
    is_fed(&zoo, "elephant").await;
    for name in ["first", "second", "third"] {
        running.shows(name, "Broken", "is empty").await;
    }
    eventually(PATIENCE, "the log says so", || warned() > before).await;
    let events = || async {
        let asked = hub.asked().await;
        asked.iter().filter(|asked| asked.starts_with("create ")).count()
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while events().await < 3 {
        assert!(tokio::time::Instant::now() < deadline, "all three were tried");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    hub.put("first", zoo.kubeconfig()).await;
    running.ready("first").await;
    assert_eq!(warned(), before + 1);
    running.stop().await;
}
