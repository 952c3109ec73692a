//! Replaces a few strings in JSON. All other bytes stay the same, so numbers, the order and unknown fields can't
//! change.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// The body is not valid JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable;

impl From<serde_json::Error> for Unreadable {
    // The text of serde_json may quote the body.
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

/// The fields of an object in their order, with duplicates.
pub(crate) struct Fields<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry::<String, &RawValue>()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'a> Fields<'a> {
    /// The fields of a value. `None` if the value is no object.
    pub(crate) fn of(value: &'a RawValue) -> Result<Option<Self>, Unreadable> {
        if !value.get().starts_with('{') {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(value.get())?))
    }

    /// The value of the field with this name. If there are several, the last one counts, as for the API server.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rfind(|(key, _)| key == name)
            .map(|(_, value)| *value)
    }

    /// The object with some values replaced. `None` if no value was replaced.
    pub(crate) fn edit<E>(
        &self,
        mut edit: impl FnMut(&str, &RawValue) -> Result<Option<String>, E>,
    ) -> Result<Option<String>, E> {
        let edited = self
            .0
            .iter()
            .map(|(key, value)| edit(key, value))
            .collect::<Result<Vec<_>, E>>()?;
        if edited.iter().all(Option::is_none) {
            return Ok(None);
        }
        let length = |(key, value): &(String, &RawValue)| key.len() + value.get().len() + 8;
        let mut out = String::with_capacity(self.0.iter().map(length).sum());
        for (number, ((key, value), edited)) in self.0.iter().zip(&edited).enumerate() {
            out.push(if number == 0 { '{' } else { ',' });
            out.push_str(&quoted(key));
            out.push(':');
            out.push_str(edited.as_deref().unwrap_or(value.get()));
        }
        out.push('}');
        Ok(Some(out))
    }
}

/// The path of a field in an object: the names of the fields that lead to it.
pub(crate) type FieldPath = [&'static str];

/// Replaces a value by the rule of its field. `None` if the value stays the same.
pub(crate) type Edit<'e, T, E> = dyn FnMut(T, &RawValue) -> Result<Option<String>, E> + 'e;

/// Replaces the values of some fields. `None` if no value was replaced, or the value is no object.
pub(crate) fn edit_at<T: Copy, E: From<Unreadable>>(
    value: &RawValue,
    field_rules: &[(&FieldPath, T)],
    edit: &mut Edit<'_, T, E>,
) -> Result<Option<String>, E> {
    if let Some((_, rule)) = field_rules.iter().find(|(field_path, _)| field_path.is_empty()) {
        return edit(*rule, value);
    }
    let Some(fields) = Fields::of(value)? else {
        return Ok(None);
    };
    fields.edit(|key, value| {
        let below: Vec<(&FieldPath, T)> = field_rules
            .iter()
            .filter_map(|(field_path, rule)| {
                field_path
                    .split_first()
                    .filter(|(first, _)| **first == key)
                    .map(|(_, rest)| (rest, *rule))
            })
            .collect();
        if below.is_empty() {
            Ok(None)
        } else {
            edit_at(value, &below, edit)
        }
    })
}

/// A body as one value.
pub(crate) fn whole(body: &[u8]) -> Result<&RawValue, Unreadable> {
    Ok(serde_json::from_slice(body)?)
}

/// The content of a string. `None` if the value is no string.
pub(crate) fn text(value: &RawValue) -> Option<String> {
    // Checks the first byte, so that a large value that is no string is not parsed.
    value
        .get()
        .starts_with('"')
        .then(|| serde_json::from_str(value.get()).ok())?
}

/// Text as a JSON value.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Replaces elements of an array. `None` if no element was replaced, or the value is no array.
pub(crate) fn edit_elements<E: From<Unreadable>>(
    array: &RawValue,
    mut edit: impl FnMut(&RawValue) -> Result<Option<String>, E>,
) -> Result<Option<String>, E> {
    if !array.get().starts_with('[') {
        return Ok(None);
    }
    let elements: Vec<&RawValue> = serde_json::from_str(array.get()).map_err(Unreadable::from)?;
    let edited = elements
        .iter()
        .map(|element| edit(element))
        .collect::<Result<Vec<_>, E>>()?;
    if edited.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut out = String::with_capacity(array.get().len() + 16);
    for (number, (element, edited)) in elements.iter().zip(&edited).enumerate() {
        out.push(if number == 0 { '[' } else { ',' });
        out.push_str(edited.as_deref().unwrap_or(element.get()));
    }
    out.push(']');
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper(value: &RawValue) -> Option<String> {
        text(value).map(|text| quoted(&text.to_uppercase()))
    }

    fn at_a(value: &RawValue) -> Result<Option<String>, Unreadable> {
        edit_at(value, &[(&["a"], ()), (&["m", "a"], ())], &mut |(), value| {
            Ok(upper(value))
        })
    }

    #[test]
    fn what_is_not_replaced_keeps_its_bytes() {
        let object =
            whole(br#" {"b": 1.50, "a":"x", "big":123456789012345678901234567890, "b":{"z": 1 }} "#).unwrap();
        assert_eq!(
            at_a(object).unwrap().unwrap(),
            r#"{"b":1.50,"a":"X","big":123456789012345678901234567890,"b":{"z": 1 }}"#
        );
        assert_eq!(at_a(whole(br#"{"b":1}"#).unwrap()), Ok(None));
    }

    #[test]
    fn places_are_found_below_others() {
        let object = whole(br#"{"m":{"a":"x","b":"x"},"n":{"a":"x"},"a":1}"#).unwrap();
        assert_eq!(
            at_a(object).unwrap().unwrap(),
            r#"{"m":{"a":"X","b":"x"},"n":{"a":"x"},"a":1}"#
        );
    }

    #[test]
    fn keys_are_compared_as_what_they_report_and_duplicates_are_all_seen() {
        let object = whole(br#"{"\u0061":"x","a":"y","m":null,"m":{"a":"z"}}"#).unwrap();
        assert_eq!(
            at_a(object).unwrap().unwrap(),
            r#"{"a":"X","a":"Y","m":null,"m":{"a":"Z"}}"#
        );
        let m = Fields::of(object).unwrap().unwrap().get("m").unwrap();
        assert_eq!(m.get(), r#"{"a":"z"}"#);
    }

    #[test]
    fn arrays_are_edited_element_by_element() {
        let array = whole(br#"["a", 1, ["b"]]"#).unwrap();
        let edited = edit_elements::<Unreadable>(array, |value| Ok(upper(value)));
        assert_eq!(edited.unwrap().unwrap(), r#"["A",1,["b"]]"#);
    }

    #[test]
    fn other_forms_are_left_alone_and_broken_ones_refused() {
        for body in [&b"1"[..], b"null", b"\"x\"", b"[]"] {
            assert_eq!(at_a(whole(body).unwrap()), Ok(None));
        }
        for body in [&b""[..], b"{", b"{}{}", b"\xff", b"{\"a\":}", b"apiVersion: v1"] {
            assert_eq!(whole(body).err(), Some(Unreadable), "{body:?}");
        }
        let lone = whole(br#"{"\ud800":1}"#).unwrap();
        assert_eq!(at_a(lone), Err(Unreadable));
    }
}
