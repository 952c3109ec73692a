//! The fields of a kind's objects that hold the name of a namespace.

use super::json::FieldPath;

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The namespace the object is in. It must be the cluster's own.
    Own,
    /// A namespace the object speaks of. It may be any; those that have two names change places.
    Reference,
}

/// The fields of a kind that hold the name of a namespace.
pub(crate) type FieldRules = [(&'static FieldPath, Rule)];

const OWN: (&FieldPath, Rule) = (&["metadata", "namespace"], Rule::Own);
const OBJECTS: &FieldRules = &[OWN];
const EVENTS: &FieldRules = &[
    OWN,
    (&["involvedObject", "namespace"], Rule::Reference),
    (&["regarding", "namespace"], Rule::Reference),
    (&["related", "namespace"], Rule::Reference),
];
// The API server refuses one whose two namespaces differ.
const REVIEWS: &FieldRules = &[
    OWN,
    (&["spec", "resourceAttributes", "namespace"], Rule::Reference),
];
/// Of the kind Namespace: it is in none, but is called like one.
pub(crate) const NAMESPACES: &FieldRules = &[(&["metadata", "name"], Rule::Own)];

/// The field rules of a kind.
pub(crate) fn of(group: &str, plural: &str) -> &'static FieldRules {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => EVENTS,
        ("authorization.k8s.io", "localsubjectaccessreviews") => REVIEWS,
        _ => OBJECTS,
    }
}
