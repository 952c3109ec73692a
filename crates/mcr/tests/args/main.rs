//! The flags of `mcr::args`: help, errors, the hub.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod log;

use std::{
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clap::{CommandFactory, Parser};
use futures::StreamExt;
use mcr::{
    Access, Fleet, HUB, Manager, Provider,
    args::{Args, ArgsError, LogFormat},
    core::Change,
};
use mcr_provider_file::FileProvider;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Copies Secrets from the hub to its members.
#[derive(Debug, Parser)]
#[command(name = "secret-sync")]
struct Program {
    /// Seconds between two reports
    #[arg(long, default_value_t = 30)]
    every: u64,
    #[command(flatten)]
    mcr: Args,
}

fn parse(args: &[&str]) -> Result<Args, clap::Error> {
    let args = ["secret-sync"].iter().chain(args);
    Program::try_parse_from(args).map(|program| program.mcr)
}

/// With `MCR_UPDATE_SNAPSHOTS=1` writes the help text down instead of comparing it.
#[test]
fn the_help_is_as_it_was_written_down() {
    // The width of the terminal counts only with a feature of clap, which another crate may enable.
    let help = Program::command().term_width(0).render_long_help().to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/args/help.txt");
    if std::env::var_os("MCR_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &help).unwrap();
    }
    assert_eq!(
        help,
        std::fs::read_to_string(&path).unwrap_or_default(),
        "update the file with MCR_UPDATE_SNAPSHOTS=1"
    );
}

#[test]
fn all_flags_are_parsed() {
    let args = parse(&[
        "--kubeconfigs=a,b",
        "--kubeconfig",
        "c",
        "--kubeconfig-dirs=/nowhere/d",
        "--globs=*.conf",
        "--hub-kubeconfig=h",
        "--hub-context=ctx",
        "--serve=127.0.0.1:0",
        "--serve-authorize",
        "--serve-tls-cert=c",
        "--serve-tls-key=k",
        "--serve-probes=127.0.0.1:1",
        "--serve-host=a,b",
        "--log-format=json",
    ])
    .unwrap();
    assert_eq!(
        args.clusters().kubeconfigs,
        ["a", "b", "c"].map(std::path::PathBuf::from)
    );
    assert_eq!(args.clusters().kubeconfig_dirs, [Path::new("/nowhere/d")]);
    assert_eq!(args.clusters().globs, ["*.conf"]);
    let error = args.hub().unwrap_err().to_string();
    assert!(error.contains("--hub-kubeconfig h"), "{error}");
    assert_eq!(args.manager.serve.unwrap().port(), 0);
    assert!(args.manager.serve_authorize && !args.manager.serve_open);
    assert_eq!(args.manager.serve_host, ["a", "b"]);
    for wrong in [
        &["--serve-authorize"][..],
        &["--serve=127.0.0.1:0", "--serve-open", "--serve-authorize"],
        &["--serve=127.0.0.1:0", "--serve-open", "--serve-token-file=t"],
        &["--serve=127.0.0.1:0", "--serve-tls-cert=c"],
        &["--serve=127.0.0.1:0", "--serve-client-ca=c"],
        &["--serve-probes=127.0.0.1:0"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
    // Without a guard the flag for the address alone opens nothing to other machines.
    let everywhere = parse(&["--serve=0.0.0.0:0"]).unwrap().manager();
    let error = everywhere
        .provider(FileProvider::builder().files(["/nowhere/f"]).build().unwrap())
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("open to everybody"), "{error}");
    assert_eq!(args.log.log_format, LogFormat::Json);
    assert!(!args.clusters().is_empty());
    // A variable of a manifest may be empty.
    assert!(parse(&["--kubeconfigs="]).unwrap().clusters().is_empty());
}

#[test]
fn wrong_values_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    for (args, words) in [
        (
            ["--kubeconfigs", dir],
            ["--kubeconfigs", dir, "--kubeconfig-dirs"],
        ),
        (
            ["--kubeconfig-dirs", file],
            ["--kubeconfig-dirs", file, "--kubeconfigs"],
        ),
        (["--serve", "8080"], ["--serve", "8080", "socket address"]),
        (["--log-format", "xml"], ["--log-format", "xml", "text, json"]),
    ] {
        let text = parse(&args).unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{args:?} does not mention {word}: {text}");
        }
    }
}

