//! Runs single tests, with or without a bug.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bugs::Test;

/// The time limit of a test, longer than any test in the table takes. A test that hangs must fail by its own
/// deadlines. If it is ended here, it has not caught the bug.
const LIMIT: Duration = Duration::from_secs(300);

/// How many tests run at once. That may be more than there are cores, because tests mostly wait.
const AT_ONCE: usize = 4;

/// The failure of a test.
pub(super) struct Failed {
    pub(super) after: Duration,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// The test has failed by itself.
    Test,
    /// The run has failed in another way, which proves nothing about the bug.
    Otherwise(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Test => write!(f, "the test failed after {:.1} s", self.after.as_secs_f64()),
            Kind::Otherwise(why) => f.write_str(why),
        }
    }
}

/// The environment in which tests run.
pub(super) struct Bench {
    programs: BTreeMap<(String, String), PathBuf>,
    assets: PathBuf,
    /// The copy of the workspace with the bugs.
    workspace: PathBuf,
    /// The folder for the output of the tests, with one file for each.
    output: PathBuf,
}

impl Bench {
    pub(super) fn new(
        programs: BTreeMap<(String, String), PathBuf>,
        assets: &Path,
        workspace: PathBuf,
    ) -> Result<Self> {
        let output = crate::workspace::target()?.join("planted").join("logs");
        std::fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
        Ok(Self {
            programs,
            assets: assets.to_path_buf(),
            workspace,
            output,
        })
    }

    /// Runs tests, each with the given bug. The results are in the same order.
    pub(super) fn all(&self, trials: &[(Test, Option<&str>)]) -> Vec<(Test, Result<(), Failed>)> {
        let next = Mutex::new(0..trials.len());
        let results = Mutex::new(BTreeMap::new());
        let work = || {
            while let Some(at) = lock(&next).next() {
                let (test, bug) = trials[at];
                let result = self.run_trial(test, bug);
                lock(&results).insert(at, (test, result));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(work);
            }
        });
        std::mem::take(&mut *lock(&results)).into_values().collect()
    }

    fn run_trial(&self, test: Test, bug: Option<&str>) -> Result<(), Failed> {
        let started = Instant::now();
        let shown = self.output.join(format!(
            "{}.{}.log",
            test.name.replace("::", "."),
            bug.unwrap_or("none")
        ));
        let ended = self.run(test, bug, &shown);
        let after = started.elapsed();
        let otherwise = |why: String| {
            Err(Failed {
                after,
                kind: Kind::Otherwise(format!("{why}; see {}", shown.display())),
            })
        };
        let status = match ended {
            Ok(Some(status)) => status,
            Ok(None) => return otherwise(format!("did not end within {} s", LIMIT.as_secs())),
            Err(error) => return otherwise(format!("{error:#}")),
        };
        let announced = std::fs::read(&shown).unwrap_or_default();
        let announced = String::from_utf8_lossy(&announced);
        // If the program has crashed, or does not contain the test, there is no result.
        if status.success() && announced.contains("test result: ok. 1 passed") {
            Ok(())
        } else if announced.contains("test result: FAILED. 0 passed; 1 failed") {
            Err(Failed {
                after,
                kind: Kind::Test,
            })
        } else {
            otherwise(format!("ended with {status} and without a result"))
        }
    }

    /// Runs one test. `None` if it has not ended in time.
    fn run(&self, test: Test, bug: Option<&str>, shown: &Path) -> Result<Option<ExitStatus>> {
        let key = (test.package.to_owned(), test.program.to_owned());
        let program = self.programs.get(&key).context("it was not built")?;
        let output = File::create(shown)?;
        let mut command = Command::new(program);
        command
            .args(["--exact", test.name, "--include-ignored", "--nocapture"])
            .current_dir(self.workspace.join("crates").join(test.package))
            .env("KUBEBUILDER_ASSETS", &self.assets)
            .env_remove("MCR_PLANTED")
            .stdout(output.try_clone()?)
            .stderr(output);
        if let Some(bug) = bug {
            command.env("MCR_PLANTED", bug);
        }
        let mut child = command.spawn()?;
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill()?;
        child.wait()?;
        Ok(None)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
