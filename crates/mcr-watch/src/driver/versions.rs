//! Whether the resource versions of an API server go back, as they do when its data is restored from a backup. No I/O.

use crate::WatchError;

/// How often in a row a lower version leads to a list. There are aggregated API servers whose versions are numbers in no order.
const LISTS: u8 = 3;

/// What a driver knows of the order of the resource versions of its kind. Versions of other kinds may be those of another
/// etcd, so they prove nothing.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// Whether the data may have been restored since the last answer that showed the newest version: a restore takes the API
    /// servers away for a moment, so a request has failed.
    unconfirmed: bool,
    /// How often a lower version has led to a list.
    lists: u8,
    /// The version before it went back. 0: it has not since the last list.
    before: u64,
    /// Whether the last list was of a lower version, too.
    went_back: bool,
}

impl Versions {
    /// A request has failed, or the cluster counts as down.
    pub(super) fn failed(&mut self) {
        self.unconfirmed = true;
    }

    /// Whether to ask for the newest version before a watch continues. A server whose versions are higher again by the time
    /// it sends an event would not be noticed otherwise: watches from a version of the future begin without an error.
    pub(super) fn are_unconfirmed(&self) -> bool {
        self.unconfirmed && self.lists < LISTS
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
        if to >= from || self.lists >= LISTS {
            return Ok(());
        }
        self.lists += 1;
        self.before = from;
        Err(WatchError::WentBack { from, to })
    }

    /// A list is complete. Its version counts, even if it is lower than those before.
    pub(super) fn listed(&mut self, version: &str) {
        self.unconfirmed = false;
        let before = std::mem::take(&mut self.before);
        if before > 0 {
            self.went_back = version.parse().is_ok_and(|version: u64| version < before);
        }
    }

    /// A watch has lasted, and its versions did not go back. So they are in order, if the last list was right to be made.
    pub(super) fn lasted(&mut self) {
        if self.went_back {
            self.lists = 0;
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
    fn each_restore_is_noticed_and_versions_in_no_order_cost_three_lists() {
        for (listed, noticed) in [("206", true), ("251", false)] {
            let mut versions = Versions::default();
            for i in 0..10 {
                versions.failed();
                let expected = noticed || i < LISTS;
                assert_eq!(versions.are_unconfirmed(), expected);
                assert_eq!(versions.compare("250", "205").is_err(), expected, "{listed} {i}");
                versions.listed(listed);
                versions.lasted();
            }
        }
    }

    #[test]
    fn versions_that_keep_going_back_cost_three_lists() {
        let mut versions = Versions::default();
        let lists = (0..10).filter(|_| {
            let back = versions.compare("250", "205").is_err();
            versions.listed("206");
            back
        });
        assert_eq!(lists.count(), 3);
    }
}
