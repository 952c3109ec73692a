//! Tests of what belongs to a whole process, such as its log.

/// Runs the calling test in a process of its own. True in that process; in the other one it returns when that has
/// passed.
pub(crate) fn in_a_process_of_its_own(test: &str) -> bool {
    const MARK: &str = "MCR_PROMISES_CHILD";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    // The very program that runs, even if its file has been replaced since.
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap()
    };
    let output = std::process::Command::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    println!("{text}");
    assert!(output.status.success(), "the test failed in its process");
    assert!(text.contains("1 passed"), "no test of the name {test}");
    assert!(!text.contains("panicked"), "something panicked");
    false
}
