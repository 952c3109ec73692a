//! Exec credential plugins. Shell scripts serve as plugins.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use mcr_access::{
    ApiVersion, CredentialError, CredentialSource, Endpoint, ExecPlugin, PluginService, Refresh,
};
use mcr_testkit::{log::Log, waiting::hold_clock};
use tokio::time::advance;
use tracing::Level;

const CANARY: &str = "canary-31c9";

/// A folder for a plugin that appends a line to the file `runs` on every run, and then executes a script.
struct Plugin {
    dir: tempfile::TempDir,
}

impl Plugin {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn source(&self, script: &str) -> ExecPlugin {
        let script = format!("echo run >> {}\n{script}", self.path("runs"));
        ExecPlugin::new("sh").args(["-c".to_owned(), script])
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("runs"))
            .unwrap_or_default()
            .lines()
            .count()
    }
}

fn answer(token: &str) -> String {
    format!(
        r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{token}"}}}}'"#
    )
}

fn token(credential: &mcr_access::Credential) -> String {
    use secrecy::ExposeSecret;
    credential.token.as_ref().unwrap().expose_secret().to_owned()
}

fn shown(error: &CredentialError) -> String {
    let text = error.to_string();
    assert!(!format!("{text} {error:?}").contains(CANARY), "{error:?}");
    text
}

async fn failure(script: &str) -> String {
    let plugin = Plugin::new();
    let error = plugin
        .source(script)
        .credential(Refresh::First)
        .await
        .unwrap_err();
    shown(&error)
}

