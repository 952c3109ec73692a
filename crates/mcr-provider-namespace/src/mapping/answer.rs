//! Maps answers: replaces the real name of the namespace by its name inside the cluster.

use serde_json::value::RawValue;

use super::{
    body::{compared, replaced},
    field_rules::{FieldRules, Rule},
    json::{self, Fields, Unreadable, edit_at, edit_elements, text},
    names::Names,
};

/// How the answers to one request are mapped.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) field_rules: &'static FieldRules,
    /// Whether the request is for several objects.
    pub(crate) many: bool,
    pub(crate) names: Names,
}

impl Answers {
    /// Maps a whole answer. `None` if nothing changes.
    pub(crate) fn whole(&self, body: &[u8]) -> Result<Option<String>, Unreadable> {
        self.object(json::whole(body)?)
    }

    /// Maps a line of a watch. `None` if nothing changes.
    pub(crate) fn line(&self, line: &[u8]) -> Result<Option<String>, Unreadable> {
        let event = json::whole(line)?;
        let Some(fields) = Fields::of(event)? else {
            return Ok(None);
        };
        if fields.get("object").is_none() {
            // Not an event: an API server that can't watch a path ignores the `watch` parameter.
            return self.object(event);
        }
        fields.edit(|key, value| match key {
            "object" => self.object(value),
            _ => Ok(None),
        })
    }

    fn object(&self, value: &RawValue) -> Result<Option<String>, Unreadable> {
        let Some(fields) = Fields::of(value)? else {
            return Ok(None);
        };
        let kind = fields.get("kind").and_then(text);
        match kind.as_deref() {
            Some("Status") => fields.edit(|key, value| match key {
                "details" => self.details(value),
                _ => Ok(None),
            }),
            Some("Table") if fields.get("columnDefinitions").is_some() => {
                fields.edit(|key, value| match key {
                    "rows" => edit_elements(value, |row| {
                        let Some(fields) = Fields::of(row)? else {
                            return Ok(None);
                        };
                        fields.edit(|key, value| {
                            if key == "object" {
                                self.object(value)
                            } else {
                                Ok(None)
                            }
                        })
                    }),
                    _ => Ok(None),
                })
            }
            _ if self.many && fields.get("items").is_some() => fields.edit(|key, value| match key {
                "items" => edit_elements(value, |item| self.one(item)),
                _ => Ok(None),
            }),
            _ => self.one(value),
        }
    }

    fn one(&self, value: &RawValue) -> Result<Option<String>, Unreadable> {
        edit_at(value, self.field_rules, &mut |rule, value| {
            Ok(match rule {
                Rule::Own => self.own(value),
                Rule::Reference => compared(value, &self.names),
            })
        })
    }

    fn own(&self, value: &RawValue) -> Option<String> {
        let name = text(value)?;
        if name == *self.names.real {
            replaced(&name, &self.names.inside)
        } else {
            None
        }
    }

