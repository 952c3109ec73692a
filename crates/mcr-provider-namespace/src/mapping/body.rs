//! Maps written bodies: replaces the namespace by its real name, or refuses the body.

use http::HeaderMap;
use serde_json::value::RawValue;

use super::{
    field_rules::{FieldRules, Rule},
    json::{self, Fields, Unreadable, edit_at, edit_elements, quoted, text},
    names::Names,
    refuse::Refusal,
};

/// The form of a written body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An object, or a patch in the form of one.
    Object,
    /// A list of operations.
    JsonPatch,
}

impl From<Unreadable> for Refusal {
    fn from(_: Unreadable) -> Self {
        Self::bad_request("the body of the request is not JSON")
    }
}

/// The form of a body by its media type. Refuses media types that can't be mapped.
pub(crate) fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let Some(value) = headers.get(http::header::CONTENT_TYPE) else {
        return Ok(Form::Object);
    };
    let media = value
        .to_str()
        .unwrap_or("?")
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match &*media {
        "application/json"
        | "application/merge-patch+json"
        | "application/strategic-merge-patch+json"
        | "application/apply-patch+yaml" => Ok(Form::Object),
        "application/json-patch+json" => Ok(Form::JsonPatch),
        _ => Err(Refusal::unsupported(&media)),
    }
}

/// Maps a body. `None` if nothing changes.
pub(crate) fn written(
    body: &[u8],
    form: Form,
    field_rules: &FieldRules,
    names: &Names,
) -> Result<Option<String>, Refusal> {
    let value = json::whole(body)?;
    match form {
        Form::Object if !value.get().starts_with('{') => {
            Err(Refusal::bad_request("the body of the request is not an object"))
        }
        Form::Object => edit_at(value, field_rules, &mut |rule, value| stored(rule, value, names)),
        Form::JsonPatch if !value.get().starts_with('[') => {
            Err(Refusal::bad_request("a JSON patch is a list of operations"))
        }
        Form::JsonPatch => edit_elements(value, |operation| patch(operation, field_rules, names)),
    }
}

/// Maps a name that the write stores.
fn stored(rule: Rule, value: &RawValue, names: &Names) -> Result<Option<String>, Refusal> {
    match text(value) {
        Some(name) if rule == Rule::Own && name == *names.inside => Ok(replaced(&name, &names.real)),
        // An empty name counts as a missing one.
        Some(name) if rule == Rule::Own && !name.is_empty() => Err(mismatch()),
        _ => Ok(compared(value, names)),
    }
}

/// Maps a name that the write only compares or refers to.
pub(super) fn compared(value: &RawValue, names: &Names) -> Option<String> {
    let name = text(value)?;
    replaced(&name, names.swap(&name))
}

pub(super) fn replaced(old: &str, new: &str) -> Option<String> {
    (old != new).then(|| quoted(new))
}

