//! JSON: one object for each step, one at the end.

use examples::{Step, Summary, print};

use crate::show::Show;

pub(crate) struct Json;

impl Show for Json {
    fn begin(&self, _: &str) {}

    fn step(&self, step: &Step) {
        print(&step.json());
    }

    fn summary(&self, summary: &Summary) {
        print(&summary.json());
    }
}
