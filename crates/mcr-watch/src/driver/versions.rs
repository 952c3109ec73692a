//! Whether the resource versions of an API server go back, as they do when its data is restored from a backup. No I/O.

use crate::error::WatchError;

/// After so many lists in a row that were made for a lower version and were not of a lower version, versions are not compared any
/// more: there are aggregated API servers whose versions are numbers in no order.
const FALSE_ALARMS: u8 = 3;

/// What a driver knows of the order of the resource versions of its kind. Other kinds may be in another etcd.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// A restore takes the API servers away for a moment, so a request has failed since the last answer that showed the newest
    /// version, or the cluster was down.
    pub(super) unconfirmed: bool,
    false_alarms: u8,
    /// The version before it went back. 0: it has not since the last list.
    before: u64,
}

impl Versions {
    /// Compares a version with the one that the watch has reached.
    ///
    /// # Errors
    /// [`WatchError::WentBack`] if it is lower. Versions that are not numbers are in no order.
    pub(super) fn compare(&mut self, reached: &str, version: &str) -> Result<(), WatchError> {
        match (reached.parse(), version.parse()) {
            (Ok(from), Ok(to)) if to < from && self.false_alarms < FALSE_ALARMS => {
                self.before = from;
                Err(WatchError::WentBack { from, to })
            }
            _ => Ok(()),
        }
    }

    /// A list is complete. Its version counts, even if it is lower than those before.
    pub(super) fn listed(&mut self, version: &str) {
        self.unconfirmed = false;
        let before = std::mem::take(&mut self.before);
        if before > 0 {
            let went_back = version.parse().is_ok_and(|version: u64| version < before);
            self.false_alarms = if went_back { 0 } else { self.false_alarms + 1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lower_number_has_gone_back() {
        for (reached, version, back) in [
            ("250", "205", true),
            ("1000", "999", true),
            ("999", "1000", false),
            ("250", "250", false),
            ("opaque-b", "opaque-a", false),
            ("250", "1/7", false),
        ] {
            let result = Versions::default().compare(reached, version);
            assert_eq!(result.is_err(), back, "{reached} {version}");
        }
    }

    #[test]
    fn each_restore_is_noticed_and_versions_in_no_order_cost_three_lists() {
        for (listed, noticed) in [("206", 10), ("251", 3)] {
            let mut versions = Versions::default();
            let lists = (0..10).filter(|_| {
                let back = versions.compare("250", "205").is_err();
                versions.listed(listed);
                back
            });
            assert_eq!(lists.count(), noticed);
        }
    }
}
