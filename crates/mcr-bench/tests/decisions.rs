//! What is decided without I/O: rows, statistics, the plan, messages, figures, and the objects that are the same in every run.
#![allow(clippy::unwrap_used)]

use std::{collections::HashSet, path::Path, time::Duration};

use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use mcr_bench::{
    alone::steps,
    driver::Subject,
    figures::{self, Stored, grown},
    objects::{config_map, large_pod},
    plan::{Step, Suite, everything, progress},
    row::{Figure, Row},
    run::Options,
    stats::{median, percentile, slope},
    subject::message::{Message, Observation},
};
use serde_json::Value;

#[test]
fn medians_leave_out_what_a_run_does_not_report() {
    let run = |synced: Option<f64>, lists| {
        let row = Row::new("fleet", "mcr", 500, 102).with(Figure::Lists, lists);
        row.with(Figure::SyncedS, synced)
    };
    let row = Row::medians(&[run(Some(3.0), 1.0), run(None, 2.0), run(Some(1.0), 9.0)]).unwrap();
    assert_eq!(row.runs, 3);
    let wanted = [(Figure::SyncedS, 2.0), (Figure::Lists, 2.0)];
    assert_eq!(row.figures, wanted.into());
}

#[test]
fn a_line_has_only_what_applies_and_is_read_again() {
    let row = Row::new("update", "go-serial", 2, 3).with(Figure::P99Ms, 1.5);
    let line = serde_json::to_string(&row).unwrap();
    let wanted = r#"{"suite":"update","subject":"go-serial","clusters":2,"objects":3,"runs":0,"p99_ms":1.5}"#;
    assert_eq!(line, wanted);
    assert_eq!(serde_json::from_str::<Row>(&line).unwrap(), row);
    let row = row.with(Figure::RssPeakKb, 2500.0).skipped("no Go");
    let wanted = "2 x 3       peak 2.50MB  p99 1.50ms  SKIPPED: no Go";
    assert!(row.to_string().ends_with(wanted), "{row}");
}

