//! Text on a terminal: the clusters and the steps, redrawn in place.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use examples::{Step, Summary, duration, print};

use crate::show::{Row, Show};

/// Wider lines would break, and then there are more lines to go up than were printed.
const WIDTH: usize = 79;

#[derive(Default)]
pub(crate) struct Live(Mutex<State>);

#[derive(Default)]
struct State {
    /// Lines of the last picture.
    drawn: usize,
    clusters: Vec<String>,
    steps: Vec<Step>,
    doing: Option<(String, Instant)>,
    hint: String,
    frame: usize,
}

impl Live {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Show for Live {
    fn intro(&self, text: &str) {
        // Above what is drawn, and never gone over.
        print(&format!("{text}\n\n"));
    }

    fn begin(&self, doing: &str) {
        let mut state = self.state();
        state.doing = Some((doing.to_owned(), Instant::now()));
        state.draw();
    }

    fn step(&self, step: &Step) {
        let mut state = self.state();
        state.steps.push(step.clone());
        state.doing = None;
        state.draw();
    }

    fn summary(&self, summary: &Summary) {
        let mut state = self.state();
        // The steps move below the clusters for good, as wide as they are.
        state.steps.clear();
        state.draw();
        print(&summary.text());
        state.drawn = 0;
    }

    fn hint(&self, hint: &str) {
        let mut state = self.state();
        state.hint = hint.to_owned();
        print("\n");
    }

    fn clusters(&self, rows: &[Row]) {
        let mut state = self.state();
        state.clusters = rows.iter().map(line).collect();
        state.frame += 1;
        state.draw();
    }
}

/// A cluster, coloured after it was cut to fit.
fn line(row: &Row) -> String {
    let last = row.last.map_or_else(String::new, |last| {
        format!("{:.0} s ago", last.as_secs_f64().floor())
    });
    let state = format!("{:<12}", row.state);
    let rest = format!("{:>10}  {:>10}  {last:>9}", row.objects, row.reconciles);
    let colour = match row.state {
        "Ready" => 32,
        "Unreachable" => 31,
        _ => 33,
    };
    let cluster = cut(&format!("{:<12}", row.cluster), 12);
    let reason = row.reason.as_deref().unwrap_or_default();
    let reason = cut(
        reason,
        WIDTH.saturating_sub(2 + 13 + 12 + rest.chars().count() + 2),
    );
    format!("  {cluster} \x1b[{colour}m{state}\x1b[0m{rest}  {reason}")
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

impl State {
    fn draw(&mut self) {
        let heading = format!(
            "  {:<13}{:<12}{:>10}  {:>10}  {:>9}",
            "CLUSTER", "STATE", "CONFIGMAPS", "RECONCILES", "LAST"
        );
        let mut lines = vec![format!("\x1b[1m{heading}\x1b[0m")];
        lines.extend(self.clusters.iter().cloned());
        if self.clusters.is_empty() {
            lines.push("  no clusters yet".to_owned());
        }
        lines.push(String::new());
        for step in &self.steps {
            let took = duration(step.took);
            let what = cut(&step.what, WIDTH.saturating_sub(14 + 2 + took.chars().count()));
            let mark = if step.ok {
                "\x1b[32m✓\x1b[0m"
            } else {
                "\x1b[31m✗\x1b[0m"
            };
            lines.push(format!("{mark}  {:<11}{what}  \x1b[2m{took}\x1b[0m", step.step));
        }
        if let Some((doing, since)) = &self.doing {
            let spinner = ['|', '/', '-', '\\'][self.frame % 4];
            let doing = cut(doing, WIDTH - 12);
            lines.push(format!(
                "{spinner}  {doing}  \x1b[2m{:.0} s\x1b[0m",
                since.elapsed().as_secs_f64().floor()
            ));
        }
        // A command to be copied is not cut; it stays out of the lines that are gone over again.
        if !self.hint.is_empty() {
            print(&format!("{}\n\n", std::mem::take(&mut self.hint)));
            self.drawn = 0;
        }
        let mut picture = String::new();
        if self.drawn > 0 {
            picture += &format!("\x1b[{}A", self.drawn);
        }
        for line in &lines {
            picture += line;
            // Clears what the last picture had further right.
            picture += "\x1b[K\n";
        }
        picture += "\x1b[J";
        self.drawn = lines.len();
        print(&picture);
    }
}
