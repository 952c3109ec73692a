//! Follows `docs/quickstart-kind.md` as a person would: types its commands in the order they stand there and waits for what it says is seen.

mod page;
mod terminal;

use mcr_testkit::e2e::{E2e, skipped_in_part};

use page::{Page, Step};
use terminal::{Machine, Running};

#[test]
fn the_quickstart_on_kind_does_what_it_reports() {
    let Some(e2e) = E2e::from_env() else { return };
    let machine = Machine::new(&e2e.kind(), &e2e.kubectl());
    let page = Page::read("docs/quickstart-kind.md", "fleet-", machine.prefix());
    let (mut program, mut left_out) = (None::<Running>, false);
    for step in &page.steps {
        match step {
            Step::Type { lines, .. } if !machine.has_programs_of(lines) => {
                skipped_in_part(lines, "the engine is not Docker");
                left_out = true;
                continue;
            }
            Step::See(_) if left_out => continue,
            _ => left_out = false,
        }
        match step {
            Step::Start(line) => {
                if let Some(before) = program.take() {
                    before.interrupt();
                }
                program = Some(machine.start(line));
            }
            Step::Type { lines, code } => machine.run(lines, *code),
            Step::See(lines) => machine.screen.shows(lines),
        }
    }
    program
        .expect("the page has a program that goes on running")
        .interrupt();

    assert_eq!(machine.clusters(), "", "the page promises that nothing is left");
    assert_eq!(machine.contexts(), "", "the page promises that nothing is left");
    page.reports_all(&machine.screen.lines());
}
