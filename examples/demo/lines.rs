//! Text where there is no terminal: a line when a step begins, one when it has ended.

use examples::{Step, Summary, print};

use crate::show::Show;

pub(crate) struct Lines;

impl Show for Lines {
    fn intro(&self, text: &str) {
        print(&format!("{text}\n"));
    }

    fn begin(&self, doing: &str) {
        print(&format!("…  {doing}\n"));
    }

    fn step(&self, step: &Step) {
        print(&step.text());
    }

    fn summary(&self, summary: &Summary) {
        print(&summary.text());
    }

    fn hint(&self, hint: &str) {
        print(&format!("\n{hint}\n"));
    }
}
