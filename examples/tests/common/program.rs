//! An example that runs as a child process.

use std::{
    ffi::{OsStr, OsString},
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// The program of an example, next to this test's own.
pub(crate) fn path(example: &str) -> PathBuf {
    let this = std::env::current_exe().unwrap();
    let path = this
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples")
        .join(example);
    assert!(
        path.exists(),
        "{} is not there: build it with cargo build -p examples --all-features --examples",
        path.display()
    );
    path
}

fn command(example: &str) -> Command {
    let path = path(example);
    let mut command = Command::new(path);
    command
        .env_remove("KUBECONFIG")
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

/// Runs an example to its end.
pub(crate) fn run<A: AsRef<OsStr>>(example: &str, args: impl IntoIterator<Item = A>) -> Output {
    run_with(example, args, [("LANG", "C")])
}

/// As [`run`], with environment variables.
pub(crate) fn run_with<A: AsRef<OsStr>, V: AsRef<OsStr>>(
    example: &str,
    args: impl IntoIterator<Item = A>,
    environment: impl IntoIterator<Item = (&'static str, V)>,
) -> Output {
    command(example).envs(environment).args(args).output().unwrap()
}

/// An example that runs and prints JSON lines. Killed when dropped.
pub(crate) struct Program {
    /// None after its end.
    child: Option<Child>,
    lines: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
    errors: Arc<Mutex<String>>,
}

#[derive(Default)]
struct Lines {
    read: Mutex<Vec<Value>>,
    more: Condvar,
}

impl Program {
    pub(crate) fn start<A: AsRef<OsStr>>(example: &str, args: impl IntoIterator<Item = A>) -> Self {
        Self::start_with(example, args, [("LANG", "C")])
    }

    /// With environment variables.
    pub(crate) fn start_with<A: AsRef<OsStr>, V: AsRef<OsStr>>(
        example: &str,
        args: impl IntoIterator<Item = A>,
        environment: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        let json = ["--format", "json"].map(OsString::from);
        let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
        Self::start_text_with(example, json.into_iter().chain(args), environment)
    }

    /// Without `--format json`: each line is a string.
    pub(crate) fn start_text_with<A: AsRef<OsStr>, V: AsRef<OsStr>>(
        example: &str,
        args: impl IntoIterator<Item = A>,
        environment: impl IntoIterator<Item = (&'static str, V)>,
    ) -> Self {
        let mut command = command(example);
        command.envs(environment).args(args);
        Self::spawn(command)
    }

    /// Any program.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, errors) = (Arc::<Lines>::default(), Arc::<Mutex<String>>::default());
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take().unwrap();
        let readers = vec![
            std::thread::spawn({
                let lines = lines.clone();
                move || {
                    for line in stdout.lines() {
                        let line = line.unwrap();
                        let value = serde_json::from_str(&line).unwrap_or(Value::String(line));
                        lines.read.lock().unwrap().push(value);
                        lines.more.notify_all();
                    }
                }
            }),
            std::thread::spawn({
                let errors = errors.clone();
                move || {
                    let mut some = [0; 4096];
                    while let Ok(length @ 1..) = stderr.read(&mut some) {
                        errors
                            .lock()
                            .unwrap()
                            .push_str(&String::from_utf8_lossy(&some[..length]));
                    }
                }
            }),
        ];
        Self {
            child: Some(child),
            lines,
            readers,
            errors,
        }
    }

    /// How many lines there are; those before can be left out in [`after`](Self::after).
    pub(crate) fn mark(&self) -> usize {
        self.lines.read.lock().unwrap().len()
    }

    /// Waits for a line.
    pub(crate) fn line(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.after(0, what, wanted)
    }

    /// Waits for a line after a mark.
    pub(crate) fn after(&self, mark: usize, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        let mut lines = self.lines.read.lock().unwrap();
        loop {
            if let Some(found) = lines.iter().skip(mark).find(|line| wanted(line)) {
                return found.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "no line for {what}; there were {:#?}\n{}",
                lines.iter().skip(mark).collect::<Vec<_>>(),
                self.errors.lock().unwrap()
            );
            lines = self.lines.more.wait_timeout(lines, left).unwrap().0;
        }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.lines.read.lock().unwrap().clone()
    }

    pub(crate) fn log(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Waits until its log has a text so many times. It comes by another way than the lines, sooner or later than they.
    pub(crate) fn logged(&self, text: &str, times: usize) {
        let is_there = || (self.log().matches(text).count() >= times).then_some(());
        self.wait(&format!("{text} in the log"), is_there);
    }

    /// Waits for something about it.
    pub(crate) fn wait<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as Ctrl-C does; it must do so by itself and without an error.
    pub(crate) fn interrupt(self) -> Vec<Value> {
        let lines = self.interrupt_text();
        assert!(
            lines.iter().all(Value::is_object),
            "stdout has nothing but its data: {lines:#?}"
        );
        lines
    }

    /// As [`interrupt`](Self::interrupt), for lines of any form.
    pub(crate) fn interrupt_text(mut self) -> Vec<Value> {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        let mut child = self.child.take().unwrap();
        let status = self.wait("its end after SIGINT", || child.try_wait().unwrap());
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        assert_eq!(status.code(), Some(0), "{}", self.log());
        self.lines()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