/// Contexts of one file. The token is not to be in any text.
fn kubeconfig(current: &str, contexts: &[&str]) -> String {
    let contexts: Vec<String> = contexts
        .iter()
        .map(|name| format!("{{name: {name}, context: {{cluster: c, user: u}}}}"))
        .collect();
    format!(
        "current-context: '{current}'\ncontexts: [{}]\nclusters: [{{name: c, cluster: {{server: 'http://c.example'}}}}]\n\
         users: [{{name: u, user: {{token: CANARY}}}}]\n",
        contexts.join(", ")
    )
}

fn all(error: &dyn Error) -> String {
    let source = error
        .source()
        .map(|source| format!(": {}", all(source)))
        .unwrap_or_default();
    format!("{error}{source}")
}

fn hub_error(args: &[&str]) -> (ArgsError, String) {
    let error = parse(args).unwrap().hub().unwrap_err();
    let text = all(&error);
    assert!(!text.contains("CANARY") && !text.contains('\n'), "{text}");
    (error, text)
}

#[tokio::test]
async fn a_hub_that_is_not_there_is_named_with_flag_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.yaml");
    let hub = path.to_str().unwrap();
    let (error, text) = hub_error(&["--hub-kubeconfig", hub]);
    assert!(matches!(error, ArgsError::Read { .. }));
    assert!(
        text.starts_with(&format!("--hub-kubeconfig {hub}: can't read the file: ")),
        "{text}"
    );

    std::fs::write(&path, kubeconfig("", &["eu", "us"])).unwrap();
    let (error, text) = hub_error(&["--hub-kubeconfig", hub, "--hub-context", "asia"]);
    assert!(matches!(error, ArgsError::NoSuchContext { .. }));
    assert_eq!(
        text,
        format!("--hub-context asia: --hub-kubeconfig {hub} has no such context; it has eu, us")
    );
    let (error, text) = hub_error(&["--hub-kubeconfig", hub]);
    assert!(matches!(error, ArgsError::NoCurrentContext { .. }));
    assert_eq!(
        text,
        format!(
            "--hub-kubeconfig {hub} has no current context; choose the hub with --hub-context: it has eu, us"
        )
    );

    std::fs::write(&path, kubeconfig("eu", &["eu"]).replace("http:", "ftp:")).unwrap();
    let (error, text) = hub_error(&["--hub-kubeconfig", hub]);
    assert!(matches!(error, ArgsError::Kubeconfig { .. }));
    assert!(text.contains(hub) && text.contains("server"), "{text}");
    std::fs::write(&path, "users: [{name: u, user: {token: CANARY").unwrap();
    let (error, text) = hub_error(&["--hub-kubeconfig", hub]);
    assert!(matches!(error, ArgsError::Kubeconfig { .. }));
    assert!(text.contains(hub) && text.contains("line "), "{text}");
}

#[tokio::test]
async fn a_hub_is_a_cluster_and_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.yaml");
    std::fs::write(&path, kubeconfig("eu", &["eu", "us"])).unwrap();
    let args = parse(&["--hub-kubeconfig", path.to_str().unwrap(), "--hub-context", "us"]);
    let hub = args.unwrap().hub().unwrap();
    assert!(!format!("{hub:?}").contains("CANARY"), "{hub:?}");
    hub.client().await.unwrap();
    let mut changes = hub.discover(CancellationToken::new());
    let Some(Ok(Change::Upsert(spec))) = changes.next().await else {
        panic!("the hub announces itself")
    };
    assert_eq!(spec.name, HUB);
    assert!(matches!(spec.access, Access::Kubeconfig(_)));
    assert!(matches!(changes.next().await, Some(Ok(Change::Synced))));
    assert!(matches!(Access::from(hub), Access::Kubeconfig(_)));
}

