//! A note about the clusters in an engine. With it, a later run can remove what a killed run has left.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The clusters that all suites use.
pub(super) const CLUSTERS: [&str; 3] = ["fleet-alpha", "fleet-beta", "fleet-hub"];

/// Written before the first cluster is created, and removed after the last one is deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The image that they were created from.
    pub(super) image: String,
    /// The name prefix of further clusters, which suites create themselves.
    pub(super) prefix: String,
    /// Whether the clusters were to be kept.
    pub(super) kept: bool,
    /// The node of each cluster. Empty until all clusters are created.
    pub(super) nodes: BTreeMap<String, String>,
}

/// A cluster in the engine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Present {
    pub(super) name: String,
    /// The IDs of its containers. They differ if a cluster was deleted and created again under the same name.
    pub(super) node: String,
}

impl Note {
    /// Reads the note in a folder, if there is one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("note.json");
        match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text).with_context(|| {
                format!(
                    "{} is not what was written there: delete it, and the clusters it was for",
                    path.display()
                )
            })?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Writes the note.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join("note.json");
        // Renamed atomically, so that a killed run leaves the old note or the new one.
        let new = folder.join("note.json.new");
        fs::write(&new, serde_json::to_vec(self)?).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("writing {}", path.display()))
    }

    /// Removes the note, because no clusters are left.
    pub(super) fn erase(folder: &Path) -> Result<()> {
        match fs::remove_file(folder.join("note.json")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("removing the note"),
            _ => Ok(()),
        }
    }

    /// Whether a cluster was created by this program. The name alone does not prove that.
    fn is_ours(&self, cluster: &Present) -> bool {
        let made_here = || match self.nodes.get(&cluster.name) {
            Some(node) => *node == cluster.node,
            None => self.nodes.is_empty(),
        };
        cluster.name.starts_with(&self.prefix) || is_one_of_the_fleet(cluster) && made_here()
    }

    /// The clusters in the engine that were created by this program.
    pub(super) fn ours(&self, present: &[Present]) -> Vec<String> {
        let ours = present.iter().filter(|cluster| self.is_ours(cluster));
        ours.map(|cluster| cluster.name.clone()).collect()
    }
}

fn is_one_of_the_fleet(cluster: &Present) -> bool {
    CLUSTERS.contains(&cluster.name.as_str())
}

/// What to do first, depending on the existing clusters.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// Create clusters. First remove these: an earlier run was killed, or has kept clusters from another image.
    Make { remove: Vec<String> },
    /// Reuse the clusters that an earlier run has kept. First remove these, which its suites have created.
    Reuse { remove: Vec<String> },
    /// Stop, because somebody else has clusters with these names.
    Refuse(Vec<String>),
}

impl Plan {
    /// Decides from the note, the existing clusters and the wanted image.
    pub(super) fn of(note: Option<&Note>, present: &[Present], image: &str) -> Self {
        let strangers: Vec<_> = present
            .iter()
            .filter(|cluster| is_one_of_the_fleet(cluster) && !note.is_some_and(|note| note.is_ours(cluster)))
            .map(|cluster| cluster.name.clone())
            .collect();
        if !strangers.is_empty() {
            return Self::Refuse(strangers);
        }
        let mut remove = note.map(|note| note.ours(present)).unwrap_or_default();
        let complete = CLUSTERS.iter().all(|name| remove.iter().any(|ours| ours == name));
        if complete && note.is_some_and(|note| note.kept && note.image == image) {
            remove.retain(|name| !CLUSTERS.contains(&name.as_str()));
            return Self::Reuse { remove };
        }
        Self::Make { remove }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "fleet-alpha fleet-beta fleet-hub";

    fn note(kept: bool) -> Note {
        Note {
            image: "a".to_owned(),
            prefix: "mcr-e2e-7-".to_owned(),
            kept,
            nodes: present(ALL)
                .into_iter()
                .map(|made| (made.name, made.node))
                .collect(),
        }
    }

    /// Clusters by name, each with the node it has unless another is named: `fleet-hub=other`.
    fn present(text: &str) -> Vec<Present> {
        let cluster = |word: &str| {
            let (name, node) = word.split_once('=').unwrap_or((word, word));
            Present {
                name: name.to_owned(),
                node: node.to_owned(),
            }
        };
        text.split_whitespace().map(cluster).collect()
    }

    fn remove(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn clusters_of_somebody_else_are_never_touched() {
        let of = |note: Option<&Note>, there| Plan::of(note, &present(there), "a");
        let nothing_to_remove = Plan::Make { remove: Vec::new() };
        assert_eq!(of(None, "mine fleet-hub"), Plan::Refuse(remove("fleet-hub")));
        assert_eq!(of(None, "mine fleet-gamma"), nothing_to_remove);
        assert_eq!(of(Some(&note(false)), "mine mcr-e2e-8-a"), nothing_to_remove);
    }

    #[test]
    fn one_that_was_made_by_hand_after_ours_was_deleted_is_somebody_elses() {
        for kept in [true, false] {
            let there = present("fleet-alpha=other fleet-beta fleet-hub");
            let plan = Plan::of(Some(&note(kept)), &there, "a");
            assert_eq!(plan, Plan::Refuse(remove("fleet-alpha")));
        }
    }

    #[test]
    fn what_was_kept_is_taken_again() {
        let plan = Plan::of(
            Some(&note(true)),
            &present("mine fleet-alpha fleet-beta fleet-hub mcr-e2e-7-a"),
            "a",
        );
        let remove = remove("mcr-e2e-7-a");
        assert_eq!(plan, Plan::Reuse { remove });
    }

    #[test]
    fn what_was_kept_is_made_anew_from_another_image_and_if_something_is_missing() {
        for (there, image) in [(ALL, "b"), ("fleet-alpha", "a")] {
            let plan = Plan::of(Some(&note(true)), &present(there), image);
            let remove = remove(there);
            assert_eq!(plan, Plan::Make { remove });
        }
    }

    #[test]
    fn what_a_killed_run_left_is_removed() {
        let plan = Plan::of(Some(&note(false)), &present("mine fleet-beta mcr-e2e-7-a"), "a");
        let left = remove("fleet-beta mcr-e2e-7-a");
        assert_eq!(plan, Plan::Make { remove: left });
    }

    #[test]
    fn what_a_run_left_that_was_killed_while_it_made_them_is_removed_too() {
        let mut early = note(false);
        early.nodes.clear();
        let plan = Plan::of(Some(&early), &present("mine fleet-beta=any"), "a");
        let left = remove("fleet-beta");
        assert_eq!(plan, Plan::Make { remove: left });
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_erased() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Note::read(folder.path()).unwrap(), None);
        note(true).write(folder.path()).unwrap();
        assert_eq!(Note::read(folder.path()).unwrap(), Some(note(true)));
        Note::erase(folder.path()).unwrap();
        Note::erase(folder.path()).unwrap();
        assert_eq!(Note::read(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_note_that_is_broken_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("note.json"), "{").unwrap();
        assert!(Note::read(folder.path()).is_err());
    }
}
