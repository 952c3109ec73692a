//! A target with its measured value, and how it is found in rows.

use crate::row::Row;

/// One target and its measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The suite.
    pub suite: &'static str,
    /// The compared figures.
    pub what: String,
    /// The upper limit, or the lower limit if `least` is set.
    pub limit: f64,
    /// Whether `limit` is a lower limit.
    pub least: bool,
    /// The measured value. `None` if it was not measured.
    pub is: Option<f64>,
    /// The unit; empty for ratios.
    pub unit: &'static str,
}

impl Verdict {
    /// Whether the target is met. `None` if it was not measured.
    pub fn met(&self) -> Option<bool> {
        self.is.map(|is| {
            if self.least {
                is >= self.limit
            } else {
                is <= self.limit
            }
        })
    }
}

/// A figure of a row.
pub(super) type Field = fn(&Row) -> Option<f64>;

/// The rows of one verdict.
pub(super) struct Of<'a> {
    pub(super) rows: &'a [Row],
    pub(super) suite: &'static str,
    /// Of this size; 0 is any.
    pub(super) clusters: usize,
}

impl Of<'_> {
    pub(super) fn row(&self, subject: &str, variant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| {
            let what = (row.suite.as_str(), row.subject.as_str(), row.variant.as_str());
            what == (self.suite, subject, variant) && (self.clusters == 0 || row.clusters == self.clusters)
        })
    }

    pub(super) fn of(&self, subject: &str, variant: &str, field: Field) -> Option<f64> {
        field(self.row(subject, variant)?)
    }

    pub(super) fn at_most(
        &self,
        what: impl Into<String>,
        limit: f64,
        unit: &'static str,
        is: Option<f64>,
    ) -> Verdict {
        Verdict {
            suite: self.suite,
            what: what.into(),
            limit,
            least: false,
            is,
            unit,
        }
    }

    /// The ratio of mcr's figure to that of another subject.
    pub(super) fn ratio(&self, what: &str, other: &str, variant: &str, limit: f64, field: Field) -> Verdict {
        let is = self.of("mcr", variant, field).zip(self.of(other, variant, field));
        let is = is.and_then(|(own, others)| (others > 0.0).then_some(own / others));
        self.at_most(format!("{what}, of {other}'s"), limit, "", is)
    }
}