#[tokio::test]
async fn failures_report_what_to_do_and_show_no_output() {
    let right = "check that it is the right program and version, and its arguments";
    let by_hand = "run it by hand with the same arguments to see why (its output is not shown since it may hold credentials)";
    let printed = |script: &str, what: &str| (script.to_owned(), format!("printed {what}; {right}"));
    let credential = |fields: &str, what: &str| {
        let json =
            format!(r#"{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"{fields}}}"#);
        printed(&format!("echo '{json}'"), what)
    };
    let status = |fields: &str, what: &str| credential(&format!(r#","status":{{{fields}}}"#), what);
    let failed = |script: &str, how: &str| (script.to_owned(), format!("failed ({how}); {by_hand}"));
    for (script, message) in [
        failed("echo canary-31c9; echo canary-31c9 >&2; exit 3", "exit status: 3"),
        failed("kill -9 $$", "signal: 9 (SIGKILL)"),
        printed("true", "nothing instead of an ExecCredential"),
        printed(
            "echo 'Please log in, canary-31c9'",
            "something that is not an ExecCredential in JSON (line 1, column 1)",
        ),
        printed(
            r#"echo '{"kind":"canary-31c9"}'"#,
            "an object whose kind is not ExecCredential",
        ),
        printed(
            r#"echo '{"kind":"ExecCredential","apiVersion":"canary-31c9"}'"#,
            "an ExecCredential whose apiVersion is not client.authentication.k8s.io/v1, which its configuration asks for",
        ),
        credential("", "an ExecCredential without a status"),
        status(
            r#""token":"""#,
            "an ExecCredential with neither a token nor a client certificate",
        ),
        status(
            r#""clientCertificateData":"canary-31c9""#,
            "a clientCertificateData without a clientKeyData",
        ),
        status(
            r#""clientKeyData":"canary-31c9""#,
            "a clientKeyData without a clientCertificateData",
        ),
        status(
            r#""clientKeyData":"canary-31c9","clientCertificateData":"x""#,
            "an ExecCredential whose clientCertificateData holds no PEM certificate (-----BEGIN CERTIFICATE-----); copy the certificate again",
        ),
        status(
            r#""token":"canary-31c9 x""#,
            "a token with characters that don't fit into a header",
        ),
        status(
            r#""token":"t","expirationTimestamp":"canary-31c9""#,
            "an ExecCredential whose expirationTimestamp is not an RFC 3339 time",
        ),
        (
            "head -c 3000000 /dev/zero; echo canary-31c9".to_owned(),
            "printed more than 1 MiB and was killed; it does not seem to be a credential plugin".to_owned(),
        ),
    ] {
        assert_eq!(failure(&script).await, format!("exec plugin \"sh\" {message}"));
    }
}

#[tokio::test]
async fn a_missing_program_shows_its_hint() {
    let missing = ExecPlugin::new("/opt/none/kubelogin");
    let error = missing.clone().credential(Refresh::First).await.unwrap_err();
    assert!(error.is_permanent());
    assert_eq!(
        shown(&error),
        "exec plugin \"/opt/none/kubelogin\" is not there: install it, or correct the command or PATH"
    );
    let error = missing
        .install_hint("brew install\nkubelogin")
        .credential(Refresh::First)
        .await
        .unwrap_err();
    assert_eq!(
        shown(&error),
        "exec plugin \"/opt/none/kubelogin\" is not there: brew install\\nkubelogin"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plain");
    std::fs::write(&file, "").unwrap();
    let error = ExecPlugin::new(&file)
        .credential(Refresh::First)
        .await
        .unwrap_err();
    assert!(
        shown(&error).ends_with("can't be started: permission denied; make it executable for this user"),
        "{error}"
    );
}

fn is_running(pid_file: &str) -> bool {
    let pid = std::fs::read_to_string(pid_file).unwrap();
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.trim()).join("stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Waits in real time, because the clock of tokio stands still in some tests.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a script has written a whole line to a file.
fn written(file: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'))
}

#[tokio::test(start_paused = true)]
async fn a_hung_plugin_is_killed_with_its_children() {
    let _clock = hold_clock();
    let plugin = Plugin::new();
    let (child, started) = (plugin.path("child"), plugin.path("started"));
    let source = plugin
        .source(&format!(
            "sleep 1000 & echo $! > {child}; echo canary-31c9; echo yes > {started}; sleep 1000"
        ))
        .deadline(Duration::from_secs(7));
    let asking = tokio::spawn(async move { source.credential(Refresh::First).await });
    until("it hangs", || written(&started)).await;
    advance(Duration::from_millis(6_900)).await;
    tokio::task::yield_now().await;
    assert!(!asking.is_finished() && is_running(&child));
    advance(Duration::from_millis(200)).await;
    let error = asking.await.unwrap().unwrap_err();
    assert_eq!(
        shown(&error),
        "exec plugin \"sh\" did not finish within 7s and was killed; run it by hand with the same arguments to see \
         why (its output is not shown since it may hold credentials), or raise AccessPolicy::plugin_deadline"
    );
    until("the child is dead", || !is_running(&child)).await;
}

/// The system may have given the ID of the group to another one after the plugin has ended.
#[tokio::test]
async fn children_that_hold_the_pipe_open_do_not_matter_and_are_left_alone() {
    let plugin = Plugin::new();
    let (may_end, ended) = (plugin.path("may-end"), plugin.path("ended"));
    let child = format!("(while [ ! -e {may_end} ]; do sleep 0.01; done; echo yes > {ended}) &");
    let script = format!("{child}\n{}", answer("t"));
    // To wait for the child would take until the deadline, and fail.
    let credential = plugin.source(&script).credential(Refresh::First).await.unwrap();
    assert_eq!(token(&credential), "t");
    std::fs::write(&may_end, "").unwrap();
    until("the child ends by itself", || written(&ended)).await;
}

#[tokio::test]
async fn giving_up_kills_the_plugin() {
    let plugin = Plugin::new();
    let pid = plugin.path("pid");
    let source = plugin.source(&format!("echo $$ > {pid}; exec sleep 1000"));
    tokio::select! {
        ended = source.credential(Refresh::First) => panic!("{ended:?}"),
        () = until("it runs", || written(&pid)) => {}
    }
    until("the plugin is dead", || !is_running(&pid)).await;
}

#[tokio::test]
async fn one_run_serves_all_clusters_that_ask_the_same() {
    let plugin = Plugin::new();
    let script = format!("sleep 0.3\n{}", answer("shared"));
    let sources: Vec<_> = (0..50).map(|_| plugin.source(&script)).collect();
    let all = futures::future::join_all(sources.iter().map(|source| source.credential(Refresh::First))).await;
    assert!(
        all.iter()
            .all(|credential| token(credential.as_ref().unwrap()) == "shared")
    );
    assert_eq!(plugin.runs(), 1);
    // The next cluster gets the cached result.
    plugin.source(&script).credential(Refresh::First).await.unwrap();
    assert_eq!(plugin.runs(), 1);
    // A plugin with another environment has its own run.
    plugin
        .source(&script)
        .env("PROFILE", "other")
        .credential(Refresh::First)
        .await
        .unwrap();
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn a_401_bypasses_the_cache_once() {
    let plugin = Plugin::new();
    let script = format!("n=$(wc -l < {})\n{}", plugin.path("runs"), answer("t'$n'"));
    let (one, two) = (plugin.source(&script), plugin.source(&script));
    assert_eq!(token(&one.credential(Refresh::First).await.unwrap()), "t1");
    assert_eq!(token(&two.credential(Refresh::First).await.unwrap()), "t1");
    assert_eq!(token(&one.credential(Refresh::Unauthorized).await.unwrap()), "t2");
    // The cache has a newer credential than the one that was refused.
    assert_eq!(token(&two.credential(Refresh::Unauthorized).await.unwrap()), "t2");
    // The second 401 soon after gets the cached credential.
    assert_eq!(token(&two.credential(Refresh::Unauthorized).await.unwrap()), "t2");
    assert_eq!(plugin.runs(), 2);
}

/// A plugin whose tokens differ, and expire at this time.
fn expiring(plugin: &Plugin, at: &str) -> ExecPlugin {
    let script = format!(
        r#"echo '{{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","status":{{"token":"'$$'","expirationTimestamp":"{at}"}}}}'"#
    );
    plugin.source(&script).api_version(ApiVersion::V1Beta1)
}

#[tokio::test]
async fn the_expiry_is_read_in_all_forms_of_rfc_3339() {
    for (at, expires) in [
        ("2126-01-01T00:00:00Z", Some(4_922_899_200)),
        ("2126-01-01T01:00:00.000000000000+01:00", Some(4_922_899_200)),
        ("9999-12-31T23:59:59Z", Some(253_402_300_799)),
        ("9999-12-31T00:00:00Z", Some(253_402_214_400)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T01:00:00+01:00", None),
    ] {
        let source = expiring(&Plugin::new(), at);
        let credential = source.credential(Refresh::First).await.unwrap();
        let expires = expires.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(credential.expires_at, expires, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_runs_of_a_plugin_are_paced_whatever_its_credentials_are_good_for() {
    let _clock = hold_clock();
    let soon = |seconds| {
        let at = SystemTime::now() + Duration::from_secs(seconds);
        jiff::Timestamp::try_from(at).unwrap().to_string()
    };
    let past = || "2020-01-01T00:00:00Z".to_owned();
    // Asked twice a second for a minute. One that has expired on arrival is a failure: 1, 2, 4, 8, 16 and 32 seconds.
    for (at, runs) in [(past(), 5..=8), (soon(300), 6..=8), (soon(3600), 6..=8)] {
        let plugin = Plugin::new();
        let source = expiring(&plugin, &at);
        for _ in 0..120 {
            source.credential(Refresh::Unauthorized).await.unwrap();
            advance(Duration::from_millis(500)).await;
        }
        assert!(runs.contains(&plugin.runs()), "{at}: {}", plugin.runs());
    }
    let plugin = Plugin::new();
    let at = soon(5);
    let source = expiring(&plugin, &at);
    for (pause, runs) in [(0, 1), (500, 1), (3_000, 2)] {
        advance(Duration::from_millis(pause)).await;
        source.credential(Refresh::Expiring).await.unwrap();
        assert_eq!(plugin.runs(), runs, "{at}");
    }
}

/// Nor while no cluster uses the plugin.
#[tokio::test(start_paused = true)]
async fn failures_are_not_repeated_at_once() {
    let _clock = hold_clock();
    let plugin = Plugin::new();
    let fails = async || {
        let error = plugin.source("exit 1").credential(Refresh::First).await;
        shown(&error.unwrap_err())
    };
    let first = fails().await;
    for _ in 0..5 {
        advance(Duration::from_millis(150)).await;
        assert_eq!(fails().await, first);
    }
    assert_eq!(plugin.runs(), 1);
    advance(Duration::from_millis(500)).await;
    fails().await;
    assert_eq!(plugin.runs(), 2);
}

#[tokio::test]
async fn the_plugin_learns_what_it_may_know() {
    let plugin = Plugin::new();
    let info = plugin.path("info");
    let script = format!(
        "printf '%s' \"$KUBERNETES_EXEC_INFO\" > {info}; readlink /proc/self/fd/0 >> {info}\n{}",
        answer("t")
    );
    let source = plugin.source(&script).env("A", "b");
    source.credential(Refresh::First).await.unwrap();
    assert_eq!(
        std::fs::read_to_string(&info).unwrap(),
        "{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false}}/dev/null\n"
    );
    let mut endpoint = Endpoint::new("https://h:6443".parse().unwrap()).certificate_authority("pem");
    endpoint.tls_server_name = Some("name".into());
    let source = source.cluster_info(&endpoint, Some(serde_json::json!({"clusterName": "x"})), false);
    source.credential(Refresh::First).await.unwrap();
    let text = std::fs::read_to_string(&info).unwrap();
    let input: serde_json::Value = serde_json::from_str(text.strip_suffix("/dev/null\n").unwrap()).unwrap();
    assert_eq!(
        input["spec"]["cluster"],
        serde_json::json!({"server": "https://h:6443", "tls-server-name": "name",
            "certificate-authority-data": "cGVt", "config": {"clusterName": "x"}})
    );
}

#[tokio::test]
async fn nothing_a_plugin_prints_is_logged() {
    let log = Log::of_this_thread(Level::TRACE);
    tracing::info!("the log works");
    let plugin = Plugin::new();
    let credential = plugin
        .source(&format!("echo {CANARY} >&2\n{}", answer(CANARY)))
        .credential(Refresh::First)
        .await
        .unwrap();
    assert!(!format!("{credential:?}").contains(CANARY));
    failure("echo canary-31c9 >&2; echo canary-31c9; exit 1").await;
    let text = log.text();
    assert!(text.contains("the log works"));
    assert!(!text.contains(CANARY), "{text}");
}

#[tokio::test]
async fn a_service_that_panics_fails_or_answers_too_much_has_no_credential() {
    type Answer = fn() -> Result<Vec<u8>, mcr_access::BoxError>;
    for (answer, message) in [
        (
            (|| panic!("{CANARY}")) as Answer,
            "panicked, which is a fault in its code; what this process has written to its standard error says where",
        ),
        (|| Err("no login\n".into()), "failed: no login"),
        (
            || Ok(vec![b' '; (1 << 20) + 1]),
            "answered with more than 1 MiB; it does not seem to be a credential plugin",
        ),
    ] {
        let source = ExecPlugin::new("login").service(PluginService::new(move |_| async move { answer() }));
        for _ in 0..2 {
            let error = source.credential(Refresh::First).await.unwrap_err();
            assert_eq!(shown(&error), format!("exec plugin \"login\" {message}"));
        }
    }
}