fn mismatch() -> Refusal {
    Refusal::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// One operation of a JSON patch.
fn patch(operation: &RawValue, field_rules: &FieldRules, names: &Names) -> Result<Option<String>, Refusal> {
    let Some(fields) = Fields::of(operation)? else {
        return Err(Refusal::bad_request("an operation of a JSON patch is an object"));
    };
    for name in ["op", "path", "from", "value"] {
        if fields.0.iter().filter(|(key, _)| key == name).count() > 1 {
            return Err(Refusal::bad_request(format!(
                "an operation of a JSON patch has two fields {name:?}"
            )));
        }
    }
    let read = |name| fields.get(name).and_then(text);
    let (op, path, from) = (read("op"), read("path").map(pointer), read("from").map(pointer));
    match op.as_deref() {
        Some("move" | "copy") => {
            let touches = |pointer: &Option<Vec<String>>| {
                pointer.as_ref().is_some_and(|pointer| {
                    field_rules
                        .iter()
                        .any(|(field_path, _)| leads_to(pointer, field_path))
                })
            };
            if touches(&path) || touches(&from) {
                return Err(Refusal::bad_request(
                    "a JSON patch can't move or copy what holds the name of a namespace here: in the object it has another \
                     name than in this cluster; add or remove it instead",
                ));
            }
            Ok(None)
        }
        op => {
            let Some(path) = path else { return Ok(None) };
            let below: Vec<_> = field_rules
                .iter()
                .filter(|(field_path, _)| leads_to(&path, field_path))
                .map(|(field_path, rule)| (&field_path[path.len()..], *rule))
                .collect();
            if below.is_empty() {
                return Ok(None);
            }
            let test = op == Some("test");
            fields.edit(|key, value| {
                if key != "value" {
                    return Ok(None);
                }
                edit_at(value, &below, &mut |rule, value| match test {
                    true => Ok(compared(value, names)),
                    false => stored(rule, value, names),
                })
            })
        }
    }
}

/// Whether the value at a pointer contains the field, or is the field.
fn leads_to(pointer: &[String], field_path: &[&'static str]) -> bool {
    pointer.len() <= field_path.len()
        && pointer
            .iter()
            .zip(field_path)
            .all(|(token, field)| token == field)
}

/// The tokens of a JSON pointer.
fn pointer(text: String) -> Vec<String> {
    text.split('/')
        .skip(1)
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, StatusCode, header};
    use serde_json::{Value, json};

    use super::*;
    use crate::mapping::field_rules;

    fn names(keep: bool) -> Names {
        Names::of(&"island".into(), keep).unwrap()
    }

    fn write_as(
        body: &Value,
        form: Form,
        (group, plural): (&str, &str),
        keep: bool,
    ) -> Result<Value, StatusCode> {
        let text = body.to_string();
        match written(
            text.as_bytes(),
            form,
            field_rules::of(group, plural),
            &names(keep),
        ) {
            Ok(mapped) => Ok(serde_json::from_str(&mapped.unwrap_or(text)).unwrap()),
            Err(refusal) => Err(refusal.code),
        }
    }

    fn write(body: Value) -> Result<Value, StatusCode> {
        write_as(&body, Form::Object, ("", "configmaps"), false)
    }

    fn patch(operations: Value) -> Result<Value, StatusCode> {
        write_as(&operations, Form::JsonPatch, ("", "configmaps"), false)
    }

    const BAD: Result<Value, StatusCode> = Err(StatusCode::BAD_REQUEST);

    #[test]
    fn the_namespace_of_what_is_written_becomes_the_real_one() {
        let object = |namespace: Value| json!({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}});
        assert_eq!(write(object(json!("default"))), Ok(object(json!("island"))));
        for same in [json!(""), json!(null), json!(5), json!(["default"])] {
            assert_eq!(write(object(same.clone())), Ok(object(same)));
        }
        for other in ["island", "zoo", "kube-system", "Default", "default "] {
            assert_eq!(write(object(json!(other))), BAD, "{other}");
        }
        let absent = json!({"metadata": {"name": "a", "labels": {"namespace": "default"}}, "data": {"namespace": "default"}});
        assert_eq!(write(absent.clone()), Ok(absent));
        assert_eq!(write(json!({})), Ok(json!({})));
        assert_eq!(write(json!({"metadata": null})), Ok(json!({"metadata": null})));
    }

    #[test]
    fn with_kept_names_only_the_real_one_is_taken() {
        let object = |namespace: &str| json!({"metadata": {"namespace": namespace}});
        let write = |body: Value| write_as(&body, Form::Object, ("", "configmaps"), true);
        assert_eq!(write(object("island")), Ok(object("island")));
        assert_eq!(write(object("default")), BAD);
    }

    #[test]
    fn every_duplicate_is_seen() {
        let field_rules = field_rules::of("", "configmaps");
        let twice = br#"{"metadata":{"namespace":"default"},"metadata":{"namespace":"zoo"}}"#;
        assert!(written(twice, Form::Object, field_rules, &names(false)).is_err());
        let twice = br#"{"metadata":{"namespace":"zoo","namespace":"default"}}"#;
        assert!(written(twice, Form::Object, field_rules, &names(false)).is_err());
        let escaped = br#"{"met\u0061data":{"n\u0061mespace":"def\u0061ult"}}"#;
        let mapped = written(escaped, Form::Object, field_rules, &names(false))
            .unwrap()
            .unwrap();
        assert_eq!(mapped, r#"{"metadata":{"namespace":"island"}}"#);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in [json!([]), json!("x"), json!(1), json!(null)] {
            assert_eq!(write(body), BAD);
        }
        for body in [&b""[..], b"apiVersion: v1\nkind: ConfigMap", b"{", b"\x00\xff"] {
            assert!(written(body, Form::Object, field_rules::of("", "pods"), &names(false)).is_err());
        }
    }

    #[test]
    fn events_speak_of_objects_in_namespaces() {
        let event = |own: &str, other: &str| {
            json!({
                "metadata": {"namespace": own},
                "involvedObject": {"namespace": own, "name": "default"},
                "regarding": {"namespace": own},
                "related": {"namespace": other},
                "reason": "default",
            })
        };
        for group in ["", "events.k8s.io"] {
            let write = |body: Value| write_as(&body, Form::Object, (group, "events"), false);
            assert_eq!(write(event("default", "zoo")), Ok(event("island", "zoo")));
            // An object that refers to the real default namespace can be read and written back unchanged.
            assert_eq!(write(event("default", "island")), Ok(event("island", "default")));
        }
        let pod = json!({"related": {"namespace": "default"}});
        assert_eq!(write(pod.clone()), Ok(pod));
        let patch = |operations: Value| write_as(&operations, Form::JsonPatch, ("", "events"), false);
        assert_eq!(
            patch(
                json!([{"op": "add", "path": "/involvedObject", "value": {"namespace": "default", "name": "a"}}])
            ),
            Ok(
                json!([{"op": "add", "path": "/involvedObject", "value": {"namespace": "island", "name": "a"}}])
            )
        );
        assert_eq!(
            patch(json!([{"op": "replace", "path": "/related/namespace", "value": "default"}])),
            Ok(json!([{"op": "replace", "path": "/related/namespace", "value": "island"}]))
        );
        assert_eq!(
            patch(json!([{"op": "copy", "from": "/related", "path": "/metadata/x"}])),
            BAD
        );
    }

    #[test]
    fn subjects_users_and_other_references_are_not_rewritten() {
        let binding = |own: &str| {
            json!({
                "kind": "RoleBinding", "metadata": {"name": "a", "namespace": own},
                "roleRef": {"kind": "Role", "name": "default"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"},
                             {"kind": "User", "name": "system:serviceaccount:default:default"}],
            })
        };
        let rbac = ("rbac.authorization.k8s.io", "rolebindings");
        assert_eq!(
            write_as(&binding("default"), Form::Object, rbac, false),
            Ok(binding("island"))
        );
        let pod = |own: &str| {
            json!({
                "metadata": {"namespace": own},
                "spec": {"template": {"metadata": {"namespace": "default"}}, "env": [{"value": "default"}]},
            })
        };
        assert_eq!(write(pod("default")), Ok(pod("island")));
    }

    #[test]
    fn a_local_review_asks_about_the_same_namespace() {
        let review = |name: &str| json!({"metadata": {"namespace": name}, "spec": {"user": "a", "resourceAttributes": {"namespace": name}}});
        let kind = ("authorization.k8s.io", "localsubjectaccessreviews");
        assert_eq!(
            write_as(&review("default"), Form::Object, kind, false),
            Ok(review("island"))
        );
    }

    #[test]
    fn json_patches_are_mapped_wherever_they_reach_the_namespace() {
        for op in ["add", "replace", "test"] {
            let own = |path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
            assert_eq!(
                patch(own("/metadata/namespace", json!("default"))),
                Ok(own("/metadata/namespace", json!("island")))
            );
            let metadata = |name: &str| json!({"name": "a", "namespace": name});
            assert_eq!(
                patch(own("/metadata", metadata("default"))),
                Ok(own("/metadata", metadata("island")))
            );
            let whole =
                |name: &str| json!({"metadata": {"namespace": name}, "data": {"namespace": "default"}});
            assert_eq!(patch(own("", whole("default"))), Ok(own("", whole("island"))));
            let elsewhere = own("/data/namespace", json!("default"));
            assert_eq!(patch(elsewhere.clone()), Ok(elsewhere));
            let below = own("/metadata/labels/namespace", json!("default"));
            assert_eq!(patch(below.clone()), Ok(below));
        }
        for op in ["add", "replace"] {
            let own = |path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
            assert_eq!(patch(own("/metadata/namespace", json!("zoo"))), BAD);
            assert_eq!(patch(own("/metadata/namespace", json!("island"))), BAD);
            assert_eq!(patch(own("/metadata", json!({"namespace": "zoo"}))), BAD);
            assert_eq!(patch(own("", json!({"metadata": {"namespace": "zoo"}}))), BAD);
        }
        // A test of the real name must fail, as there is no such namespace inside.
        assert_eq!(
            patch(json!([{"op": "test", "path": "/metadata/namespace", "value": "island"}])),
            Ok(json!([{"op": "test", "path": "/metadata/namespace", "value": "default"}]))
        );
        let remove = json!([{"op": "remove", "path": "/metadata/namespace"}]);
        assert_eq!(patch(remove.clone()), Ok(remove));
    }

    #[test]
    fn json_patches_neither_move_nor_copy_namespaces() {
        for op in ["move", "copy"] {
            for (from, path) in [
                ("/metadata/namespace", "/data/x"),
                ("/metadata", "/data/x"),
                ("", "/data/x"),
                ("/data/x", "/metadata/namespace"),
                ("/data/x", "/metadata"),
                ("/data", ""),
            ] {
                assert_eq!(
                    patch(json!([{"op": op, "from": from, "path": path}])),
                    BAD,
                    "{op} {from} {path}"
                );
            }
            let fine = json!([{"op": op, "from": "/metadata/labels/a", "path": "/data/a~1b"}]);
            assert_eq!(patch(fine.clone()), Ok(fine));
        }
    }

    #[test]
    fn ambiguous_json_patches_are_refused() {
        let field_rules = field_rules::of("", "configmaps");
        for body in [
            &br#"[{"op":"add","path":"/data/x","path":"/metadata/namespace","value":"zoo"}]"#[..],
            br#"[{"op":"test","op":"add","path":"/metadata/namespace","value":"zoo"}]"#,
            br#"[{"op":"add","path":"/metadata/namespace","value":"default","value":"zoo"}]"#,
            br#"["x"]"#,
            br#"{"metadata":{}}"#,
            br#"[{"#,
        ] {
            let refused =
                written(body, Form::JsonPatch, field_rules, &names(false)).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(StatusCode::BAD_REQUEST));
        }
        let escaped = patch(json!([{"op": "add", "path": "/metadata/namesp~0ace", "value": "zoo"}]));
        assert!(escaped.is_ok(), "~0 is a tilde, so that is another field");
    }

    #[test]
    fn bodies_that_can_not_be_read_are_refused_in_words() {
        let form = |media: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            form(&headers)
        };
        assert_eq!(super::form(&HeaderMap::new()), Ok(Form::Object));
        for object in [
            "application/json",
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ] {
            assert_eq!(form(object), Ok(Form::Object), "{object}");
        }
        assert_eq!(form("application/json-patch+json"), Ok(Form::JsonPatch));
        for other in [
            "application/vnd.kubernetes.protobuf",
            "application/cbor",
            "application/apply-patch+cbor",
            "application/yaml",
            "text/plain",
            "",
        ] {
            let refusal = form(other).unwrap_err();
            assert_eq!(refusal.code, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{other}");
            assert!(refusal.message.contains("send JSON"), "{}", refusal.message);
        }
    }
}
