//! The targets, and whether rows meet them. `targets.json` has them, one a line: the figure of a row, and where it is a ratio the row
//! that it is divided by. The figures of a ratio come from one call, so that the machine does not matter.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::row::{Figure, Row};

/// A target as it is stored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Target {
    suite: String,
    what: String,
    #[serde(flatten)]
    of: Of,
    /// What differs in the row that the figure is divided by.
    over: Option<Of>,
    /// The upper limit.
    at_most: f64,
    /// The lower limit, in place of the upper one.
    at_least: Option<f64>,
    /// The variant of the undisturbed run, whose p99 makes the limit: a quarter more, or ten milliseconds.
    undisturbed: Option<String>,
    /// The unit; none for ratios.
    unit: String,
    /// The figure is divided by it, to have the unit.
    size: Option<f64>,
    /// Why it is missed, as far as it is known.
    missed: Option<String>,
}

/// Which figure of which row.
#[derive(Clone, Debug, Default, Deserialize)]
struct Of {
    figure: Option<Figure>,
    /// `mcr`, if there is none. `best` is the one with the largest figure of all others.
    subject: Option<String>,
    /// Empty, if there is none. `*` is each variant but the undisturbed one, in a target of its own.
    variant: Option<String>,
    /// Any size, if there is none.
    clusters: Option<usize>,
}

impl Of {
    fn or(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            figure: self.figure.or(other.figure),
            subject: self.subject.or(other.subject),
            variant: self.variant.or(other.variant),
            clusters: self.clusters.or(other.clusters),
        }
    }

    fn selects(&self, row: &Row) -> bool {
        self.subject.as_deref().unwrap_or("mcr") == row.subject
            && self.variant.as_deref().unwrap_or_default() == row.variant
            && self.clusters.is_none_or(|clusters| clusters == row.clusters)
    }

    fn find(&self, rows: &[&Row]) -> Option<f64> {
        let figure = self.figure?;
        if self.subject.as_deref() == Some("best") {
            let others = rows.iter().filter(|row| row.subject != "mcr");
            return others.filter_map(|row| row.get(figure)).max_by(f64::total_cmp);
        }
        rows.iter().find(|row| self.selects(row))?.get(figure)
    }
}

/// One target and its measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The suite.
    pub suite: String,
    /// The compared figures.
    pub what: String,
    /// The upper limit, or the lower limit if `least` is set.
    pub limit: f64,
    /// Whether `limit` is a lower limit.
    pub least: bool,
    /// The measured value. `None` if it was not measured.
    pub is: Option<f64>,
    /// The unit; empty for ratios.
    pub unit: String,
    /// Why the target is missed, if it is known.
    pub reason: Option<String>,
}

impl Verdict {
    /// Whether the target is met. `None` if it was not measured.
    pub fn met(&self) -> Option<bool> {
        let met = |is| {
            if self.least {
                is >= self.limit
            } else {
                is <= self.limit
            }
        };
        self.is.map(met)
    }
}

impl Target {
    fn verdicts(self, rows: &[Row]) -> Vec<Verdict> {
        let own: Vec<&Row> = rows.iter().filter(|row| row.suite == self.suite).collect();
        if self.of.variant.as_deref() != Some("*") {
            return vec![self.verdict(&own)];
        }
        let varied = own
            .iter()
            .filter(|row| row.subject == "mcr" && Some(&row.variant) != self.undisturbed.as_ref());
        let of_variant = |row: &&Row| {
            let mut target = self.clone();
            target.what = format!("{} {}", self.what, row.variant);
            target.of.variant = Some(row.variant.clone());
            let mut verdict = target.verdict(&own);
            // A subject that never synced misses its target.
            verdict.is = verdict.is.or((verdict.limit > 0.0).then_some(f64::INFINITY));
            verdict
        };
        varied.map(of_variant).collect()
    }

    fn verdict(self, own: &[&Row]) -> Verdict {
        let mut is = self.of.find(own);
        if let Some(over) = &self.over {
            let over = over.clone().or(&self.of).find(own).filter(|over| *over > 0.0);
            is = is.zip(over).map(|(is, over)| is / over);
        }
        let mut limit = self.at_least.unwrap_or(self.at_most);
        if let Some(variant) = self.undisturbed {
            let quiet = Of {
                variant: Some(variant),
                ..Of::default()
            };
            let quiet = quiet.or(&self.of).find(own);
            limit = quiet.map_or(0.0, |quiet| (1.25 * quiet).max(quiet + 10.0));
            is = quiet.and(is);
        }
        Verdict {
            suite: self.suite,
            what: self.what,
            limit,
            least: self.at_least.is_some(),
            is: is.map(|is| is / self.size.unwrap_or(1.0)),
            unit: self.unit,
            reason: self.missed,
        }
    }
}

/// Every target with what was measured, in the order of the suites.
///
/// # Errors
///
/// Never, because the stored targets are sound.
pub fn verdicts(rows: &[Row]) -> Result<Vec<Verdict>> {
    let targets: Vec<Target> =
        serde_json::from_str(include_str!("targets.json")).context("reading the stored targets")?;
    Ok(targets
        .into_iter()
        .flat_map(|target| target.verdicts(rows))
        .collect())
}
