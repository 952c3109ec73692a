//! The page.

use std::{collections::BTreeMap, fmt::Write};

use super::{Line, Machine, Verdict};
use crate::row::{Figure, Row};

/// What each suite measures, as on the page: `## suite`, an empty line, and one line of text.
const SUITES: &str = include_str!("suites.txt");

fn rounded(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The headings of a table, and the cells of each row. Columns without content are left out.
fn table(rows: &[&Row]) -> String {
    let all = |cell: &dyn Fn(&Row) -> Option<String>| -> Vec<Option<String>> {
        rows.iter().map(|row| cell(row)).collect()
    };
    let mut columns = vec![
        ("subject", all(&|row| Some(row.subject.clone()))),
        (
            "variant",
            all(&|row| Some(row.variant.clone()).filter(|text| !text.is_empty())),
        ),
        ("clusters", all(&|row| Some(row.clusters.to_string()))),
        ("objects each", all(&|row| Some(row.objects.to_string()))),
    ];
    columns.extend(
        Figure::ALL.map(|(figure, _, _, heading, size)| {
            (heading, all(&|row| Some(rounded(row.get(figure)? / size))))
        }),
    );
    columns.push((
        "",
        all(&|row| Some(format!("skipped: {}", row.skipped.as_ref()?))),
    ));
    columns.retain(|(_, cells)| cells.iter().any(Option::is_some));
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let mut text = format!(
        "| {} |\n|{}\n",
        headings.join(" | "),
        " --- |".repeat(headings.len())
    );
    for at in 0..rows.len() {
        let cell = |(_, cells): &(&str, Vec<Option<String>>)| cells.get(at).cloned().flatten();
        let cells: Vec<String> = columns
            .iter()
            .map(|column| cell(column).unwrap_or_default())
            .collect();
        // Writing to a String never fails.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn targets(verdicts: &[Verdict]) -> String {
    let mut text = "| suite | what | target | measured | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for verdict in verdicts {
        let unit = format!(" {}", verdict.unit).trim_end().to_owned();
        let limit = if verdict.least { "at least" } else { "at most" };
        let is = verdict.is.map_or_else(
            || "not measured".to_owned(),
            |is| format!("{}{unit}", rounded(is)),
        );
        let met = match verdict.met() {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "",
        };
        let _ = writeln!(
            text,
            "| {} | {} | {limit} {}{unit} | {is} | {met} |",
            verdict.suite,
            verdict.what,
            rounded(verdict.limit)
        );
    }
    let missed = verdicts.iter().filter(|verdict| verdict.met() == Some(false));
    let reasons = missed.map(|verdict| {
        let reason = verdict
            .reason
            .as_deref()
            .unwrap_or("the reason is not known yet.");
        format!("- `{}`, {}: {reason}\n", verdict.suite, verdict.what)
    });
    let reasons: String = reasons.collect();
    if !reasons.is_empty() {
        let _ = write!(text, "\nMissed, and why:\n\n{reasons}");
    }
    text
}

/// One line for each subject over the sizes of `fleet` on a real server.
pub(super) fn lines(rows: &[Row], figure: Figure) -> Vec<Line> {
    let size = Figure::ALL
        .iter()
        .find(|(known, ..)| *known == figure)
        .map_or(1.0, |(.., size)| *size);
    let mut lines = BTreeMap::<&str, Vec<(f64, f64)>>::new();
    // The floor is measured at one size only.
    let of_fleet = |row: &&Row| row.suite == "fleet" && row.variant.is_empty() && row.subject != "floor";
    for row in rows.iter().filter(of_fleet) {
        let point = row.get(figure).map(|value| (row.clusters as f64, value / size));
        lines.entry(&row.subject).or_default().extend(point);
    }
    let mut lines: Vec<Line> = lines
        .into_iter()
        .map(|(name, points)| (name.to_owned(), points))
        .collect();
    lines.retain(|(_, points)| !points.is_empty());
    for (_, points) in &mut lines {
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    }
    lines
}

/// The floor beside the figures of the ratios: it shows how far mcr could still improve.
fn limits(rows: &[Row]) -> String {
    let find = |suite: &str, subject: &str| {
        rows.iter().find(|row| {
            let what = (row.suite.as_str(), row.subject.as_str(), row.variant.as_str());
            what == (suite, subject, "") && row.clusters == 500
        })
    };
    let fleet = |subject: &str| find("fleet", subject);
    let (Some(mcr), Some(floor)) = (fleet("mcr"), fleet("floor")) else {
        return String::new();
    };
    let mut text = "| what | floor | mcr | floor, of kube-rs-tuned | floor, of go-serial | mcr, of floor |\n\
                    | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (suite, what, figure, size) in [
        ("fleet", "time until all is synced, s", Figure::SyncedS, 1.0),
        ("fleet", "CPU until synced, s", Figure::CpuS, 1.0),
        ("fleet", "idle memory, MB", Figure::RssIdleKb, 1000.0),
        ("update", "one write seen by all, median, ms", Figure::P50Ms, 1.0),
        ("update", "one write seen by all, p99, ms", Figure::P99Ms, 1.0),
    ] {
        let of = |subject: &str| Some(find(suite, subject)?.get(figure)? / size);
        let (Some(own), Some(least)) = (of("mcr"), of("floor")) else {
            continue;
        };
        let part = |subject: &str| of(subject).map_or_else(String::new, |other| rounded(least / other));
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {} | {} |",
            rounded(least),
            rounded(own),
            part("kube-rs-tuned"),
            part("go-serial"),
            rounded(own / least)
        );
    }
    let json = rows.iter().find(|row| row.variant == "configmap json bytes");
    if let Some(json) = json.and_then(|row| row.get(Figure::Value)) {
        let memory = |row: &Row| row.get(Figure::RssIdleKb);
        let objects = (mcr.clusters * mcr.objects) as f64;
        let of = |subject: &str| Some(objects * json / 1000.0 / memory(fleet(subject)?)?);
        let part = |subject: &str| of(subject).map_or_else(|| "?".to_owned(), rounded);
        let _ = writeln!(
            text,
            "\nThe {objects} objects themselves are {} MB of JSON without managedFields: {} of what go-serial takes in all, and {} of what \
             kube-rs-tuned does.",
            rounded(objects * json / 1e6),
            part("go-serial"),
            part("kube-rs-tuned"),
        );
        if let (Some(own), Some(least)) = (memory(mcr), memory(floor)) {
            let least = least + objects * json / 1000.0;
            let _ = writeln!(
                text,
                "With the floor's connections and program that makes {} MB; mcr takes {} of it.",
                rounded(least / 1000.0),
                rounded(own / least),
            );
        }
    }
    format!("## What is left to be won\n\n{text}\n")
}

