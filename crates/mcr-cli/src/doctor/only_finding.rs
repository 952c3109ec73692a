//! The finding that a test of the diagnosis is about.

use super::{diagnosis_cluster_api::Obstacle, finding::Finding};
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

/// All findings are in order.
#[track_caller]
pub(super) fn fine(found: &[Finding]) {
    assert!(
        found.iter().all(|finding| finding.result == Level::Ok),
        "{found:#?}"
    );
}

impl Obstacle {
    /// The obstacle has this level, what was seen this part, and the text of the fix that one.
    #[track_caller]
    pub(super) fn is(self, level: Level, saw: &str, fix: &str) {
        let advice = self.fix.map(|fix| fix.to_string()).unwrap_or_default();
        assert!(self.level == level && self.saw.contains(saw), "{}", self.saw);
        assert!(advice.contains(fix), "{advice}");
    }
}

impl Finding {
    /// What was seen has this part.
    #[track_caller]
    pub(super) fn shows(&self, part: &str) -> &Self {
        assert!(self.saw.contains(part), "no {part}: {self:?}");
        self
    }

    /// The text of the fix has this part.
    #[track_caller]
    pub(super) fn advises(&self, part: &str) -> &Self {
        let fix = self.fix_text().unwrap();
        assert!(fix.contains(part), "no {part}: {fix}");
        self
    }

    pub(super) fn fix_text(&self) -> Option<String> {
        self.fix.as_ref().map(ToString::to_string)
    }
}
