//! JSON: one object for each step, one at the end.

use serde_json::json;

use crate::show::{Show, Step, Summary, in_millis, print};

pub(crate) struct Json;

impl Show for Json {
    fn begin(&self, _: &str) {}

    fn step(&self, step: &Step) {
        print(&format!("{}\n", json!(step)));
    }

    fn summary(&self, summary: &Summary) {
        let done = summary.steps.iter().filter(|step| step.ok).count();
        let failed = summary.steps.len() - done;
        let summary = json!({
            "summary": {
                "backend": summary.backend,
                "ok": summary.ok,
                "done": done,
                "failed": failed,
                "tookMs": in_millis(summary.took),
            },
        });
        print(&format!("{summary}\n"));
    }
}
