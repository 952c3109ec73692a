//! The demo, to its end.

use serde_json::Value;

use crate::program::run;

const STEPS: [&str; 18] = [
    "start",
    "proxy",
    "publish",
    "controller",
    "bind",
    "order",
    "connect",
    "event",
    "change",
    "password",
    "drift",
    "failing",
    "away",
    "move",
    "restart",
    "unbind",
    "rebind",
    "end",
];

#[test]
fn mongodb_every_step_of_the_demo_succeeds_and_it_ends_by_itself() {
    let output = run("kcp-mongodb-demo", ["--format", "json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (summary, steps) = lines.split_last().unwrap();
    let is_good = |step: &Value| step["ok"] == true && step["tookMs"].is_number();
    assert!(steps.iter().all(is_good), "{text}");
    let names = steps.iter().map(|step| step["step"].as_str().unwrap());
    // Nobody moves a workspace of a real kcp from outside.
    let is_real = summary["summary"]["backend"] == "real";
    let wanted = STEPS.into_iter().filter(|step| !(is_real && *step == "move"));
    assert!(names.eq(wanted), "{text}");
    assert_eq!(summary["summary"]["ok"], true, "{text}");
}
