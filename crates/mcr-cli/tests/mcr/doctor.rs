//! `mcr doctor`: each fault is found, and nothing else is.

use std::os::unix::fs::PermissionsExt;

use mcr_testkit::{
    faults::{Fault, FaultProxy},
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::OrFail,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use crate::harness::User;

async fn sim() -> SimServer {
    let cluster = SimCluster::builder().admin_token("admin").build();
    cluster.set_user(
        "reader",
        SimUser::new("reader").rule(SimRule::new([""], ["configmaps"], ["get"])),
    );
    cluster.serve().await.or_fail()
}

async fn proxy(sim: &SimServer, name: &str, fault: Option<Fault>) -> FaultProxy {
    let proxy = FaultProxy::builder(sim).name(name).start().await.or_fail();
    if let Some(fault) = fault {
        proxy.set(fault).await;
    }
    proxy
}

/// A kubeconfig with one context.
fn at(name: &str, server: &str, token: &str) -> String {
    format!(
        "current-context: {name}\ncontexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: {token}}}}}]\n"
    )
}

/// Answers everything, with the time of a clock that is wrong by so much.
async fn wrong_clock(ahead: i64) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut answering = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            answering.spawn(async move {
                let mut some = [0; 8192];
                while let Ok(1..) = stream.read(&mut some).await {
                    let time = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(ahead);
                    let date = time.strftime("%a, %d %b %Y %H:%M:%S GMT");
                    let body = r#"{"major":"1","minor":"36","gitVersion":"v1.36.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ndate: {date}\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, tasks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_found_where_it_is() {
    let sim = sim().await;
    let faults = [
        ("well", None, "admin"),
        ("weak", None, "reader"),
        ("refused", Some(Fault::Refuse), "admin"),
        ("silent", Some(Fault::Silent), "admin"),
        ("wrong-ca", Some(Fault::WrongCa), "admin"),
        ("expired", Some(Fault::ExpiredCertificate), "admin"),
        ("other-name", Some(Fault::WrongHost), "admin"),
        // {"exp": 1000000000}
        ("unauthorized", None, "e30.eyJleHAiOjEwMDAwMDAwMDB9.c2ln"),
        ("unknown-token", None, "x"),
        ("overloaded", Some(Fault::InternalError), "admin"),
    ];
    let user = User::new();
    // The clusters that use up the time limit have a folder of their own, so that the limit of the others can be long.
    for folder in ["prompt", "slow"] {
        std::fs::create_dir(user.home().join(folder)).unwrap();
    }
    let mut proxies = Vec::new();
    for (name, fault, token) in faults {
        let folder = if name == "silent" { "slow" } else { "prompt" };
        let proxy = proxy(&sim, name, fault).await;
        user.file(
            &format!("{folder}/{name}.kubeconfig"),
            proxy.kubeconfig_with_token(token),
        );
        proxies.push(proxy);
    }
    let (clock, _answers) = wrong_clock(3600).await;
    // Without an authority the fleet verifies with this machine's, and so does the doctor.
    let unsigned = proxy(&sim, "no-authority", None).await;
    user.file(
        "prompt/no-authority.kubeconfig",
        at("no-authority", &unsigned.url(), "admin"),
    );
    user.file("prompt/clock.kubeconfig", at("clock", &clock, "t"));
    user.file(
        "slow/nowhere.kubeconfig",
        at("nowhere", "https://no-such-host.invalid:6443", "t"),
    );
    user.file("prompt/half.kubeconfig", "apiVersion: v1\ncontexts: [{name: half");

    let doctor = async |folder: &str, limit: &str| {
        let line = format!("doctor --kubeconfig-dirs {folder} --timeout {limit} -o json");
        user.run(line).await.ended(1)
    };
    let (text_of, announced_of_slow) = futures::join!(doctor("prompt", "60s"), doctor("slow", "4500ms"));
    text_of.finds(
        "well          | connection  | ok      | |
         well          | tls         | ok      | |
         well          | clock       | ok      | |
         well          | version     | ok      | |
         well          | rights      | ok      | |
         weak          | rights      | problem | may not list, watch configmaps in all namespaces (403) |
         weak          | connection  | ok      | |
         refused       | connection  | problem | connection refused |
         wrong-ca      | tls         | problem | not signed by a trusted certificate authority |
         no-authority  | tls         | problem | not signed by a trusted certificate authority |
         expired       | tls         | problem | has expired |
         other-name    | tls         | problem | 127.0.0.1 |
         unauthorized  | credentials | problem | the token has expired |
         unknown-token | credentials | problem | 401 |
         overloaded    | state       | problem | 500 |
         clock         | clock       | problem | ahead of this machine's |",
    );
    announced_of_slow.finds(
        "silent  | tls | problem | TLS gets no answer: the API server is paused or hangs |
         nowhere | dns | problem | |",
    );
    // Files that are no kubeconfig are named by their path.
    let json = text_of.json();
    let half = json["findings"].as_array().unwrap().iter().find(|finding| {
        finding["cluster"]
            .as_str()
            .is_some_and(|name| name.ends_with("half.kubeconfig"))
    });
    let half = half.unwrap();
    assert!(
        half["check"] == "description" && half["message"].as_str().unwrap().contains("line "),
        "{half}"
    );
    assert!(
        half["fix"].as_str().unwrap().ends_with("half.kubeconfig"),
        "{half}"
    );

    // One that is in order is no problem, whatever the others are.
    user.runs(
        "0 | doctor --kubeconfig-dirs prompt --timeout 60s well | no problems |
         0 | doctor --kubeconfigs prompt/well.kubeconfig -q | no problems |
         1 | doctor --kubeconfigs prompt/well.kubeconfig --for secrets,pods/log eu-9 | no provider has a cluster of this name |
         1 | doctor --kubeconfigs prompt/well.kubeconfig --for secrets,pods/log eu-9 | cluster eu-9 |
         1 | doctor --kubeconfigs missing.kubeconfig --timeout 1s | missing.kubeconfig does not exist |",
    )
    .await;
    user.mcr_with("KUBECONFIG", "/nope/config", ["doctor", "--timeout", "9s"])
        .await
        .ended(1)
        .prints("/nope/config does not exist ($KUBECONFIG names it)");
}

#[tokio::test]
async fn what_never_answers_ends_in_time() {
    let sim = sim().await;
    let proxy = proxy(&sim, "hole", Some(Fault::BlackHole)).await;
    let user = User::new();
    user.file("hole.kubeconfig", proxy.kubeconfig_with_token("admin"));
    let hole = "--kubeconfigs hole.kubeconfig --timeout 1500ms -o json";
    let text_of = user.run(format!("doctor {hole}")).await.ended(1);
    let json = text_of.json();
    let timed_out = json["findings"].as_array().unwrap().iter().any(|finding| {
        let message = finding["message"].as_str().unwrap();
        finding["result"] == "problem"
            && message.contains("no TCP connection")
            && message.contains("(waited for 0.5 s)")
    });
    assert!(timed_out, "{}", text_of.out);
    // It was not even waited for until the fleet had given it up, which is what both commands wait for.
    let text_of = user.run(format!("clusters {hole}")).await.ended(0);
    assert_eq!(
        text_of.json()["clusters"][0]["state"],
        "Connecting",
        "{}",
        text_of.out
    );
}

#[tokio::test]
async fn an_engine_that_is_not_there_or_not_running_is_reported() {
    let user = User::new();
    let bin = user.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = bin.to_str().unwrap().to_owned();
    let doctor = ["doctor", "--provider", "kind", "--timeout", "30s"];
    user.mcr_with("PATH", &path, doctor)
        .await
        .ended(1)
        .prints("none of docker, nerdctl and podman is on PATH");
    let docker = bin.join("docker");
    let script = "#!/bin/sh\n[ \"$1\" = -v ] && echo 'Docker version 28.0.0' && exit\n\
                  echo 'Cannot connect to the Docker daemon at unix:///x.sock.' >&2\nexit 1\n";
    std::fs::write(&docker, script).unwrap();
    std::fs::set_permissions(&docker, std::fs::Permissions::from_mode(0o755)).unwrap();
    let text_of = user.mcr_with("PATH", &path, doctor).await.ended(1);
    text_of.prints("can't reach its engine").prints("fix: docker ps");
    // A source that can't be read is an error, not an empty list.
    let clusters = "clusters --provider kind --timeout 30s --fail-unless-ready".split(' ');
    let text_of = user.mcr_with("PATH", &path, clusters).await.ended(1);
    text_of.reports("can't reach its engine");
}