/// The page as Markdown.
pub fn page(rows: &[Row], verdicts: &[Verdict], machine: &Machine) -> String {
    let versions: Vec<String> = machine
        .versions
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let mut text = format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench --write` on {}: {}, {} cores, {} GB, {}.\n{}.\n\n\
         Each subject runs in a process of its own and does the same job; the kernel reports its memory and CPU time. Each family is a \
         program of its own, as it would be deployed: `mcr`, both of kube-rs, both of Go, the floor; those in Rust are built with the \
         profile `deployed` (fat LTO, one codegen unit). Each has its default runtime, tokio's or Go's, with a thread for each core \
         (variant `threads N`: with so many); the server shares the cores. Subjects take turns within a run, figures are medians of the \
         runs. `cargo xtask bench fleet --kubeconfig FILE` measures on clusters of yours.\n\n\
         ## Targets\n\n\
         Ratios are of one call on one machine. Suites that the last call did not measure keep the rows of an earlier call, which may have run on another machine.\n\n{}\n",
        machine.date,
        machine.processor,
        machine.cores,
        machine.memory_gb,
        machine.kernel,
        versions.join(", "),
        targets(verdicts),
    );
    text.push_str(&limits(rows));
    for part in SUITES.split("## ").skip(1) {
        let (suite, about) = part.split_once('\n').unwrap_or_default();
        let about = about.trim();
        let own: Vec<&Row> = rows.iter().filter(|row| row.suite == suite).collect();
        if own.is_empty() {
            continue;
        }
        let runs = own.iter().map(|row| row.runs).max().unwrap_or_default();
        let _ = write!(
            text,
            "## {suite}\n\n{about} Medians of {runs} runs.\n\n{}\n",
            table(&own)
        );
        if suite == "fleet" {
            text.push_str("![Memory over the number of clusters](benchmarks/memory.svg)\n\n![Time over the number of clusters](benchmarks/time.svg)\n\n");
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}
