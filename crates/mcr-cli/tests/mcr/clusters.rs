//! `mcr clusters`.

use std::net::TcpListener;

use mcr::{Action, BoxError, Controller, Manager, Request};
use mcr_core::{Access, ClusterName, ClusterSpec, Trust};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::waiting::{Background, OrFail};
use tokio::net::TcpSocket;

use crate::harness::{User, sim};

/// A kubeconfig with a port that refuses connections, as long as the returned socket lives: it is bound and does not
/// listen.
fn down(name: &str) -> (String, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let text = format!(
        "current-context: {name}\ncontexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    (text, socket)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_shown_with_what_is_wrong() {
    let (eu, us) = (sim("eu").await, sim("us").await);
    let (refusing, _held) = down("down");
    let user = User::new();
    for (name, text) in [
        ("eu.kubeconfig", eu.kubeconfig()),
        ("us.kubeconfig", us.kubeconfig()),
        ("down.kubeconfig", refusing),
        ("half.kubeconfig", "contexts: [".to_owned()),
    ] {
        user.file(name, text);
    }
    let text_of = user
        .run("clusters --kubeconfig-dirs .")
        .await
        .ended(0)
        .prints("NAME");
    let line = |part: &str| {
        let line = text_of.out.lines().find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("no {part} in {}", text_of.out))
    };
    text_of.shows("eu | Ready | v1.\n eu | Ready | file\n down | | connection refused");
    let half = line("half.kubeconfig");
    assert!(half.contains("Broken") && half.contains("line "), "{half}");

    assert!(
        !text_of.out.contains('\x1b'),
        "colours are for terminals: {}",
        text_of.out
    );
    let coloured = ["clusters", "--kubeconfig-dirs", "."];
    user.mcr_with("CLICOLOR_FORCE", "1", coloured)
        .await
        .ended(0)
        .prints("\x1b[32mReady\x1b[0m");

    let wide = user.run("clusters --kubeconfig-dirs . -o wide").await.ended(0);
    wide.prints(&eu.url());
    let json = user
        .run("clusters --kubeconfig-dirs . -o json")
        .await
        .ended(0)
        .json();
    assert_eq!(json["clusters"].as_array().unwrap().len(), 4);
    let of = |end: &str| {
        let all = json["clusters"].as_array().unwrap();
        all.iter().find(|cluster| cluster["name"] == end).unwrap().clone()
    };
    assert_eq!(of("us")["state"], "Ready");
    assert_eq!(
        of("us")["properties"]["file"]
            .as_str()
            .unwrap()
            .split('/')
            .next_back(),
        Some("us.kubeconfig")
    );
    assert_eq!(of("down")["state"], "Unreachable");

    assert_eq!(of("eu")["name"], "eu");
    user.runs(
        "1 | clusters --kubeconfig-dirs . --fail-unless-ready | |
         0 | clusters --kubeconfig-dirs . --fail-unless-ready eu | |
         3 | clusters --kubeconfig-dirs . eu-9 | | there is no cluster eu-9",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_providers_keep_their_names_apart_and_one_that_fails_is_reported() {
    let sim = sim("eu").await;
    let user = User::new();
    user.file("eu.kubeconfig", sim.kubeconfig());
    let eu = "--kubeconfigs eu.kubeconfig";
    let all = format!("clusters --provider file,single,namespace {eu} --hub-kubeconfig eu.kubeconfig");
    let text_of = user.run(all).await.ended(0);
    let text_of = text_of
        .prints("file#")
        .prints("single#local")
        .prints("namespace#default");
    assert!(
        text_of.out.lines().skip(1).all(|line| line.contains("Ready")),
        "{}",
        text_of.out
    );
    let two = format!("clusters --provider file --provider single {eu} --hub-context x");
    let text_of = user.run(two).await.ended(0).prints("file#");
    text_of.reports("provider single").reports("--hub-context x");
    user.runs("3 | clusters --provider single --hub-kubeconfig none | | can't read kubeconfig none")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_named_and_missing_are_a_problem() {
    let (down, _held) = down("down");
    let user = User::new();
    user.file("there.kubeconfig", &down);
    let named = async |path: &str, args: &[&str]| user.mcr_with("KUBECONFIG", path, args).await;
    let nope = "/nope/config does not exist ($KUBECONFIG names it)";
    named("/nope/config", &["clusters"]).await.ended(1).reports(nope);
    named("/nope/config", &["clusters", "-o", "json"])
        .await
        .ended(1)
        .reports(nope);
    named("/nope/config", &["doctor"]).await.ended(1).prints(nope);
    for args in [
        ["clusters", "--provider", "single"],
        ["kubeconfig-secret", "create", "--context=x"],
    ] {
        named("/nope/config", &args).await.ended(3).reports(nope);
    }
    // As for kubectl, some files of a list may be missing.
    named("/nope/config:there.kubeconfig", &["clusters"])
        .await
        .ended(0)
        .prints("connection refused");
    user.runs("1 | clusters --kubeconfigs there.kubeconfig,no.kubeconfig | connection refused | no.kubeconfig does not exist")
        .await;
    let watch = "clusters --kubeconfigs no.kubeconfig,there.kubeconfig --watch";
    let mut lines = user.start(watch.split(' '));
    lines.with(["connection refused"]).await;
    assert_eq!(lines.interrupt().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unique_end_of_a_name_is_enough_to_read() {
    let (down, _held) = down("down");
    let user = User::new();
    for (file, context) in [("a", "lab/down"), ("b", "old/down"), ("c", "lab/zoo")] {
        let text = down.replace("name: down", &format!("name: {context}"));
        user.file(&format!("{file}.kubeconfig"), text);
    }
    for command in ["clusters", "doctor"] {
        let run = async |name: &str| user.mcr([command, "--kubeconfig-dirs", ".", name]).await;
        let code = if command == "doctor" { 1 } else { 0 };
        let text_of = run("zoo").await.ended(code).prints("lab/zoo");
        assert!(!text_of.out.contains("/down"), "{}", text_of.out);
        run("old/down").await.ended(code).prints("old/down");
        let text_of = run("down")
            .await
            .ended(3)
            .reports("several clusters end in down: ");
        text_of.reports("lab/down, ").reports("old/down; ");
    }
    let mut lines = user.start(["clusters", "--kubeconfig-dirs", ".", "--watch", "zoo"]);
    let [line] = lines.with(["added"]).await;
    assert!(line.contains("lab/zoo"), "{line}");
    assert_eq!(lines.interrupt().await, Some(0));
    user.runs("3 | clusters --kubeconfig-dirs . --watch down | | several clusters end in down: ")
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_hides_something_is_refused_and_shown_escaped() {
    let (down, _held) = down("down");
    let user = User::new();
    user.file("a\u{202e}b.kubeconfig", "contexts: [");
    user.file("c.kubeconfig", down.replace("name: down", "name: \"d\\u2066n\""));
    user.file("e.kubeconfig", &down);
    for command in ["clusters", "doctor"] {
        let text_of = user.mcr([command, "--kubeconfig-dirs", "."]).await;
        let text_of = text_of.prints("down").prints("has U+2066 at byte");
        let text_of = text_of.prints(r"\u{202e}b.kubeconfig");
        for text in [&text_of.out, &text_of.err] {
            assert!(!text.contains(['\u{202e}', '\u{2066}']), "{text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_followed_until_the_user_has_seen_enough() {
    let (eu, us) = (sim("eu").await, sim("us").await);
    let user = User::new();
    user.file("eu.kubeconfig", eu.kubeconfig());
    let mut lines = user.start(["clusters", "--kubeconfig-dirs", ".", "--watch", "-o", "json"]);
    let [line] = lines.with(["\"Ready\""]).await;
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["name"] == "eu", "{line}");
    user.file("us.kubeconfig", us.kubeconfig());
    lines.with(["\"us\""]).await;
    std::fs::remove_file(user.home().join("us.kubeconfig")).unwrap();
    lines.with(["\"removed\""]).await;
    assert_eq!(lines.interrupt().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_runs_is_asked() {
    async fn reconcile(
        _: Request<k8s_openapi::api::core::v1::ConfigMap>,
        _: std::sync::Arc<()>,
    ) -> Result<Action, BoxError> {
        Ok(Action::await_change())
    }
    let eu = sim("eu").await;
    let clusters = ClustersProvider::new();
    let spec = |name: &str, kubeconfig: String| {
        let access = Access::kubeconfig(kubeconfig, Trust::Trusted);
        ClusterSpec::new(ClusterName::new(name).unwrap(), access)
    };
    let handle = clusters.handle();
    handle.add(spec("eu x", eu.kubeconfig()));
    let (refusing, _held) = down("down");
    handle.add(spec("down", refusing));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let manager = Manager::builder()
        .provider(clusters)
        .controller(Controller::new("c").build(reconcile, std::sync::Arc::new(())))
        .serve(listener)
        .build()
        .or_fail();
    let running = Background::start(|stop| manager.run_until(stop));

    let user = User::new();
    let mut lines = user.start(["clusters", "--server", &server, "--watch"]);
    let [line, _] = lines.with(["  Ready", "connection refused"]).await;
    assert!(line.contains("\"eu x\""), "{line}");
    let time = line.split(' ').next().unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok(), "{line}");
    assert_eq!(lines.interrupt().await, Some(0));
    let asked = format!("clusters --server {server}");
    let text_of = user.run(&asked).await.ended(0).prints("\"eu x\"");
    text_of
        .prints("Unreachable")
        .prints("KINDS  QUEUE  FAILING")
        .prints(" 1/1 ");
    let why = async |object: &str| user.mcr(["why", object, "--server", &server]).await;
    let text_of = why("eu x/red/lab").await.ended(0).prints("Ready for ");
    let text_of = text_of.prints("1 of 1 kinds are listed").prints("controller c");
    text_of.prints("the controllers watch configmaps; kubectl get");
    let text_of = why("down/red/lab").await.ended(1);
    text_of.prints("connection refused").prints("1 problem");
    let text_of = why("eu-9/red/lab").await.ended(1);
    text_of.prints("no cluster of this name (it has down, eu x)");
    why("eu").await.ended(3).reports("CLUSTER/NAMESPACE/NAME");
    let json = ["why", "down/lab", "--server", &server, "-o", "json"];
    assert_eq!(user.mcr(json).await.ended(1).json()["object"], "lab");
    let json = user.run(format!("{asked} -o json down")).await.ended(0).json();
    assert_eq!(json["clusters"].as_array().unwrap().len(), 1);
    assert_eq!(json["controllers"][0]["name"], "c");
    user.run(format!("{asked} --fail-unless-ready")).await.ended(1);
    running.stop().await.or_fail();
    let gone = "clusters: connection refused: no controller serves there; start it with --serve ADDRESS, or correct --server";
    user.run(asked).await.ended(3).reports(gone);
    user.mcr(["clusters", "--server", &eu.url()]).await.ended(3);
    user.runs("3 | clusters --server localhost:8080 | | http://host:port")
        .await;
    let with_password = user
        .run("clusters --server https://me:canary@localhost")
        .await
        .ended(3);
    let with_password = with_password.reports("without a user and password");
    assert!(!with_password.err.contains("canary"));
}

#[tokio::test]
async fn a_controller_that_is_guarded_is_asked_with_a_token() {
    use mcr::server::{ServerAccess, ServerOptions};
    let user = User::new();
    let access = ServerAccess::token_file(user.file("tokens", "CANARY\n"));
    let path = |name: &str| user.home().join(name).display().to_string();
    let (tokens, wrong) = (path("tokens"), user.file("wrong", "other").display().to_string());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let options = ServerOptions::from(listener).access(access);
    let manager = Manager::builder()
        .provider(ClustersProvider::new())
        .serve(options)
        .build()
        .or_fail();
    let running = Background::start(|stop| manager.run_until(stop));
    let ask = async |token: Option<&str>| {
        let token = token.map(|token| ["--server-token-file", token]);
        let args = ["clusters", "--server", &server].into_iter();
        user.mcr(args.chain(token.into_iter().flatten())).await
    };
    for token in [None, Some(&*wrong)] {
        ask(token).await.ended(3).reports("--server-token-file");
    }
    ask(Some(&tokens)).await.ended(0);
    running.stop().await.or_fail();
    let far = [
        "clusters",
        "--server",
        "http://far.example",
        "--server-token-file",
        &tokens,
    ];
    user.mcr(far)
        .await
        .ended(3)
        .reports("a token is sent over https only");
    let ca = [
        "clusters",
        "--server",
        "https://far.example",
        "--server-ca",
        &tokens,
    ];
    user.mcr(ca).await.ended(3).reports("holds no PEM certificate");
}
