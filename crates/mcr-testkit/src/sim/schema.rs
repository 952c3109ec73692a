use serde_json::{Map, Value};

use super::cause::Cause;

/// The structural schema of a version of a CRD. It prunes objects, sets defaults and validates.
///
/// Supported: `type`, `properties`, `additionalProperties`, `items`, `required`, `enum`, `minimum`,
/// `maximum`, `minLength`, `maxLength`, `minItems`, `maxItems`, `default`, `nullable`, the
/// `x-kubernetes-` words for lists, unknown fields, int-or-string and embedded resources. Not
/// supported: `pattern`, `format`, `oneOf`, `anyOf`, `allOf`, `not` and CEL rules.
#[derive(Debug)]
pub struct Schema(Value);

/// How the items of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// Replaced as a whole.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields.
    Map(Vec<String>),
}

impl Schema {
    pub fn new(schema: Value) -> Self {
        Self(schema)
    }

    pub fn root(&self) -> &Value {
        &self.0
    }

    /// Removes the fields that the schema does not name.
    pub fn prune(&self, object: &mut Value) {
        prune(&self.0, object, true);
    }

    pub fn fill_in(&self, object: &mut Value) {
        fill_in(&self.0, object);
    }

    /// Checks an object, or only its status if the status is written. Then the messages are relative to the status,
    /// but the fields are not.
    pub fn check(&self, object: &Value, below: &str) -> Vec<Cause> {
        let mut causes = Vec::new();
        if below.is_empty() {
            check(&self.0, object, "", &mut causes);
            return causes;
        }
        if let Some(value) = object.get(below) {
            check(&self.0["properties"][below], value, "", &mut causes);
        }
        for cause in &mut causes {
            cause.field = format!("{below}.{}", cause.field);
        }
        causes
    }
}

fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn prune(schema: &Value, value: &mut Value, root: bool) {
    match value {
        Value::Object(map) => {
            let properties = schema["properties"].as_object();
            let additional = &schema["additionalProperties"];
            let embedded = root || schema["x-kubernetes-embedded-resource"] == true;
            let keep = keeps_unknown(schema) || *additional == true;
            map.retain(|name, value| {
                if embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    return true;
                }
                if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                    prune(schema, value, false);
                    return true;
                }
                if additional.is_object() {
                    prune(additional, value, false);
                    return true;
                }
                keep
            });
        }
        Value::Array(items) if schema["items"].is_object() => {
            for item in items {
                prune(&schema["items"], item, false);
            }
        }
        _ => {}
    }
}

fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            let properties = schema["properties"].as_object();
            for (name, schema) in properties.into_iter().flatten() {
                if let Some(default) = schema.get("default") {
                    let absent = map
                        .get(name)
                        .is_none_or(|value| value.is_null() && schema["nullable"] != true);
                    if absent {
                        map.insert(name.clone(), default.clone());
                    }
                }
                if let Some(value) = map.get_mut(name) {
                    fill_in(schema, value);
                }
            }
            if schema["additionalProperties"].is_object() {
                let known = |name: &String| properties.is_some_and(|known| known.contains_key(name));
                for (_, value) in map.iter_mut().filter(|(name, _)| !known(name)) {
                    fill_in(&schema["additionalProperties"], value);
                }
            }
        }
        Value::Array(items) if schema["items"].is_object() => {
            for item in items {
                fill_in(&schema["items"], item);
            }
        }
        _ => {}
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let found = type_name(value);
    let wanted = schema["type"].as_str().unwrap_or_default();
    let fits = wanted.is_empty() || wanted == found || (wanted == "number" && found == "integer");
    if !fits && schema["x-kubernetes-int-or-string"] != true {
        let message =
            format!("Invalid value: \"{found}\": {path} in body must be of type {wanted}: \"{found}\"");
        causes.push(Cause::of(path, "FieldValueTypeInvalid", message));
        return;
    }
    check_limits(schema, value, path, causes);
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::unsupported(path, value, &allowed));
    }
    match value {
        Value::Object(map) => check_object(schema, map, path, causes),
        Value::Array(items) if schema["items"].is_object() => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

fn check_limits(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    // In tests, sizes are small enough for floats to be exact.
    #[allow(clippy::cast_precision_loss)]
    let length = |length: Option<usize>| length.map(|length| length as f64);
    let number = value.as_f64();
    let characters = length(value.as_str().map(|text| text.chars().count()));
    let items = length(value.as_array().map(Vec::len));
    const INVALID: &str = "FieldValueInvalid";
    for (word, size, least, words, reason) in [
        ("minimum", number, true, "be greater than or equal to", INVALID),
        ("maximum", number, false, "be less than or equal to", INVALID),
        ("minLength", characters, true, "be at least", INVALID),
        ("maxLength", characters, false, "be at most", "FieldValueTooLong"),
        ("minItems", items, true, "have at least", INVALID),
        ("maxItems", items, false, "have at most", "FieldValueTooMany"),
    ] {
        let (Some(limit), Some(size)) = (schema[word].as_f64(), size) else {
            continue;
        };
        if (least && size < limit) || (!least && size > limit) {
            let shown = &schema[word];
            let message = format!("Invalid value: {value}: {path} in body should {words} {shown}");
            causes.push(Cause::of(path, reason, message));
        }
    }
}

fn check_object(schema: &Value, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        if !map.contains_key(name) {
            causes.push(Cause::required(&below(name), ""));
        }
    }
    let properties = schema["properties"].as_object();
    for (name, value) in map {
        if path.is_empty() && name == "metadata" {
            continue;
        }
        let known = properties.and_then(|properties| properties.get(name));
        let additional = Some(&schema["additionalProperties"]).filter(|schema| schema.is_object());
        if let Some(schema) = known.or(additional) {
            check(schema, value, &below(name), causes);
        }
    }
}
