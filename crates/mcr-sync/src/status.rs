//! Brings status up: the merge patch that sets chosen fields of a status, and conditions.

use serde_json::{Map, Value, json};

/// The merge patch that brings `live` to `wanted`. `None` if there is no difference, so that nothing is written.
///
/// A null in `wanted` removes a field. A field that `wanted` does not have is not touched. An object that `live` lacks
/// is sent as a whole, so that it has the fields that its schema requires.
pub(crate) fn status_difference(live: Option<&Value>, wanted: &Value) -> Option<Value> {
    match (live, wanted) {
        (None | Some(Value::Null), Value::Null) => None,
        (Some(Value::Object(live)), Value::Object(wanted)) => {
            let changed = wanted.iter().filter_map(|(key, wanted)| {
                status_difference(live.get(key), wanted).map(|patch| (key.clone(), patch))
            });
            let patch: Map<String, Value> = changed.collect();
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (Some(live), wanted) if live == wanted => None,
        (Some(_), Value::Null) => Some(Value::Null),
        (_, wanted) => Some(crate::fields::without_nulls(wanted.clone())),
    }
}

/// A condition of a source, as the sync writes it.
#[derive(Clone, Copy)]
pub(crate) struct Condition<'a> {
    /// The type, unique among the conditions of the object.
    pub(crate) kind: &'a str,
    /// `True` or `False`.
    pub(crate) status: bool,
    /// The reason, in one word.
    pub(crate) reason: &'a str,
    /// The text for people.
    pub(crate) message: &'a str,
    /// The generation of the source that the condition is about.
    pub(crate) observed_generation: Option<i64>,
}

impl Condition<'_> {
    /// Returns the list of conditions with this condition in it: in place of the one with the same type, or at the
    /// end. The others are not changed.
    ///
    /// `lastTransitionTime` becomes `now`, an RFC 3339 time, if the status differs from that in `live`. Otherwise it
    /// stays as it is. If nothing else differs either, the list is equal to `live`, and [`status_difference`] finds
    /// nothing to write.
    pub(crate) fn insert_into(&self, list: Option<&Value>, live: Option<&Value>, now: &str) -> Value {
        let all = |list: Option<&Value>| list.and_then(Value::as_array).cloned().unwrap_or_default();
        let is_own = |condition: &Value| condition["type"] == *self.kind;
        let mut list: Vec<Value> = all(list);
        let status = if self.status { "True" } else { "False" };
        let at = list.iter().position(is_own);
        let kept = all(live)
            .into_iter()
            .find(is_own)
            .filter(|old| old["status"] == status)
            .map(|old| old["lastTransitionTime"].clone())
            .filter(Value::is_string);
        let mut condition = json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message,
            "lastTransitionTime": kept.unwrap_or_else(|| now.into()),
        });
        if let Some(generation) = self.observed_generation {
            condition["observedGeneration"] = generation.into();
        }
        match at {
            Some(at) => list[at] = condition,
            None => list.push(condition),
        }
        Value::Array(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_difference_is_written() {
        let live = json!({"a": 1, "b": {"c": 2, "d": 3}, "list": [1]});
        let difference = |wanted| status_difference(Some(&live), &wanted);
        assert_eq!(difference(json!({"a": 1, "b": {"c": 2}})), None);
        assert_eq!(
            difference(json!({"b": {"c": 4, "d": 3}})),
            Some(json!({"b": {"c": 4}}))
        );
        assert_eq!(difference(json!({"list": [1, 2]})), Some(json!({"list": [1, 2]})));
        assert_eq!(difference(json!({"b": null})), Some(json!({"b": null})));
        assert_eq!(difference(json!({"gone": null})), None);
    }

    #[test]
    fn what_is_missing_is_sent_whole_with_its_required_fields() {
        let wanted = json!({"phase": "Pending", "address": {"host": "x", "port": 1, "path": null}});
        let whole = json!({"phase": "Pending", "address": {"host": "x", "port": 1}});
        assert_eq!(status_difference(None, &wanted), Some(whole.clone()));
        assert_eq!(status_difference(Some(&Value::Null), &wanted), Some(whole));
        assert_eq!(status_difference(None, &Value::Null), None);
    }

    #[test]
    fn a_condition_changes_its_time_with_its_status_only() {
        let mut condition = Condition {
            kind: "Synced",
            status: false,
            reason: "Away",
            message: "berlin is away",
            observed_generation: Some(1),
        };
        let other = json!({"type": "Theirs", "status": "True"});
        let among =
            |condition: Condition<'_>, live: &Value, now| condition.insert_into(Some(live), Some(live), now);
        let list = among(condition, &json!([other]), "t1");
        assert_eq!(list[0], other);
        assert_eq!(
            list[1],
            json!({"type": "Synced", "status": "False", "reason": "Away", "message": "berlin is away",
                "lastTransitionTime": "t1", "observedGeneration": 1})
        );
        assert_eq!(among(condition, &list, "t2"), list);
        condition.observed_generation = Some(2);
        let again = among(condition, &list, "t2");
        assert_eq!(
            (&again[1]["lastTransitionTime"], &again[1]["observedGeneration"]),
            (&json!("t1"), &json!(2))
        );
        condition.status = true;
        let done = among(condition, &again, "t3");
        assert_eq!(done[1]["lastTransitionTime"], "t3");
        assert_eq!(done.as_array().unwrap().len(), 2);
    }
}
