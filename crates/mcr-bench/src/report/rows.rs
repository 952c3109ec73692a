use anyhow::Result;

use crate::row::Row;

/// Merges rows. New rows replace all old rows of the same measurement, because the figures of a ratio must come from one
/// call.
pub fn merge(old: Vec<Row>, new: Vec<Row>) -> Vec<Row> {
    let again = |row: &Row| {
        let same = |other: &Row| (other.clusters, &other.variant) == (row.clusters, &row.variant);
        let mut of_suite = new.iter().filter(|other| other.suite == row.suite);
        match row.suite.as_str() {
            // Each size, back end and number of threads is a measurement of its own.
            "fleet" | "update" => of_suite.any(same),
            _ => of_suite.next().is_some(),
        }
    };
    let kept: Vec<Row> = old.into_iter().filter(|row| !again(row)).collect();
    kept.into_iter().chain(new.iter().cloned()).collect()
}

pub(super) fn read(text: &str) -> Result<Vec<Row>> {
    let rows = text.lines().map(serde_json::from_str);
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn write(rows: &[Row]) -> Result<String> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(row)?);
        text.push('\n');
    }
    Ok(text)
}
