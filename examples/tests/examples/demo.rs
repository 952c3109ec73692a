use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::run;

#[test]
fn every_step_of_the_demo_succeeds_and_it_ends_by_itself() {
    let started = Instant::now();
    let output = run("demo", ["--once", "--format", "json"]);
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
            .all(|step| step["ok"] == true && step["tookMs"].is_number()),
        "{text}"
    );
    let names: Vec<&str> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    let expected = [
        "start",
        "discover",
        "write",
        "join",
        "rotate",
        "outage",
        "isolation",
        "missed",
        "recover",
        "rotated",
        "leave",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&summary["summary"]["ok"], &summary["summary"]["failed"]),
        (&true.into(), &0.into())
    );
    let listed = steps.iter().find(|step| step["step"] == "rotated").unwrap();
    assert_eq!(listed["details"]["lists"], 0);
    assert!(
        started.elapsed() < Duration::from_secs(120),
        "it took {:?}",
        started.elapsed()
    );
}

#[test]
fn the_demo_explains_itself() {
    let text = String::from_utf8(run("demo", ["--help"]).stdout).unwrap();
    for word in ["cargo xtask demo", "--once", "--format"] {
        assert!(text.contains(word), "{text}");
    }
}
