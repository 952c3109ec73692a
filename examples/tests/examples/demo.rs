use std::{
    ffi::OsStr,
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::Value;

use crate::program::{Program, run};

/// Runs the demo to its end and reads its lines: a step that takes longer than its bound fails.
fn every_step_succeeds(backend: &str) {
    let args = ["--backend", backend, "--once", "--format", "json", "--patient"];
    let output = run("demo", args);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, steps) = lines.split_last().unwrap();
    assert!(
        steps
            .iter()
            .all(|step| step["ok"] == true && step["tookMs"].is_number() && step["backend"] == backend),
        "{text}"
    );
    let names: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    let expected = [
        "start",
        "discover",
        "write",
        "join",
        "rotate",
        "blackhole",
        "outage",
        "isolation",
        "missed",
        "recover",
        "silence",
        "heal",
        "rotated",
        "leave",
    ];
    assert_eq!(names, expected);
    let summary = &summary["summary"];
    assert_eq!(
        (&summary["ok"], &summary["failed"], &summary["backend"]),
        (&true.into(), &0.into(), &backend.into())
    );
    let step = |name: &str| steps.iter().find(|step| step["step"] == name).unwrap();
    assert_eq!(step("rotated")["details"]["lists"], 0);
    let hole = &step("blackhole")["details"];
    for when in ["before", "during"] {
        assert_eq!(hole[when]["objects"], 60, "{text}");
        assert!(hole[when]["p50Ms"].is_number(), "{text}");
    }
    let silence = &step("silence")["details"];
    assert!(
        silence["reason"].as_str().unwrap().contains("no answer"),
        "{text}"
    );
}

#[test]
fn every_step_of_the_demo_succeeds_and_it_ends_by_itself() {
    every_step_succeeds("real");
}

#[test]
fn without_binaries_the_demo_simulates_and_reports_so_and_serves_its_report() {
    let nothing = tempfile::tempdir().unwrap();
    let environment = [
        ("KUBEBUILDER_ASSETS", OsStr::new("")),
        ("MCR_ASSETS_DIR", nothing.path().as_os_str()),
    ];
    let demo = Program::start_with("demo", ["--serve", "127.0.0.1:0"], environment);
    let start = demo.line("the start", |line| line["step"] == "start");
    assert_eq!(start["backend"], "sim");
    demo.line("the fourth cluster", |line| line["step"] == "join");
    let url = start["details"]["url"].as_str().unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let clusters = get("/clusters");
    for name in ["amsterdam", "berlin", "chicago", "dakar"] {
        assert!(clusters.contains(name), "{clusters}");
    }
    assert!(get("/metrics").contains("\nmcr_"));
    assert!(demo.log().contains("running on the simulator"), "{}", demo.log());
    demo.interrupt();
}
