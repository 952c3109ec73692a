//! Holds all clean-ups back while so few clusters are selected that a fault is likelier than a choice.

use std::collections::HashSet;

use mcr_core::{Cluster, ClusterName};

/// The clusters of the fleet but the hub.
#[derive(Default)]
pub(super) struct Brake {
    all: HashSet<ClusterName>,
    /// Those that have been selected, and that the selector does not exclude.
    selected: HashSet<ClusterName>,
    /// Those that were selected and are excluded now, until [`releases`](Self::releases).
    lost: HashSet<ClusterName>,
    /// Whether the log has the warning.
    warned: bool,
}

impl Brake {
    pub(super) fn update(&mut self, cluster: &Cluster, selected: bool, excluded: bool) {
        let name = cluster.name();
        if cluster.is_hub() {
            return self.remove(name);
        }
        self.all.insert(name.clone());
        if selected {
            self.lost.remove(name);
            self.selected.insert(name.clone());
        } else if excluded && self.selected.remove(name) {
            self.lost.insert(name.clone());
        } else if !excluded && self.lost.remove(name) {
            self.selected.insert(name.clone());
        }
    }

    pub(super) fn remove(&mut self, name: &ClusterName) {
        for names in [&mut self.all, &mut self.selected, &mut self.lost] {
            names.remove(name);
        }
    }

    /// Why nothing may be deleted. As in the rounds of a provider, to lose one cluster is normal.
    pub(super) fn holds(&self) -> Option<String> {
        let [all, selected, lost] = [&self.all, &self.selected, &self.lost].map(HashSet::len);
        if selected == 0 && all >= 2 {
            Some(format!("the controller selects none of {all} clusters"))
        } else if lost >= 2 && lost > selected {
            let before = selected + lost;
            Some(format!(
                "{lost} of {before} selected clusters have ceased to be selected"
            ))
        } else {
            None
        }
    }

    /// Whether the clean-up of a cluster may begin. It is no longer one of those that have ceased to be selected then: another replica
    /// may lead for long, and clean up.
    pub(super) fn releases(&mut self, name: &ClusterName, controller: &str) -> bool {
        let Some(reason) = self.holds() else {
            self.warned = false;
            self.lost.remove(name);
            return true;
        };
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(
                controller,
                reason,
                "on_deselected deletes nothing now, because this looks like a fault of labels or of the selector. Give the \
                 clusters their labels back. If they are to be cleaned up, let the selector choose at least one cluster and \
                 restart the program",
            );
        }
        false
    }
}
