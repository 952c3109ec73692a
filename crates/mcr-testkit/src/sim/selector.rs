use serde_json::Value;

use super::error::SimError;
use super::kinds::Kind;
use super::object::{Object, text};

/// The selectors of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Label>,
    fields: Vec<Field>,
    /// Objects that are not being deleted are left out, whether they match or not.
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
            labels: Parser::new(labels).requirements()?,
            fields: parse_fields(kind, fields)?,
            only_deleting: false,
        })
    }

    /// Whether an object that matches is shown.
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
        // Names need no parsing of the object; anything else does, once.
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

/// The grammar of label selectors, with the messages of its Kubernetes parser.
struct Parser {
    tokens: Vec<String>,
    at: usize,
}

impl Parser {
    fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        let characters: Vec<char> = text.chars().collect();
        let mut at = 0;
        while let Some(&character) = characters.get(at) {
            at += 1;
            let special = matches!(character, '=' | '!' | '(' | ')' | ',' | '<' | '>');
            if !special && !character.is_whitespace() {
                word.push(character);
                continue;
            }
            if !word.is_empty() {
                tokens.push(std::mem::take(&mut word));
            }
            if special {
                let next = characters.get(at).copied();
                let double = matches!((character, next), ('=' | '!', Some('=')));
                if double {
                    at += 1;
                }
                tokens.push(if double {
                    format!("{character}=")
                } else {
                    character.to_string()
                });
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self { tokens, at: 0 }
    }

    fn peek(&self) -> &str {
        self.tokens.get(self.at).map_or("", String::as_str)
    }

    fn next(&mut self) -> String {
        let token = self.peek().to_owned();
        self.at += 1;
        token
    }

    fn requirements(mut self) -> Result<Vec<Label>, SimError> {
        let mut labels = Vec::new();
        loop {
            match self.peek() {
                "" => return Ok(labels),
                token if token == "!" || is_word(token) => {}
                token => {
                    let message = format!("found '{token}', expected: !, identifier, or 'end of string'");
                    return Err(SimError::bad_request(message));
                }
            }
            labels.push(self.requirement()?);
            match self.next().as_str() {
                "" => return Ok(labels),
                "," => {
                    let next = self.peek();
                    if next != "!" && !is_word(next) {
                        let message = format!("found '{next}', expected: identifier after ','");
                        return Err(SimError::bad_request(message));
                    }
                }
                other => {
                    let message = format!("found '{other}', expected: ',' or 'end of string'");
                    return Err(SimError::bad_request(message));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Label, SimError> {
        let absent = self.peek() == "!";
        if absent {
            self.at += 1;
        }
        let key = self.identifier()?;
        check_key(&key)?;
        if absent {
            return Ok(Label {
                key,
                wants: Wants::Absent,
            });
        }
        let wants = match self.peek() {
            "" | "," => Wants::Exists,
            "=" | "==" => {
                self.at += 1;
                Wants::In(vec![self.value()?])
            }
            "!=" => {
                self.at += 1;
                Wants::NotIn(vec![self.value()?])
            }
            "in" => {
                self.at += 1;
                Wants::In(self.values()?)
            }
            "notin" => {
                self.at += 1;
                Wants::NotIn(self.values()?)
            }
            sign @ (">" | "<") => {
                let above = sign == ">";
                self.at += 1;
                let text = self.value()?;
                let limit = text.parse().map_err(|_| {
                    parse_error(&format!(
                        "values[0]: Invalid value: \"{text}\": for 'Gt', 'Lt' operators, the value must be an integer"
                    ))
                })?;
                if above {
                    Wants::Above(limit)
                } else {
                    Wants::Below(limit)
                }
            }
            other => {
                return Err(unexpected(other, "in, notin, =, ==, !=, gt, lt"));
            }
        };
        Ok(Label { key, wants })
    }

    fn identifier(&mut self) -> Result<String, SimError> {
        let token = self.next();
        if is_word(&token) {
            Ok(token)
        } else {
            Err(unexpected(&token, "identifier"))
        }
    }

    /// A value, which may be left out.
    fn value(&mut self) -> Result<String, SimError> {
        match self.peek() {
            "" | "," => Ok(String::new()),
            _ => self.identifier(),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, SimError> {
        let open = self.next();
        if open != "(" {
            return Err(parse_error(&format!("found '{open}' expected: '('")));
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                "," => {
                    self.at += 1;
                    values.push(String::new());
                    continue;
                }
                ")" => {
                    self.at += 1;
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    return Ok(values);
                }
                _ => values.push(self.identifier()?),
            }
            match self.next().as_str() {
                "," if self.peek() == ")" => values.push(String::new()),
                "," => {}
                ")" => return Ok(values),
                other => return Err(unexpected(other, "',' or ')'")),
            }
        }
    }
}

/// A label's key: a name, with an optional domain before it.
fn check_key(key: &str) -> Result<(), SimError> {
    const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let parts: Vec<&str> = key.split('/').collect();
    let why = match parts.as_slice() {
        [name] | [_, name] => {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = name.as_bytes();
            let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
            if edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner) && bytes.len() <= 63 {
                return Ok(());
            }
            format!("name part {NAME}")
        }
        _ => format!(
            "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ),
    };
    Err(parse_error(&format!("<nil>: Invalid value: \"{key}\": {why}")))
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(['=', '!', '(', ')', ',', '<', '>'])
}

fn unexpected(found: &str, expected: &str) -> SimError {
    parse_error(&format!("found '{found}', expected: {expected}"))
}

fn parse_error(what: &str) -> SimError {
    SimError::bad_request(format!("unable to parse requirement: {what}"))
}

/// Field selectors that a built-in resource knows besides name and namespace.
fn known_fields(kind: &Kind) -> &'static [&'static str] {
    match &*kind.resource {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "secrets" => &["type"],
        "namespaces" => &["status.phase"],
        "services" => &["spec.clusterIP", "spec.type"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "jobs.batch" => &["status.successful"],
        "replicasets.apps" | "replicationcontrollers" => &["status.replicas"],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        _ => &[],
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
            || known_fields(kind).contains(&path)
            || selectable.is_some_and(|selectable| selectable.iter().any(|known| known == path));
        if !known {
            let message = if kind.custom.is_some() || !known_fields(kind).is_empty() {
                format!("field label not supported: {path}")
            } else {
                format!(
                    "\"{path}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            };
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
