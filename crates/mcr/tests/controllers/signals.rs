//! Signals, sent to a child process.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use mcr::Manager;

const ROLE: &str = "MCR_SIGNALS_TEST_ROLE";

/// The child process of the tests below; not a test by itself.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runtime.block_on(async {
        let manager = Manager::single(crate::support::Api::default().client()).task(
            "task",
            move |_, stop| async move {
                // The signal handlers are installed before tasks start.
                eprintln!("ready");
                stop.cancelled().await;
                eprintln!("stopping");
                if role == "deaf" {
                    std::future::pending::<()>().await;
                }
                Ok(())
            },
        );
        // The grace period for a task that ignores its token is longer than the test.
        let manager = manager.shutdown_grace(Duration::from_secs(3600));
        manager.build().unwrap().run().await
    });
    std::process::exit(if result.is_ok() { 0 } else { 7 });
}

fn start(role: &str) -> (Child, impl FnMut(&str)) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["signals::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let wait_for = move |wanted: &str| assert!(lines.any(|line| line.unwrap() == wanted), "no {wanted:?}");
    (child, wait_for)
}

fn signal(child: &Child, name: &str) {
    assert!(
        Command::new("kill")
            .args([name, &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn the_first_signal_ends_gracefully() {
    for name in ["-INT", "-TERM"] {
        let (mut child, mut wait_for) = start("listens");
        wait_for("ready");
        signal(&child, name);
        wait_for("stopping");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
    }
}

#[test]
fn the_second_signal_ends_at_once() {
    let (mut child, mut wait_for) = start("deaf");
    wait_for("ready");
    signal(&child, "-TERM");
    wait_for("stopping");
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(1));
}
