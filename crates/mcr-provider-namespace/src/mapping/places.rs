//! Where in a kind's objects the name of a namespace stands.

use super::json::Place;

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The namespace the object is in. It must be the cluster's own.
    Own,
    /// A namespace the object speaks of. It may be any; those that have two names change places.
    Reference,
}

/// The places of a kind.
pub(crate) type Places = [(&'static Place, Rule)];

const OWN: (&Place, Rule) = (&["metadata", "namespace"], Rule::Own);
const OBJECTS: &Places = &[OWN];
const EVENTS: &Places = &[
    OWN,
    (&["involvedObject", "namespace"], Rule::Reference),
    (&["regarding", "namespace"], Rule::Reference),
    (&["related", "namespace"], Rule::Reference),
];
// The API server refuses one whose two namespaces differ.
const REVIEWS: &Places = &[
    OWN,
    (&["spec", "resourceAttributes", "namespace"], Rule::Reference),
];
/// Of the kind Namespace: it is in none, but is called like one.
pub(crate) const NAMESPACES: &Places = &[(&["metadata", "name"], Rule::Own)];

/// The places of a kind of objects.
pub(crate) fn of(group: &str, plural: &str) -> &'static Places {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => EVENTS,
        ("authorization.k8s.io", "localsubjectaccessreviews") => REVIEWS,
        _ => OBJECTS,
    }
}
