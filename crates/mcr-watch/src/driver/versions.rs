//! Whether the resource versions of an API server go back, as they do when its data is restored from a backup. No I/O.

use crate::WatchError;

/// After this many suspicions in a row that the list after them has not confirmed, versions are not compared any more. There
/// are aggregated API servers whose versions are numbers in no order, and each suspicion costs a list.
const FALSE_ALARMS: u32 = 3;

/// What a driver knows of the order of the resource versions of its kind. Versions of other kinds may be those of another
/// etcd, so they prove nothing.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// Whether the data may have been restored since the last answer that showed the newest version: a restore takes the API
    /// servers away for a moment, so a request has failed.
    unconfirmed: bool,
    /// The version before it went back, until a list has shown whether that is so.
    before: Option<u64>,
    false_alarms: u32,
}

impl Versions {
    /// A request has failed, or the cluster counts as down.
    pub(super) fn failed(&mut self) {
        self.unconfirmed = true;
    }

    /// Whether to ask for the newest version before a watch continues. A server whose versions are higher again by the time
    /// it sends an event would not be noticed otherwise: watches from a version of the future begin without an error.
    pub(super) fn are_unconfirmed(&self) -> bool {
        self.unconfirmed && self.false_alarms < FALSE_ALARMS
    }

    /// The API server has shown its newest version, and the watch may continue.
    pub(super) fn confirmed(&mut self) {
        self.unconfirmed = false;
    }

    /// Compares a version with the one that the watch has reached.
    ///
    /// # Errors
    /// [`WatchError::WentBack`] if it is lower. Versions that are not numbers are in no order.
    pub(super) fn compare(&mut self, reached: &str, version: &str) -> Result<(), WatchError> {
        let (Ok(from), Ok(to)) = (reached.parse(), version.parse()) else {
            return Ok(());
        };
        if to >= from || self.false_alarms >= FALSE_ALARMS {
            return Ok(());
        }
        self.before = Some(from);
        Err(WatchError::WentBack { from, to })
    }

    /// A list is complete. Its version counts, even if it is lower than those before.
    pub(super) fn listed(&mut self, version: &str) {
        self.unconfirmed = false;
        if let (Some(before), Ok(version)) = (self.before.take(), version.parse::<u64>()) {
            let confirmed = version < before;
            self.false_alarms = if confirmed { 0 } else { self.false_alarms + 1 };
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
            ("99999999999999999999", "1", false),
        ] {
            let result = Versions::default().compare(reached, version);
            assert_eq!(result.is_err(), back, "{reached} {version}");
        }
    }

    #[test]
    fn versions_in_no_order_cost_three_lists_and_restores_are_always_noticed() {
        let mut versions = Versions::default();
        for _ in 0..10 {
            assert!(versions.compare("250", "205").is_err(), "a restore");
            versions.listed("206");
        }
        for _ in 0..FALSE_ALARMS {
            versions.failed();
            assert!(versions.are_unconfirmed());
            assert!(versions.compare("250", "205").is_err());
            versions.listed("251");
        }
        versions.failed();
        assert!(versions.compare("250", "205").is_ok() && !versions.are_unconfirmed());
    }
}