    /// Maps the details of a Status. The message stays, because it is text for people and has no fixed form.
    fn details(&self, value: &RawValue) -> Result<Option<String>, Unreadable> {
        let Some(fields) = Fields::of(value)? else {
            return Ok(None);
        };
        let of_namespace = matches!(
            fields.get("kind").and_then(text).as_deref(),
            Some("namespaces" | "Namespace")
        );
        fields.edit(|key, value| {
            Ok(if key == "name" && of_namespace {
                self.own(value)
            } else {
                None
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::mapping::field_rules;

    fn answers(field_rules: &'static FieldRules, many: bool) -> Answers {
        Answers {
            field_rules,
            many,
            names: Names::of(&"island".into(), false).unwrap(),
        }
    }

    fn whole(answers: &Answers, body: &Value) -> Value {
        let text = body.to_string();
        let mapped = answers.whole(text.as_bytes()).unwrap();
        serde_json::from_str(&mapped.unwrap_or(text)).unwrap()
    }

    fn line(answers: &Answers, body: &Value) -> Value {
        let text = body.to_string();
        let mapped = answers.line(text.as_bytes()).unwrap();
        serde_json::from_str(&mapped.unwrap_or(text)).unwrap()
    }

    fn map(namespace: &str) -> Value {
        json!({"kind": "ConfigMap", "metadata": {"name": "island", "namespace": namespace, "labels": {"in": "island"}},
               "data": {"namespace": "island"}})
    }

    #[test]
    fn objects_lists_and_events_are_mapped() {
        let (one, many) = (
            answers(field_rules::of("", "configmaps"), false),
            answers(field_rules::of("", "configmaps"), true),
        );
        assert_eq!(whole(&one, &map("island")), map("default"));
        let list = |name: &str| json!({"kind": "ConfigMapList", "metadata": {"resourceVersion": "5"}, "items": [map(name), map(name)]});
        assert_eq!(whole(&many, &list("island")), list("default"));
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            let event = |name: &str| json!({"type": kind, "object": map(name)});
            assert_eq!(line(&many, &event("island")), event("default"));
        }
        let bookmark = json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": "9"}}});
        assert_eq!(line(&many, &bookmark), bookmark);
        let error =
            json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "in island"}});
        assert_eq!(line(&many, &error), error);
    }

    #[test]
    fn a_list_in_place_of_a_watch_is_mapped_too() {
        let many = answers(field_rules::of("", "configmaps"), true);
        let list = |name: &str| json!({"kind": "ConfigMapList", "items": [map(name)]});
        assert_eq!(line(&many, &list("island")), list("default"));
    }

    #[test]
    fn tables_and_metadata_alone_are_mapped() {
        let many = answers(field_rules::of("", "configmaps"), true);
        let meta = |name: &str| json!({"kind": "PartialObjectMetadata", "metadata": {"name": "a", "namespace": name}});
        let list = |name: &str| json!({"kind": "PartialObjectMetadataList", "items": [meta(name)]});
        assert_eq!(whole(&many, &list("island")), list("default"));
        let table = |name: &str| {
            json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": [{"name": "Name"}],
                   "rows": [{"cells": ["island"], "object": meta(name)}, {"cells": ["b"], "object": null}]})
        };
        assert_eq!(whole(&many, &table("island")), table("default"));
        let event = |name: &str| json!({"type": "ADDED", "object": table(name)});
        assert_eq!(line(&many, &event("island")), event("default"));
    }

    #[test]
    fn an_object_with_items_is_one_object() {
        let one = answers(field_rules::of("example.com", "shelves"), false);
        let shelf = |name: &str| json!({"kind": "Shelf", "metadata": {"namespace": name}, "items": [{"metadata": {"namespace": "island"}}]});
        assert_eq!(whole(&one, &shelf("island")), shelf("default"));
    }

    #[test]
    fn events_are_mapped_with_what_they_speak_of() {
        let many = answers(field_rules::of("events.k8s.io", "events"), true);
        let event = |own: &str, other: &str| {
            json!({"metadata": {"namespace": own}, "regarding": {"namespace": own}, "involvedObject": {"namespace": own},
                   "related": {"namespace": other}})
        };
        let list = |own: &str, other: &str| json!({"kind": "EventList", "items": [event(own, other)]});
        assert_eq!(whole(&many, &list("island", "zoo")), list("default", "zoo"));
        assert_eq!(
            whole(&many, &list("island", "default")),
            list("default", "island")
        );
    }

    #[test]
    fn statuses_are_mapped_where_they_are_about_the_namespace() {
        let one = answers(field_rules::of("", "configmaps"), false);
        let status = |kind: &str, name: &str| json!({"kind": "Status", "details": {"kind": kind, "name": name}, "message": "namespaces \"island\" not found"});
        assert_eq!(
            whole(&one, &status("namespaces", "island")),
            status("namespaces", "default")
        );
        assert_eq!(
            whole(&one, &status("configmaps", "island")),
            status("configmaps", "island")
        );
    }

    #[test]
    fn the_namespace_itself_is_mapped_by_name() {
        let many = answers(field_rules::NAMESPACES, true);
        let namespace = |name: &str| json!({"kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": "island"}}});
        assert_eq!(
            line(&many, &json!({"type": "ADDED", "object": namespace("island")})),
            json!({"type": "ADDED", "object": namespace("default")})
        );
        let list = |name: &str| json!({"kind": "NamespaceList", "items": [namespace(name)]});
        assert_eq!(whole(&many, &list("island")), list("default"));
    }

    #[test]
    fn odd_forms_stay_and_broken_ones_are_reported() {
        let many = answers(field_rules::of("", "configmaps"), true);
        for odd in [
            json!([]),
            json!(null),
            json!("island"),
            json!({"items": {}}),
            json!({"metadata": []}),
        ] {
            assert_eq!(whole(&many, &odd), odd);
            assert_eq!(line(&many, &odd), odd);
        }
        for broken in [&b""[..], b"{", b"<html>", b"{\"metadata\":{\"namespace\":\"isl"] {
            assert!(many.whole(broken).is_err() && many.line(broken).is_err());
        }
    }
}