/// In processes of their own, because it is about variables of the environment.
#[tokio::test]
async fn the_client_of_the_hub_goes_through_the_proxy_of_the_environment_only_with_the_flag() {
    if let Ok(flags) = std::env::var("MCR_TEST_FLAGS") {
        let args = parse(&flags.split(' ').collect::<Vec<_>>()).unwrap();
        let client = args.hub().unwrap().client().await.unwrap();
        // Without a proxy it looks up a name, which may take long.
        if let Ok(version) = timeout(Duration::from_secs(2), client.apiserver_version()).await {
            let error = version.unwrap_err();
            let shown = format!("{} {error:?}", all(&error));
            assert!(!shown.contains("CANARY"), "{shown}");
        }
        let manager = args.manager().fleet(Fleet::builder().build()).build().unwrap();
        let _ = timeout(Duration::from_secs(1), manager.run()).await;
        return;
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let serves = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..read]);
            assert!(head.starts_with("CONNECT c.example:443 HTTP/1.1"), "{head}");
            // me:CANARY
            assert!(head.contains("Basic bWU6Q0FOQVJZ"), "{head}");
            count.fetch_add(1, Ordering::Relaxed);
            let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
            let _ = stream.write_all(refusal).await;
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.yaml");
    let text = kubeconfig("eu", &["eu"]).replace("http://c.example", "https://c.example");
    std::fs::write(&path, text).unwrap();
    let hub = format!("--hub-kubeconfig={} --leader-election=lease", path.display());
    let name = "the_client_of_the_hub_goes_through_the_proxy_of_the_environment_only_with_the_flag";
    for (flags, no_proxy, is_asked) in [
        (hub.clone(), "", false),
        (format!("{hub} --proxy-from-env"), ".example", false),
        (format!("{hub} --proxy-from-env"), "", true),
    ] {
        let output = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env("MCR_TEST_FLAGS", &flags)
            .env("HTTPS_PROXY", format!("http://me:CANARY@{proxy}"))
            .env("NO_PROXY", no_proxy)
            .output();
        let output = output.await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        // By the client and by the manager, which asks for its Lease.
        let asked = asked.load(Ordering::Relaxed);
        assert!(if is_asked { asked >= 2 } else { asked == 0 }, "{flags}: {asked}");
    }
    assert!(!serves.is_finished(), "each request was as expected");
}

/// The contexts that a provider announces first.
async fn announced(provider: impl Provider) -> Vec<String> {
    let stop = CancellationToken::new();
    let mut changes = provider.discover(stop.clone());
    let mut contexts = Vec::new();
    while let Some(change) = changes.next().await {
        match change.unwrap() {
            Change::Upsert(spec) => contexts.push(spec.properties["context"].clone()),
            Change::Synced => break,
            _ => {}
        }
    }
    contexts.sort();
    contexts
}

#[tokio::test]
async fn the_hub_is_no_member() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.yaml");
    std::fs::write(&path, kubeconfig("mgmt", &["eu", "mgmt", "us"])).unwrap();
    let other = folder.path().join("other.yaml");
    std::fs::write(&other, kubeconfig("mgmt", &["mgmt"])).unwrap();
    // The same file by another path.
    let again = folder.path().join(".").join("all.yaml");
    let args = parse(&["--hub-kubeconfig", again.to_str().unwrap()]).unwrap();
    let hub = args.hub().unwrap();
    let files = |paths: &[&Path]| FileProvider::builder().files(paths).build().unwrap();
    assert_eq!(announced(files(&[&path])).await, ["eu", "mgmt", "us"]);
    assert_eq!(announced(hub.members_of(files(&[&path]))).await, ["eu", "us"]);
    let fleet = args.fleet(files(&[&path])).unwrap().build();
    assert_eq!(fleet.providers().len(), 2);
    // Another cluster may have the same context in its file.
    assert_eq!(announced(hub.members_of(files(&[&other]))).await, ["mgmt"]);
}

#[test]
fn a_manager_needs_no_more_than_the_flags() {
    let built = |args: &[&str]| {
        let manager = parse(args).unwrap().manager();
        let manager: Manager = manager
            .provider(FileProvider::builder().build().unwrap())
            .build()
            .unwrap();
        manager.controllers().len()
    };
    assert_eq!(built(&[]), 0);
    assert_eq!(built(&["--serve", "127.0.0.1:0"]), 0);
}

#[tokio::test]
async fn a_flag_that_is_given_and_never_read_ends_the_program() {
    let ended = async |flag: &str, read: fn(&Args)| {
        let args = parse(&[flag, "x"]).unwrap();
        // Before the flags are read, as in `args.manager().fleet(args.fleet(…)?…)`.
        let manager = args.manager().provider(FileProvider::builder().build().unwrap());
        read(&args);
        let manager = manager
            .task("end", |_, _| async { Err("the end".into()) })
            .build()
            .unwrap();
        manager.run().await.unwrap_err().to_string()
    };
    for flag in ["--kubeconfigs", "--globs", "--hub-context"] {
        let error = ended(flag, |_| ()).await;
        assert!(
            error.contains(flag) && error.contains("does not use it"),
            "{error}"
        );
        let read = ended(flag, |args| drop((args.clusters().is_empty(), args.hub()))).await;
        assert!(read.contains("the end"), "{read}");
    }
}
