//! Reads the text format of OpenMetrics, strictly.

#![allow(dead_code, unreachable_pub)] // Each test file uses its part.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Clippy takes only functions marked as tests for tests.

use std::collections::BTreeMap;

/// Labels with their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The series of a scrape.
#[derive(Debug, Default)]
pub struct Scrape {
    /// Names and types, in order.
    pub families: Vec<(String, String)>,
    pub series: Vec<Series>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Scrape {
    /// Panics at a text that Prometheus would refuse: a series twice, a series without its family, or no end mark.
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let body = text.strip_suffix("# EOF\n").expect("it ends with EOF");
        let mut seen = std::collections::HashSet::new();
        for line in body.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').unwrap();
                assert!(
                    scrape.families.iter().all(|(known, _)| known != name),
                    "{name} comes twice"
                );
                scrape.families.push((name.to_owned(), kind.to_owned()));
            } else if let Some(help) = line.strip_prefix("# HELP ") {
                assert!(help.contains(' '));
            } else {
                let series = series(line);
                let family = &scrape.families.last().unwrap().0;
                assert!(
                    series.name.starts_with(family.as_str()),
                    "{line} is not of {family}"
                );
                assert!(
                    seen.insert((series.name.clone(), series.labels.clone())),
                    "{line} comes twice"
                );
                scrape.series.push(series);
            }
        }
        scrape
    }

    /// The value of the series that has at least these labels.
    pub fn get(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let mut found = self.series.iter().filter(|series| {
            series.name == name
                && labels
                    .iter()
                    .all(|(key, value)| series.labels.get(*key).is_some_and(|is| is == value))
        });
        let first = found.next()?.value;
        assert!(found.next().is_none(), "several {name} {labels:?}");
        Some(first)
    }

    /// Panics unless each of these series has its value.
    pub fn expect(&self, series: &[(&str, Labels<'_>, f64)]) {
        for (name, labels, value) in series {
            assert_eq!(self.get(name, labels), Some(*value), "{name} {labels:?}");
        }
    }

    /// The series of single clusters.
    pub fn of_clusters(&self) -> impl Iterator<Item = &Series> {
        self.series
            .iter()
            .filter(|series| series.labels.contains_key("cluster"))
    }

    pub fn of_cluster<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a Series> {
        self.of_clusters()
            .filter(move |series| series.labels["cluster"] == cluster)
    }
}

fn series(line: &str) -> Series {
    let (name, mut rest) = line.split_at(line.find(['{', ' ']).unwrap());
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (key, value) = rest.split_once("=\"").unwrap();
            let (value, after) = unescape(value);
            assert!(labels.insert(key.to_owned(), value).is_none(), "{line}");
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after.strip_prefix('}').unwrap();
                    break;
                }
            }
        }
    }
    Series {
        name: name.to_owned(),
        labels,
        value: rest.strip_prefix(' ').unwrap().parse().unwrap(),
    }
}

/// Reads up to the closing quote.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, next)) = chars.next() {
        match next {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    panic!("no end: {text}");
}
