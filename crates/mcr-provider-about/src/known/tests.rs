use mcr_core::{Access, Trust};

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> Properties {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn spec(identity: Option<&str>) -> ClusterSpec {
    let mut spec = ClusterSpec::named("a", Access::kubeconfig("", Trust::Trusted)).unwrap();
    spec.identity = identity.map(Into::into);
    spec
}

fn shown(changes: Vec<Change>) -> Vec<String> {
    changes
        .into_iter()
        .map(|change| match change {
            Change::Upsert(spec) => format!("+{:?}", spec.identity.unwrap_or_default()),
            Change::Remove(_) => "-".into(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_hostile_answer_adds_only_what_kubernetes_would_have_accepted() {
    let long = "x".repeat(MAX_VALUE + 1);
    let listed = [
        ("region.example.com", "eu"),
        ("mcr.dev/display-name", "prod"),
        ("", "x"),
        ("Upper", "x"),
        ("-a", "x"),
        ("a..b", "x"),
        ("a\nb", "x"),
        ("long", &long),
        ("empty", ""),
        (CLUSTER_ID, "line\nbreak"),
        (CLUSTER_SET, "shop"),
    ];
    let kept = usable(listed.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(
        kept,
        pairs(&[("region.example.com", "eu"), (CLUSTER_SET, "shop")])
    );
}

#[test]
fn many_properties_do_not_push_out_the_well_known_ones() {
    let many = (0..500).map(|i| (format!("a{i}"), "x".to_owned()));
    let kept = usable(many.chain(pairs(&[(CLUSTER_ID, "berlin"), (CLUSTER_SET, "shop")])));
    assert_eq!(kept.len(), MAX_PROPERTIES);
    assert_eq!(kept[CLUSTER_ID], "berlin");
    assert_eq!(kept[CLUSTER_SET], "shop");
}

#[test]
fn the_inner_provider_wins() {
    let known = Known {
        found: Some(pairs(&[(CLUSTER_SET, "mine"), ("region", "eu")])),
        ..Known::default()
    };
    let spec = spec(None).property(CLUSTER_SET, "theirs");
    assert_eq!(
        known.properties(&spec),
        pairs(&[(CLUSTER_SET, "theirs"), ("region", "eu")])
    );
}

#[test]
fn a_cluster_sets_no_property_but_those_that_the_operator_names() {
    let reported = [
        (CLUSTER_ID, "berlin"),
        (CLUSTER_SET, "shop"),
        ("env", "prod"),
        ("region", "eu"),
    ];
    let announced = |may_set: &[&str]| {
        let mut known = Known {
            found: Some(pairs(&reported)),
            ..Known::default()
        };
        let may_set = may_set.iter().map(|name| (*name).to_owned()).collect();
        match known
            .announce(&spec(None).property("env", "test"), &may_set)
            .pop()
        {
            Some(Change::Upsert(spec)) => spec.properties,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(announced(&[]), pairs(&[("env", "test")]));
    assert_eq!(
        announced(&["region", "env", "other"]),
        pairs(&[("env", "test"), ("region", "eu")])
    );
    assert_eq!(announced(&[CLUSTER_SET])[CLUSTER_SET], "shop");
}

#[test]
fn another_cluster_id_is_another_identity_however_often_it_changes() {
    let mut known = Known::default();
    let mut announce = |spec: &ClusterSpec, id: Option<&str>| {
        known.follow(spec);
        known.found = Some(id.map(|id| pairs(&[(CLUSTER_ID, id)])).unwrap_or_default());
        shown(known.announce(spec, &BTreeSet::new()))
    };
    let declared = spec(Some("uid"));
    assert_eq!(announce(&declared, None), ["+\"uid\""]);
    assert_eq!(
        announce(&declared, Some("one")),
        ["+\"uid\""],
        "the first id is no change"
    );
    assert_eq!(announce(&declared, None), ["+\"uid\""]);
    assert_eq!(
        announce(&declared, Some("one")),
        ["+\"uid\""],
        "an id that comes back"
    );
    assert_eq!(announce(&declared, None), ["+\"uid\""]);
    assert_eq!(announce(&declared, Some("two")), ["+\"uid/two\""]);
    assert_eq!(announce(&declared, None), ["+\"uid/two\""]);
    assert_eq!(announce(&declared, Some("one")), ["+\"uid/one\""]);
    assert_eq!(
        announce(&spec(Some("other")), Some("two")),
        ["+\"other\""],
        "all is new"
    );
}

#[test]
fn a_cluster_without_a_declared_identity_is_removed_before_the_other_comes() {
    let mut known = Known::default();
    let mut announce = |id: &str| {
        known.found = Some(pairs(&[(CLUSTER_ID, id)]));
        shown(known.announce(&spec(None), &BTreeSet::new()))
    };
    assert_eq!(announce("one"), ["+\"\""]);
    assert_eq!(announce("two"), ["-", "+\"/two\""]);
    assert_eq!(announce("two"), ["+\"/two\""]);
    assert_eq!(announce("three"), ["+\"/three\""]);
}
