//! A page to follow: its fenced blocks.

use std::{fs, path::Path};

/// What a person does with a block.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Starts a program that goes on running, in a terminal of its own.
    Start(String),
    /// Types lines that end by themselves, the last with this code.
    Type { lines: String, code: i32 },
    /// Sees these lines.
    See(Vec<String>),
}

pub(super) struct Page {
    pub(super) steps: Vec<Step>,
}

impl Page {
    /// A page of the repository, with another prefix for the names in it.
    pub(super) fn read(path: &str, prefix: &str, ours: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(&text.replace(prefix, ours))
    }

    fn parse(text: &str) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut rest = text;
        while let Some((_, block)) = rest.split_once("\n```") {
            let (language, block) = block.split_once('\n').unwrap_or_default();
            let (block, after) = block.split_once("\n```").unwrap_or_default();
            match language {
                "sh" if block.contains(" --example ") => {
                    assert_eq!(block.lines().count(), 1, "it needs a block of its own:\n{block}");
                    steps.push(Step::Start(block.to_owned()));
                }
                "sh" => steps.push(Step::Type {
                    lines: block.to_owned(),
                    code: 0,
                }),
                "text" => {
                    // What finds a problem says so with its exit code as well.
                    if let (true, Some(Step::Type { code, .. })) =
                        (block.contains("PROBLEM "), steps.last_mut())
                    {
                        *code = 1;
                    }
                    steps.push(Step::See(block.lines().map(squeezed).collect()));
                }
                other => panic!("nobody knows how to follow a block of {other:?}:\n{block}"),
            }
            rest = after;
        }
        assert!(!steps.is_empty(), "the page has no blocks");
        Self { steps }
    }

    /// What it tells of an object was seen as often as it says, and no other deletion.
    pub(super) fn reports_all(&self, seen: &[String]) {
        let reported: Vec<&String> = self
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::See(lines) => Some(lines),
                _ => None,
            })
            .flatten()
            .collect();
        let count = |of: &String| {
            let (reported, seen) = (reported.iter().filter(|line| **line == of), seen.iter());
            (reported.count(), seen.filter(|line| *line == of).count())
        };
        let objects = reported.iter().copied().filter(|line| line.starts_with("live "));
        for line in objects.chain(seen.iter().filter(|line| line.starts_with("deleted "))) {
            let (reported, times) = count(line);
            assert_eq!(
                reported,
                times,
                "{line}: how often the page says it, and how often it was seen\n{}",
                seen.join("\n")
            );
        }
    }
}

/// A line without its alignment.
pub(super) fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line has what the page shows, in which `…` stands for whatever is of no interest.
pub(super) fn has(line: &str, shown: &str) -> bool {
    let mut rest = line;
    shown
        .split('…')
        .map(str::trim)
        .all(|piece| match rest.split_once(piece) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
}

#[test]
fn a_page_is_read_as_it_is_meant() {
    let page = Page::parse(
        "# A\n\n```sh\nkind a fleet-\nb\n```\n\nand\n\n```sh\ncargo run --example c\n```\n```sh\ndoctor\n```\n```text\nPROBLEM  d\n```\n",
    );
    let typed = |lines: &str, code| Step::Type {
        lines: lines.to_owned(),
        code,
    };
    let steps = [
        typed("kind a fleet-\nb", 0),
        Step::Start("cargo run --example c".to_owned()),
        typed("doctor", 1),
        Step::See(vec!["PROBLEM d".to_owned()]),
    ];
    assert_eq!(page.steps, steps);
    assert!(has("12:00 cluster=a from=b to=c", "cluster=a … to=c"));
    assert!(!has("to=c cluster=a", "cluster=a … to=c"));
}

#[test]
fn a_page_that_leaves_something_out_is_found() {
    let page = Page::parse("\n```sh\na\n```\n\n```text\nlive  a  b/c\n```\n");
    let holds = |seen: &[&str]| {
        let seen: Vec<String> = seen.iter().map(|line| (*line).to_owned()).collect();
        std::panic::catch_unwind(|| page.reports_all(&seen)).is_ok()
    };
    assert!(holds(&["$ a", "live a b/c", "live other b/c"]));
    assert!(!holds(&["live a b/c", "live a b/c"]), "seen twice");
    assert!(!holds(&["live a b/c", "deleted a b/c"]), "no word of a deletion");
    assert!(!holds(&[]), "not seen");
}
