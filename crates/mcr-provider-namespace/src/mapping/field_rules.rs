//! The fields of a kind's objects that hold the name of a namespace.

use super::json::FieldPath;

/// The meaning of the name in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The namespace of the object itself. It must be the cluster's own.
    Own,
    /// A namespace to which the object refers. It may be any; the two names of the cluster's namespace are swapped.
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
// The API server refuses a review whose two namespaces differ.
const REVIEWS: &FieldRules = &[
    OWN,
    (&["spec", "resourceAttributes", "namespace"], Rule::Reference),
];
/// For the kind Namespace: the object is in no namespace, and its name is the name of one.
pub(crate) const NAMESPACES: &FieldRules = &[(&["metadata", "name"], Rule::Own)];

/// The field rules of a kind.
pub(crate) fn of(group: &str, plural: &str) -> &'static FieldRules {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => EVENTS,
        ("authorization.k8s.io", "localsubjectaccessreviews") => REVIEWS,
        _ => OBJECTS,
    }
}
