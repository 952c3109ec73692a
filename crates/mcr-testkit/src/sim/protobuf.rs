//! Reads the protobuf bodies that `kubectl create` sends, for a few kinds with small messages such as ConfigMap.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The fields of a message: their numbers, their names in JSON, and their forms.
type Message = &'static [(u64, &'static str, Form)];

#[derive(Clone, Copy)]
enum Form {
    Text,
    Texts,
    Bool,
    TextMap,
    BytesMap,
    Message(Message),
}

/// The first bytes of each body, before the envelope.
const MAGIC: &[u8] = b"k8s\0";
const TYPE: Message = &[(1, "apiVersion", Form::Text), (2, "kind", Form::Text)];
const METADATA: Message = &[
    (1, "name", Form::Text),
    (2, "generateName", Form::Text),
    (3, "namespace", Form::Text),
    (5, "uid", Form::Text),
    (6, "resourceVersion", Form::Text),
    (11, "labels", Form::TextMap),
    (12, "annotations", Form::TextMap),
    (14, "finalizers", Form::Texts),
];
const FINALIZERS: Message = &[(1, "finalizers", Form::Texts)];
const PHASE: Message = &[(1, "phase", Form::Text)];

fn fields(kind: &str) -> Option<Message> {
    Some(match kind {
        "ConfigMap" => &[
            (1, "metadata", Form::Message(METADATA)),
            (2, "data", Form::TextMap),
            (3, "binaryData", Form::BytesMap),
            (4, "immutable", Form::Bool),
        ],
        "Secret" => &[
            (1, "metadata", Form::Message(METADATA)),
            (2, "data", Form::BytesMap),
            (3, "type", Form::Text),
            (4, "stringData", Form::TextMap),
            (5, "immutable", Form::Bool),
        ],
        "Namespace" => &[
            (1, "metadata", Form::Message(METADATA)),
            (2, "spec", Form::Message(FINALIZERS)),
            (3, "status", Form::Message(PHASE)),
        ],
        "ServiceAccount" => &[(1, "metadata", Form::Message(METADATA))],
        _ => return None,
    })
}

/// The object in a body. `None` if the body is malformed, or contains anything that is not supported here.
pub(super) fn object(body: &[u8]) -> Option<Value> {
    // The first field of the envelope is the type of the object, the second field is the object.
    let envelope = Fields(body.strip_prefix(MAGIC)?).collect::<Option<Vec<_>>>()?;
    let part = |wanted| {
        let found = envelope.iter().find(|(number, _)| *number == wanted)?;
        match found.1 {
            Wire::Bytes(bytes) => Some(bytes),
            Wire::Number(_) => None,
        }
    };
    let of_type = message(part(1)?, TYPE)?;
    let mut object = message(part(2)?, fields(of_type.get("kind")?.as_str()?)?)?;
    object.extend(of_type);
    Some(Value::Object(object))
}

fn message(bytes: &[u8], known: Message) -> Option<Map<String, Value>> {
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        // The encoding also contains the fields that are empty.
        if matches!(wire, Wire::Bytes([]) | Wire::Number(0)) {
            continue;
        }
        let (_, name, form) = known.iter().find(|(known, ..)| *known == number)?;
        let inner = |key: &str| object.get(key).cloned();
        let value = match (form, wire) {
            (Form::Bool, Wire::Number(number)) => Value::Bool(number != 0),
            (Form::Text, Wire::Bytes(bytes)) => text(bytes)?,
            (Form::Texts, Wire::Bytes(bytes)) => {
                let mut all = inner(name).unwrap_or_else(|| json!([]));
                all.as_array_mut()?.push(text(bytes)?);
                all
            }
            (Form::TextMap | Form::BytesMap, Wire::Bytes(bytes)) => {
                let (mut key, mut value) = (String::new(), Value::String(String::new()));
                for part in Fields(bytes) {
                    match (part?, form) {
                        ((1, Wire::Bytes(bytes)), _) => key = std::str::from_utf8(bytes).ok()?.to_owned(),
                        ((2, Wire::Bytes(bytes)), Form::BytesMap) => value = STANDARD.encode(bytes).into(),
                        ((2, Wire::Bytes(bytes)), _) => value = text(bytes)?,
                        _ => return None,
                    }
                }
                let mut all = inner(name).unwrap_or_else(|| json!({}));
                all.as_object_mut()?.insert(key, value);
                all
            }
            (Form::Message(known), Wire::Bytes(bytes)) => message(bytes, known)?.into(),
            _ => return None,
        };
        if value != json!({}) {
            object.insert((*name).to_owned(), value);
        }
    }
    Some(object)
}

fn text(bytes: &[u8]) -> Option<Value> {
    Some(std::str::from_utf8(bytes).ok()?.into())
}

/// The encoded value of a field.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in their order. `None` for a field that is malformed, or has an unsupported form.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Wire<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.number()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.number()?),
            2 => {
                let len = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(len)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, wire))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}
