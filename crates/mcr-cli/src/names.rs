//! Names of clusters in the arguments of commands that only read. Commands that write need the exact name.

use std::{collections::BTreeSet, fmt};

use crate::output::one_word;

/// The most candidates that an error lists.
const LISTED: usize = 10;

/// An argument that is the end of several clusters' names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous {
    asked: String,
    candidates: Vec<String>,
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<String> = self
            .candidates
            .iter()
            .take(LISTED)
            .map(|name| one_word(name))
            .collect();
        let asked = one_word(&self.asked);
        write!(
            f,
            "the names of several clusters end in {asked}: {}",
            listed.join(", ")
        )?;
        match self.candidates.len().saturating_sub(LISTED) {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        f.write_str("; write more of the name")
    }
}

impl std::error::Error for Ambiguous {}

/// The names in the arguments, and the clusters that they select. A name keeps the cluster that it has
/// selected, so that `--watch` does not switch to another cluster when the selected one leaves.
#[derive(Debug)]
pub(crate) struct Wanted(Vec<Name>);

#[derive(Debug)]
struct Name {
    asked: String,
    cluster: Option<String>,
}

impl Wanted {
    pub(crate) fn new(names: &[String]) -> Self {
        let name = |asked: &String| Name {
            asked: asked.clone(),
            cluster: None,
        };
        Self(names.iter().map(name).collect())
    }

    /// Searches for the names that have no cluster yet. While not `all` clusters are known, accepts exact names only,
    /// because an end of a name that is unique now may not be unique later.
    pub(crate) fn find(&mut self, known: &[&str], all: bool) -> Result<(), Ambiguous> {
        let known: Vec<(&str, &str)> = known.iter().map(|name| (*name, *name)).collect();
        self.find_shown(&known, all)
    }

    /// As [`find`](Self::find), among pairs of the text that is shown for a cluster and the name of the cluster.
    pub(crate) fn find_shown(&mut self, known: &[(&str, &str)], all: bool) -> Result<(), Ambiguous> {
        for name in self.0.iter_mut().filter(|name| name.cluster.is_none()) {
            let asked = name.asked.as_str();
            let found = match only_match(asked, known, |shown| shown == asked)? {
                None if all => only_match(asked, known, |shown| is_end(asked, shown))?,
                found => found,
            };
            name.cluster = found.map(str::to_owned);
        }
        Ok(())
    }

    /// Whether a name has selected this cluster. Without names, all clusters are selected.
    pub(crate) fn selects(&self, cluster: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|name| name.cluster.as_deref() == Some(cluster))
    }

    /// The names that have selected no cluster.
    pub(crate) fn missing(&self) -> Vec<&str> {
        let missing = self.0.iter().filter(|name| name.cluster.is_none());
        missing.map(|name| name.asked.as_str()).collect()
    }
}

/// The only cluster whose text fits.
fn only_match<'a>(
    asked: &str,
    known: &[(&str, &'a str)],
    fits: impl Fn(&str) -> bool,
) -> Result<Option<&'a str>, Ambiguous> {
    let fitting = known.iter().filter(|(shown, _)| fits(shown));
    let candidates: BTreeSet<&str> = fitting.map(|(_, name)| *name).collect();
    match candidates.len() {
        0 | 1 => Ok(candidates.first().copied()),
        _ => Err(Ambiguous {
            asked: asked.to_owned(),
            candidates: candidates.into_iter().map(str::to_owned).collect(),
        }),
    }
}

