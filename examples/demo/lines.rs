//! Text where there is no terminal: a line when a step begins, one when it has ended.

use crate::show::{Show, Step, Summary, duration, print};

pub(crate) struct Lines;

impl Show for Lines {
    fn intro(&self, text: &str) {
        print(&format!("{text}\n"));
    }

    fn begin(&self, doing: &str) {
        print(&format!("…  {doing}\n"));
    }

    fn step(&self, step: &Step) {
        let mark = if step.ok { "✓" } else { "✗" };
        print(&format!(
            "{mark}  {}: {} ({})\n",
            step.step,
            step.what,
            duration(step.took)
        ));
    }

    fn summary(&self, summary: &Summary) {
        print(&summary.text());
    }

    fn hint(&self, hint: &str) {
        print(&format!("\n{hint}\n"));
    }
}
