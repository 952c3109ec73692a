//! The log of a process of its own, because a process has one log.

use std::process::Command;

use crate::parse;

#[test]
#[ignore = "the test below runs it in a process of its own"]
fn logs_for_the_test_below() {
    let format = std::env::var("LOG_FORMAT").unwrap_or_else(|_| "text".to_owned());
    parse(&["--log-format", &format]).unwrap().init_log();
    tracing::error!(target: "kube_client::client", "CANARY");
    tracing::info!("information");
    tracing::debug!("detail");
}

fn logged(format: &str, filter: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "log::logs_for_the_test_below",
            "--ignored",
            "--nocapture",
        ])
        .env("LOG_FORMAT", format)
        .env("RUST_LOG", filter)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_log_follows_the_flag_and_the_variable_and_never_has_kubes_client() {
    let text = logged("text", "");
    assert!(text.contains("information") && !text.contains("detail"), "{text}");
    let json = logged("json", "trace");
    let messages: Vec<String> = json
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| Some(line["fields"]["message"].as_str()?.to_owned()))
        .collect();
    assert_eq!(messages, ["information", "detail"], "{json}");
    let wrong = logged("text", "mcr=loud");
    assert!(
        wrong.contains("RUST_LOG is not a filter") && wrong.contains("information"),
        "{wrong}"
    );
    for text in [text, json, wrong] {
        assert!(!text.contains("CANARY"), "{text}");
    }
}