/// Whether `asked` is the last part of the name: `eu` is the last part of `/kc/all.yaml+eu` and `kind#eu`, but not of
/// `dev-eu`. If `eu` does not exist, the user must not get `dev-eu` instead. `-eu` matches any name that ends so.
fn is_end(asked: &str, name: &str) -> bool {
    let of_a_word = |char: char| char.is_alphanumeric() || matches!(char, '-' | '_' | '.');
    let apart = |before: &str| !before.ends_with(of_a_word) || !asked.starts_with(char::is_alphanumeric);
    !asked.is_empty() && name.strip_suffix(asked).is_some_and(apart)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "dev",
        "kind#dev",
        "/kc/all.yaml+eu",
        "/kc/old.yaml+eu",
        "/kc/all.yaml+prod-us",
        "fleet/za",
    ];

    fn found(asked: &str) -> Result<Option<String>, String> {
        let mut wanted = Wanted::new(&[asked.to_owned()]);
        wanted.find(&KNOWN, true).map_err(|error| error.to_string())?;
        let mut meant = KNOWN.into_iter().filter(|name| wanted.selects(name));
        let cluster = meant.next().map(str::to_owned);
        assert!(meant.next().is_none() && wanted.missing().is_empty() == cluster.is_some());
        Ok(cluster)
    }

    #[test]
    fn a_unique_end_is_enough_and_an_exact_name_wins() {
        for (asked, cluster) in [
            ("dev", Some("dev")),
            ("#dev", Some("kind#dev")),
            ("za", Some("fleet/za")),
            ("all.yaml+eu", Some("/kc/all.yaml+eu")),
            ("prod-us", Some("/kc/all.yaml+prod-us")),
            ("-us", Some("/kc/all.yaml+prod-us")),
            ("us", None),
            ("a", None),
            ("", None),
            ("asia", None),
        ] {
            assert_eq!(found(asked), Ok(cluster.map(str::to_owned)), "{asked}");
        }
        assert!(Wanted::new(&[]).selects("dev"));
    }

    #[test]
    fn an_ambiguous_end_is_an_error_that_lists_the_candidates() {
        assert_eq!(
            found("eu"),
            Err(
                "the names of several clusters end in eu: /kc/all.yaml+eu, /kc/old.yaml+eu; write more of the name"
                    .into()
            )
        );
        let many: Vec<String> = (0..12).map(|number| format!("{number}/a b")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let error = Wanted::new(&["a b".into()])
            .find(&many, true)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("end in \"a b\": \"0/a b\", ") && error.contains(" and 2 more; "),
            "{error}"
        );
        // An entry that is there twice is one cluster.
        assert_eq!(Wanted::new(&["b".into()]).find(&["a/b", "a/b"], true), Ok(()));
    }

    #[test]
    fn a_display_name_means_its_cluster_and_is_ambiguous_if_two_have_it() {
        let shown = [
            ("root:a", "id1"),
            ("root:b", "id2"),
            ("root:b", "id3"),
            ("root:org:c", "id4"),
        ];
        let found = |asked: &str, all: bool| {
            let mut wanted = Wanted::new(&[asked.to_owned()]);
            wanted
                .find_shown(&shown, all)
                .map_err(|error| error.to_string())?;
            let cluster = shown.iter().find(|(_, name)| wanted.selects(name));
            Ok::<_, String>(cluster.map(|(_, name)| *name))
        };
        assert_eq!(found("root:a", false), Ok(Some("id1")));
        assert_eq!(found("org:c", true), Ok(Some("id4")));
        assert_eq!(found("org:c", false), Ok(None));
        assert!(found("root:b", false).unwrap_err().contains("id2, id3"));
    }

    #[test]
    fn a_name_keeps_its_cluster_and_an_end_waits_until_all_are_known() {
        let mut wanted = Wanted::new(&["dev".into()]);
        wanted.find(&["kind#dev"], false).unwrap();
        assert!(!wanted.selects("kind#dev"));
        wanted.find(&["kind#dev", "dev"], false).unwrap();
        assert!(wanted.selects("dev"));
        wanted.find(&["kind#dev"], true).unwrap();
        assert!(wanted.selects("dev") && !wanted.selects("kind#dev"));

        let mut wanted = Wanted::new(&["dev".into()]);
        wanted.find(&["kind#dev"], true).unwrap();
        wanted.find(&["kind#dev", "dev", "a#dev"], true).unwrap();
        assert!(wanted.selects("kind#dev") && !wanted.selects("dev"));
    }
}