#[test]
fn values_are_sorted_and_interpolated_and_a_line_has_its_slope() {
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
    assert_eq!(percentile(&[2.0, 1.0], 75.0), Some(1.75));
    assert_eq!(percentile(&[9.0, 2.0, 1.0], 100.0), Some(9.0));
    assert_eq!(slope(&[(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]), Some(2.0));
    assert_eq!(slope(&[(1.0, 5.0), (1.0, 7.0)]), None);
}

fn options() -> Options {
    Options {
        subjects: Subject::ALL.to_vec(),
        ..Options::default()
    }
}

#[test]
fn everything_is_every_suite_with_the_sizes_that_targets_are_about_and_ends_in_time() {
    let plan = everything(&options(), None);
    let all: Option<Duration> = plan.iter().map(|step| step.takes).sum();
    assert!(all.unwrap() <= Duration::from_secs(45 * 60), "{all:?}");
    for suite in Suite::value_variants() {
        assert!(plan.iter().any(|step| step.suite == *suite), "{suite:?}");
    }
    for (clusters, sim) in [(500, false), (500, true), (5_000, true)] {
        let is = |step: &&Step| step.options.clusters == Some(clusters) && step.options.sim == sim;
        let measured = plan.iter().filter(is).flat_map(|step| &step.options.subjects);
        assert!(measured.count() > 1, "{clusters}");
    }
}

#[test]
fn a_subject_that_was_not_asked_for_is_measured_nowhere_but_the_floor_is() {
    let asked = Options {
        subjects: vec![Subject::Mcr],
        ..Options::default()
    };
    let plan = everything(&asked, Some(4));
    let measured = plan.iter().flat_map(|step| step.options.subjects.clone());
    let others: Vec<Subject> = measured.filter(|subject| *subject != Subject::Mcr).collect();
    assert!(
        !others.is_empty() && others.iter().all(|subject| *subject == Subject::Floor),
        "{others:?}"
    );
    assert!(plan.iter().all(|step| step.options.runs == 4));
}

#[test]
fn it_prints_what_comes_and_when_all_will_be_done() {
    let step = |suite, seconds| Step {
        suite,
        options: Options {
            clusters: Some(5),
            objects: Some(2),
            ..options()
        },
        takes: Some(Duration::from_secs(seconds)),
    };
    let steps = [step(Suite::Queue, 30), step(Suite::SharedScope, 600)];
    let elapsed = Duration::from_secs(90);
    assert_eq!(
        progress(&steps, 1, elapsed, None),
        "bench: step 2 of 2: shared-scope 5 x 2; 2 min so far, about 10 min to go"
    );
    let limit = Some(Duration::from_secs(210));
    assert!(progress(&steps, 1, elapsed, limit).ends_with("about 2 min to go"));
}

#[test]
fn lines_are_what_the_go_program_writes() {
    let read = |line| serde_json::from_str::<Message>(line).unwrap();
    assert_eq!(read(r#"{"at":5,"event":"synced"}"#), Message::Synced { at: 5 });
    assert_eq!(
        read(r#"{"at":5,"event":"applied","failed":1}"#),
        Message::Applied { at: 5, failed: 1 }
    );
    assert_eq!(
        read(r#"{"beats":[{"cluster":"c","seq":1,"at":3}],"event":"beats"}"#),
        Message::Beats {
            beats: vec![Observation {
                cluster: "c".to_owned(),
                seq: 1,
                at: 3
            }]
        }
    );
}

#[test]
fn a_config_map_holds_about_one_kilobyte_that_is_no_repetition() {
    for number in 0..100 {
        let map = config_map(number);
        let texts: Vec<&str> = map["data"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_str)
            .collect();
        let length: usize = texts.iter().map(|text| text.len()).sum();
        assert!((900..1_200).contains(&length), "{number}: {length} bytes");
        let lines: HashSet<&str> = texts.iter().flat_map(|text| text.lines()).collect();
        assert!(lines.len() > 10, "{number}: {} different lines", lines.len());
    }
}

#[test]
fn pods_have_four_to_eight_kilobytes_and_are_pods() {
    let sizes: Vec<usize> = (0..2_000)
        .map(|number| {
            let mut pod = large_pod(number);
            let managed = pod["metadata"]["managedFields"].take().to_string().len();
            assert!((2_000..6_000).contains(&managed), "{managed}");
            pod.to_string().len()
        })
        .collect();
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*least >= 4_000 && *most <= 8_200, "{least} to {most}");
    let mean = sizes.iter().sum::<usize>() / sizes.len();
    assert!((4_500..6_500).contains(&mean), "{mean}");
    let typed: Pod = serde_json::from_value(large_pod(5)).unwrap();
    // Nothing is misspelled: what the type knows is what was made.
    let mut again = serde_json::to_value(&typed).unwrap();
    let mut made = large_pod(5);
    for pod in [&mut again, &mut made] {
        for condition in pod["status"]["conditions"].as_array_mut().unwrap() {
            condition.as_object_mut().unwrap().remove("lastProbeTime");
        }
    }
    assert_eq!(again, made);
}

fn stored(queue: f64, pod: f64) -> Stored {
    Stored {
        instructions: [("queue".to_owned(), queue)].into(),
        bytes: [("pod".to_owned(), pod)].into(),
    }
}

#[test]
fn a_tenth_more_is_borne_and_what_is_beyond_or_has_no_stored_figure_is_named() {
    let none: [&str; 0] = [];
    assert_eq!(grown(&stored(1000.0, 500.0), &stored(1100.0, 400.0)), none);
    assert_eq!(
        grown(&stored(1000.0, 500.0), &stored(1101.0, 600.0)),
        [
            "instructions of queue: 1000 before, 1101 now (+10 %)",
            "bytes of pod: 500 before, 600 now (+20 %)"
        ]
    );
    assert_eq!(grown(&Stored::default(), &stored(1.0, 1.0)).len(), 2);
}

#[test]
fn the_stored_figures_are_of_all_that_is_counted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("figures.json");
    let stored = figures::read(&path).unwrap();
    for step in steps::Step::value_variants() {
        let name = step.to_possible_value().unwrap();
        assert!(stored.instructions.contains_key(name.get_name()), "{step:?}");
    }
    assert_eq!(stored.bytes.len(), 4);
}
