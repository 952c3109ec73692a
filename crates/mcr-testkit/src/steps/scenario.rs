//! The format of scenarios. The documentation of the parent module describes it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;
use serde_json::Value;

use crate::suite::fail;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) templates: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) given: Vec<Named>,
    pub(super) scenarios: BTreeMap<String, Vec<Step>>,
}

impl File {
    pub(super) fn read(text: &str) -> Self {
        serde_saphyr::from_str(text).unwrap_or_else(|error| fail(error))
    }

    /// The object of a template with this name and namespace. Other placeholders are not filled.
    pub(super) fn object(&self, named: &str, more: Option<&Value>) -> Value {
        let parts = named.split_once(' ');
        let (template, name) = parts.unwrap_or_else(|| fail(format!("not a template and a name: {named}")));
        let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
        let object = self.templates.get(template);
        let object = object.unwrap_or_else(|| fail(format!("there is no template {template}")));
        let mut object = object.clone();
        replace(&mut object, &|text| {
            text.replace("$(namespace)", namespace).replace("$(name)", name)
        });
        if let Some(more) = more {
            json_patch::merge(&mut object, more);
        }
        object
    }
}

/// Replaces all texts that have placeholders.
pub(super) fn replace(value: &mut Value, with: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) if text.contains("$(") => *text = with(text),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, with)),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, with)),
        _ => {}
    }
}

/// Fills the placeholders of a text. `uid` returns the UID of an object.
pub(super) fn fill(text: &str, round: usize, uid: &dyn Fn(&str) -> String) -> String {
    let mut text = text.replace("$(round)", &format!("{round:04}"));
    while let Some((before, rest)) = text.split_once("$(") {
        let (call, after) = rest.split_once(')').unwrap_or((rest, ""));
        let (function, of) = call.split_once(' ').unwrap_or((call, ""));
        let (count, part) = of.split_once(' ').unwrap_or((of, " "));
        let filled = match function {
            "kubeconfig" => kubeconfig(of),
            "repeat" => part.repeat(count.parse().unwrap_or_default()),
            "uid" => uid(of),
            _ => fail(format!("there is no placeholder $({call})")),
        };
        text = format!("{before}{filled}{after}");
    }
    text
}

/// A kubeconfig of a cluster where nothing answers.
pub fn kubeconfig(token: &str) -> String {
    format!(
        "current-context: one\n\
         contexts: [{{name: one, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\n"
    )
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    #[serde(default)]
    pub(super) about: String,
    pub(super) rights: Option<Rights>,
    pub(super) away: Option<bool>,
    #[serde(default)]
    pub(super) answers: BTreeMap<String, Value>,
    #[serde(default, rename = "do")]
    pub(super) own: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) delete: Vec<String>,
    #[serde(default)]
    pub(super) create: Vec<Named>,
    #[serde(default)]
    pub(super) apply: Vec<Named>,
    #[serde(default)]
    pub(super) merge: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) refuse: Vec<String>,
    #[serde(default = "once")]
    pub(super) repeat: usize,
    #[serde(default)]
    pub(super) expire: bool,
    pub(super) provider: Option<Value>,
    #[serde(default)]
    pub(super) restart: bool,

    #[serde(default)]
    pub(super) expect: Expected,
    pub(super) fails: Option<String>,
    #[serde(default = "ten_minutes")]
    pub(super) within: Time,
    pub(super) after: Option<Time>,
    #[serde(default = "a_second")]
    pub(super) quiet: Time,
    #[serde(default)]
    pub(super) fleet: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) requests: BTreeMap<String, usize>,
    #[serde(default)]
    pub(super) uris: BTreeMap<String, String>,
    pub(super) events: Option<Vec<String>>,
    #[serde(default)]
    pub(super) warns: BTreeMap<String, usize>,
}

/// An object by its template and name, optionally with a merge patch.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Named {
    Plain(String),
    With(BTreeMap<String, Value>),
}

impl Named {
    pub(super) fn parts(&self) -> (&str, Option<&Value>) {
        match self {
            Self::Plain(name) => (name, None),
            Self::With(map) => match map.first_key_value() {
                Some((name, more)) if map.len() == 1 => (name, Some(more)),
                _ => fail(format!("not one object with a merge patch: {map:?}")),
            },
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rights {
    #[serde(default)]
    pub(super) without: Vec<String>,
    #[serde(default, rename = "in")]
    pub(super) namespaces: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Expected {
    Lines(Vec<String>),
    Count(usize),
}

impl Default for Expected {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

impl Expected {
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.len(),
            Self::Count(count) => *count,
        }
    }
}

/// A duration such as `90s`, `15m` or `2h`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(pub(super) Duration);

impl TryFrom<String> for Time {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let units = [("s", 1), ("m", 60), ("h", 3600)];
        let seconds = units.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
            Some(seconds * number)
        });
        let seconds = seconds.ok_or(format!("{text} is no time such as 90s, 15m or 2h"))?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

fn once() -> usize {
    1
}

fn ten_minutes() -> Time {
    Time(Duration::from_secs(600))
}

fn a_second() -> Time {
    Time(Duration::from_secs(1))
}
