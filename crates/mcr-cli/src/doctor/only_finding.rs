//! The finding that a test of the diagnosis is about.

use super::finding::Finding;
use crate::level::Level;

/// The only finding that is not in order.
#[track_caller]
pub(super) fn only(found: &[Finding], level: Level) -> Finding {
    let bad: Vec<&Finding> = found
        .iter()
        .filter(|finding| finding.result != Level::Ok)
        .collect();
    assert!(bad.len() == 1 && bad[0].result == level, "{bad:#?}");
    bad[0].clone()
}

impl Finding {
    pub(super) fn fix_text(&self) -> Option<String> {
        self.fix.as_ref().map(ToString::to_string)
    }
}
