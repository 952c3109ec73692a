//! The object that is named on the command line.

use anyhow::bail;

use crate::{
    clusters::Report,
    names::{Ambiguous, Wanted},
};

/// An object in a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) cluster: String,
    /// `namespace/name`, or `name`.
    pub(super) object: String,
    /// Whether the report contains the cluster.
    pub(super) is_known: bool,
}

impl Target {
    /// Finds the cluster and the object in `CLUSTER[/NAMESPACE]/NAME`. Names of clusters may contain slashes too, so
    /// the clusters in the report decide where the name of the cluster ends.
    pub(super) fn find(asked: &str, report: &Report) -> anyhow::Result<Self> {
        let splits: Vec<(&str, &str)> = asked
            .rmatch_indices('/')
            .take(2)
            .map(|(at, _)| (&asked[..at], &asked[at + 1..]))
            .filter(|(cluster, object)| {
                let is_cluster = !cluster.is_empty() && !cluster.ends_with('/');
                is_cluster && object.split('/').all(|part| !part.is_empty())
            })
            .collect();
        // Objects without a namespace are rare, so the longer form is tried first.
        let Some((longest, object)) = splits.last() else {
            bail!(
                "{asked:?}: write CLUSTER/NAMESPACE/NAME, or CLUSTER/NAME for an object without a namespace"
            );
        };
        let mut ambiguous: Option<Ambiguous> = None;
        for ends in [false, true] {
            for (cluster, object) in splits.iter().rev() {
                let mut wanted = Wanted::new(&[(*cluster).to_owned()]);
                if let Err(error) = report.find(&mut wanted, ends) {
                    ambiguous.get_or_insert(error);
                } else if let Some(found) = report.clusters.iter().find(|row| wanted.selects(&row.name)) {
                    return Ok(Self {
                        cluster: found.name.clone(),
                        object: (*object).to_owned(),
                        is_known: true,
                    });
                }
            }
        }
        match ambiguous {
            Some(error) => Err(error.into()),
            None => Ok(Self {
                cluster: (*longest).to_owned(),
                object: (*object).to_owned(),
                is_known: false,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_clusters_decide_where_the_name_of_the_cluster_ends() {
        let names = [
            "eu",
            "fleet/za",
            "/kc/all.yaml+us",
            "a/zoo",
            "b/zoo",
            "eu/red",
            "q+jp",
            "jp/red",
        ];
        let clusters: Vec<_> = names
            .iter()
            .map(|name| json!({"name": name, "state": "Ready"}))
            .collect();
        let report = Report::of(json!({"clusters": clusters})).unwrap();
        let find = |asked: &str| Target::find(asked, &report);
        for (asked, cluster, object, is_known) in [
            ("eu/blue/lab", "eu", "blue/lab", true),
            ("eu/lab", "eu", "lab", true),
            ("eu/red/lab", "eu", "red/lab", true),
            // An exact name goes before the end of another.
            ("jp/red/lab", "jp/red", "lab", true),
            ("eu/red/blue/lab", "eu/red", "blue/lab", true),
            ("fleet/za/lab", "fleet/za", "lab", true),
            ("za/red/lab", "fleet/za", "red/lab", true),
            ("us/red/lab", "/kc/all.yaml+us", "red/lab", true),
            ("/kc/all.yaml+us/red/lab", "/kc/all.yaml+us", "red/lab", true),
            ("asia/red/lab", "asia", "red/lab", false),
        ] {
            let expected = Target {
                cluster: cluster.into(),
                object: object.into(),
                is_known,
            };
            assert_eq!(find(asked).unwrap(), expected, "{asked}");
        }
        assert!(find("zoo/red/lab").unwrap_err().is::<Ambiguous>());
        for wrong in ["", "eu", "eu/", "/lab", "eu//lab"] {
            let error = find(wrong).unwrap_err().to_string();
            assert!(error.contains("CLUSTER/NAMESPACE/NAME"), "{wrong}: {error}");
        }
    }
}
