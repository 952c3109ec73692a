//! The table in docs/metrics.md lists exactly the exposed metrics.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/series.rs"]
mod series;
mod support;

use std::{collections::BTreeSet, fmt::Write, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{
    Action, BoxError, Controller, Request,
    metrics::{METRICS, Metrics, MetricsOptions},
};
use series::Scrape;
use support::{World, until_true};

async fn done(_: Request<ConfigMap>, _: Arc<()>) -> Result<Action, BoxError> {
    Ok(Action::done())
}

/// Prints the table if it differs. `MCR_BLESS=1` writes it to the documentation.
#[tokio::test]
async fn the_table_in_the_documentation_is_what_is_exposed() {
    let mut world = World::new();
    let handle = world.run(
        Controller::<ConfigMap>::new("animals")
            .build(done, Arc::new(()))
            .unwrap(),
    );
    let berlin = world.join("berlin");
    berlin.put_map("default/a", "1");
    until_true(|| handle.status().counts.successes == 1).await;
    let metrics = Metrics::new(&world.fleet, [handle], MetricsOptions::default());
    let scrape = Scrape::parse(&metrics.text());

    let families: Vec<(&str, &str)> = scrape
        .families
        .iter()
        .map(|(name, kind)| (&**name, &**kind))
        .collect();
    let described: Vec<(&str, &str)> = METRICS
        .iter()
        .map(|metric| {
            (
                metric.name.strip_suffix("_total").unwrap_or(metric.name),
                metric.kind.as_str(),
            )
        })
        .collect();
    assert_eq!(families, described);
    let mut seen = BTreeSet::new();
    for series in &scrape.series {
        let metric = METRICS
            .iter()
            .find(|metric| {
                let suffix = series.name.strip_prefix(metric.name);
                suffix.is_some_and(|suffix| ["", "_sum", "_count", "_bucket"].contains(&suffix))
            })
            .unwrap_or_else(|| panic!("{} is not described", series.name));
        let labels: BTreeSet<&str> = series
            .labels
            .keys()
            .map(|key| &**key)
            .filter(|key| *key != "le")
            .collect();
        assert_eq!(labels, metric.labels.iter().copied().collect(), "{}", series.name);
        seen.insert(metric.name);
    }
    // There is no leader election. The cluster has a ready client, so the expiry of its credentials is unknown.
    let without: Vec<_> = METRICS
        .iter()
        .map(|metric| metric.name)
        .filter(|name| !seen.contains(name))
        .collect();
    assert_eq!(
        without,
        ["mcr_leader", "mcr_cluster_credential_expiry_timestamp_seconds"]
    );
    // The names follow the rules of Prometheus, and each metric has a help text.
    for metric in METRICS {
        assert!(metric.name.starts_with("mcr_") && !metric.help.is_empty() && !metric.help.ends_with('.'));
        assert_eq!(
            metric.name.ends_with("_total"),
            metric.kind.as_str() == "counter",
            "{}",
            metric.name
        );
    }

    let mut table = "| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for metric in METRICS {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let (name, kind) = (metric.name, metric.kind.as_str());
        writeln!(
            table,
            "| `{name}` | {kind} | {} | {} |",
            labels.join(", "),
            metric.help
        )
        .unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (begin, end) = ("<!-- table -->\n\n", "\n<!-- end -->");
    let (before, rest) = text.split_once(begin).expect("the place of the table");
    let (is, after) = rest.split_once(end).expect("the end of the table");
    if std::env::var_os("MCR_BLESS").is_some() {
        std::fs::write(page, format!("{before}{begin}{table}{end}{after}")).unwrap();
    } else {
        assert_eq!(
            is, table,
            "docs/metrics.md is not what is exposed; MCR_BLESS=1 puts it right"
        );
    }
    world.end().await;
}
