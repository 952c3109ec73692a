//! Tests that look at what belongs to a whole process, such as its log.

use std::{
    io,
    sync::{Arc, Mutex},
};

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

/// All that this process logs, of all libraries, at TRACE.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Once in a process.
    pub(crate) fn capture() -> Self {
        let log = Self::default();
        let sink = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || sink.clone())
            .init();
        log
    }

    /// The lines that have this text in them.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let all = String::from_utf8_lossy(&bytes);
        all.lines()
            .filter(|line| line.contains(text))
            .map(str::to_owned)
            .collect()
    }
}
