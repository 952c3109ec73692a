//! What a demo does, step by step, and how long each step takes.

use std::{
    future::Future,
    io::Write,
    time::{Duration, Instant},
};

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::Backend;

/// What a step reports when it succeeded.
#[derive(Debug)]
pub struct Done {
    /// What happened, in words.
    pub what: String,
    /// How long it took.
    pub took: Duration,
    /// The same in numbers.
    pub details: Value,
}

/// What happened in a step and how long it took.
#[derive(Debug, Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// A short name, the same every time.
    pub step: &'static str,
    /// Whether the servers are real.
    pub backend: Backend,
    /// What happened, in words.
    pub what: String,
    /// How long it took.
    #[serde(rename = "tookMs", serialize_with = "millis")]
    pub took: Duration,
    /// Whether it succeeded.
    pub ok: bool,
    /// The same in numbers.
    pub details: Value,
}

impl Step {
    /// Does a step. Returns its value, if it succeeded.
    pub async fn run<T>(
        step: &'static str,
        backend: Backend,
        run: impl Future<Output = anyhow::Result<(T, Done)>>,
    ) -> (Self, Option<T>) {
        let begun = Instant::now();
        let (done, value) = match run.await {
            Ok((value, done)) => (done, Some(value)),
            Err(error) => {
                let done = Done {
                    what: format!("{error:#}"),
                    took: begun.elapsed(),
                    details: Value::Null,
                };
                (done, None)
            }
        };
        let step = Self {
            step,
            backend,
            what: done.what,
            took: done.took,
            ok: value.is_some(),
            details: done.details,
        };
        (step, value)
    }

    /// The step as a line of text.
    pub fn text(&self) -> String {
        format!(
            "{}  {}: {} ({})\n",
            mark(self.ok),
            self.step,
            self.what,
            duration(self.took)
        )
    }

    /// The step as a line of JSON.
    pub fn json(&self) -> String {
        format!("{}\n", json!(self))
    }
}

fn mark(ok: bool) -> &'static str {
    if ok { "✓" } else { "✗" }
}

/// All that happened.
#[derive(Debug)]
pub struct Summary {
    /// Whether the servers are real.
    pub backend: Backend,
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// How long all took.
    pub took: Duration,
    /// Whether all succeeded.
    pub ok: bool,
}

impl Summary {
    /// The steps that failed.
    pub fn failed(&self) -> String {
        let failed = self.steps.iter().filter(|step| !step.ok);
        failed
            .map(|step| format!("{} ({})", step.step, step.what))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The table at the end.
    pub fn text(&self) -> String {
        let width = self
            .steps
            .iter()
            .map(|step| step.what.chars().count())
            .max()
            .unwrap_or_default();
        let mut text = format!("\n   {:<11}{:<width$}  {:>8}\n", "STEP", "WHAT HAPPENED", "TOOK");
        for step in &self.steps {
            text += &format!(
                "{}  {:<11}{:<width$}  {:>8}\n",
                mark(step.ok),
                step.step,
                step.what,
                duration(step.took)
            );
        }
        text + &format!("   {:<11}{:<width$}  {:>8}\n", "in all", "", duration(self.took))
    }

    /// The same as a line of JSON.
    pub fn json(&self) -> String {
        let done = self.steps.iter().filter(|step| step.ok).count();
        let summary = json!({
            "summary": {
                "backend": self.backend,
                "ok": self.ok,
                "done": done,
                "failed": self.steps.len() - done,
                "tookMs": in_millis(self.took),
            },
        });
        format!("{summary}\n")
    }
}

/// A duration for people.
pub fn duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds < 0.01 => format!("{:.1} ms", seconds * 1000.0),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

/// Milliseconds with three digits after the point.
pub fn in_millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

fn millis<S: Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_millis(*took))
}

/// Prints; that nobody reads is no reason to leave servers running half way through a step.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
