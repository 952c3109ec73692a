use serde_json::Value;

use super::error::SimError;
use super::kinds::Kind;
use super::object::{Object, text};

/// The selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Label>,
    fields: Vec<Field>,
    /// Hides objects that are not being deleted, even if they match.
    pub only_deleting: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Label {
    key: String,
    wants: Wants,
}

#[derive(Clone, Debug, PartialEq)]
enum Wants {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug)]
struct Field {
    path: String,
    value: String,
    equal: bool,
}

impl Selector {
    pub fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, SimError> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(kind, fields)?,
            only_deleting: false,
        })
    }

    /// Whether the object is shown and matches.
    pub fn shows(&self, object: &Object) -> bool {
        !self.only_deleting || !text(&object.value(), "deletionTimestamp").is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Object) -> bool {
        if !self.labels.iter().all(|label| label.matches(object)) {
            return false;
        }
        // Names are compared without parsing the object. For anything else, it is parsed once.
        let mut parsed = None;
        self.fields.iter().all(|field| {
            let equal = match field.path.as_str() {
                "metadata.name" => object.name() == field.value,
                "metadata.namespace" => object.namespace() == field.value,
                path => {
                    let value = parsed.get_or_insert_with(|| object.value());
                    field_text(value, path) == field.value
                }
            };
            equal == field.equal
        })
    }
}

fn field_text(value: &Value, path: &str) -> String {
    let mut at = value;
    for part in path.split('.') {
        at = &at[part];
    }
    match at {
        Value::Null if path.ends_with("unschedulable") => "false".to_owned(),
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Label {
    fn matches(&self, object: &Object) -> bool {
        let value = object.label(&self.key);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.wants {
            Wants::Exists => value.is_some(),
            Wants::Absent => value.is_none(),
            Wants::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Wants::NotIn(values) => value.is_none_or(|value| !values.iter().any(|wanted| wanted == value)),
            Wants::Above(limit) => number().is_some_and(|number| number > *limit),
            Wants::Below(limit) => number().is_some_and(|number| number < *limit),
        }
    }
}

/// Parses the requirements of a label selector. Commas separate requirements, and also the values in parentheses.
fn parse_labels(text: &str) -> Result<Vec<Label>, SimError> {
    let mut depth = 0;
    let terms = text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    });
    let terms: Vec<&str> = terms.map(str::trim).collect();
    if terms == [""] {
        return Ok(Vec::new());
    }
    terms.into_iter().map(parse_label).collect()
}

fn parse_label(term: &str) -> Result<Label, SimError> {
    let refused = || SimError::bad_request(format!("unable to parse requirement: {term:?}"));
    let one = |value: &str| vec![value.trim().to_owned()];
    let limit = |text: &str| text.trim().parse().map_err(|_| refused());
    let (key, wants) = if let Some(key) = term.strip_prefix('!') {
        (key, Wants::Absent)
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, Wants::NotIn(one(value)))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (key, Wants::In(one(value)))
    } else if let Some((key, text)) = term.split_once('>') {
        (key, Wants::Above(limit(text)?))
    } else if let Some((key, text)) = term.split_once('<') {
        (key, Wants::Below(limit(text)?))
    } else if let Some((head, values)) = term.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(refused)?.split(',');
        let values = values.map(|value| value.trim().to_owned()).collect();
        match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => (key, Wants::In(values)),
            Some((key, "notin")) => (key, Wants::NotIn(values)),
            _ => return Err(refused()),
        }
    } else {
        (term, Wants::Exists)
    };
    let key = key.trim().to_owned();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] | [_, name] => name,
        _ => return Err(refused()),
    };
    let fits = match &wants {
        Wants::In(values) | Wants::NotIn(values) => {
            values.iter().all(|value| value.is_empty() || is_name(value))
        }
        _ => true,
    };
    if !fits || !is_name(name) {
        return Err(refused());
    }
    Ok(Label { key, wants })
}

/// Whether this is a valid label value, or a valid name part of a label key.
fn is_name(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner) && bytes.len() <= 63
}

/// The field selectors that a built-in resource supports beside name and namespace.
fn known_fields(kind: &Kind) -> &'static str {
    match &*kind.resource {
        "pods" => {
            "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase \
             status.podIP status.nominatedNodeName"
        }
        "nodes" => "spec.unschedulable",
        "secrets" => "type",
        "namespaces" => "status.phase",
        "services" => "spec.clusterIP spec.type",
        "events" => {
            "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
             involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
             reportingComponent source type"
        }
        "jobs.batch" => "status.successful",
        "replicasets.apps" | "replicationcontrollers" => "status.replicas",
        "certificatesigningrequests.certificates.k8s.io" => "spec.signerName",
        _ => "",
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<Field>, SimError> {
    let mut fields = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let split = [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .find_map(|(sign, equal)| term.split_once(sign).map(|(path, value)| (path, value, equal)));
        let Some((path, value, equal)) = split else {
            let message = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(SimError::bad_request(message));
        };
        let selectable = kind.custom.as_ref().map(|custom| &custom.selectable);
        let known = matches!(path, "metadata.name" | "metadata.namespace")
            || known_fields(kind).split_whitespace().any(|known| known == path)
            || selectable.is_some_and(|selectable| selectable.iter().any(|known| known == path));
        if !known {
            let message = format!("field label not supported: {path}");
            return Err(SimError::bad_request(message));
        }
        fields.push(Field {
            path: path.to_owned(),
            value: value.to_owned(),
            equal,
        });
    }
    Ok(fields)
}
