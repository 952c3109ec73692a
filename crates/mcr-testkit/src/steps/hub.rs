//! The hub of a scenario: its objects, the rights of the provider, and faults between the provider and the hub.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io::{Error, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::scenario::{File, Named, Rights, fill, replace};
use crate::{
    sim::{SimCluster, SimRule, SimUser},
    suite::fail,
};

/// The user and the token with which the provider works.
pub(super) const PROVIDER: &str = "provider";

pub(super) struct Hub<'a> {
    pub(super) server: SimCluster,
    file: &'a File,
    away: Arc<AtomicBool>,
    /// Answers that replace those of the server, by the end of the path.
    answers: Arc<Mutex<BTreeMap<String, Value>>>,
}

impl<'a> Hub<'a> {
    pub(super) fn new(file: &'a File) -> Self {
        let server = SimCluster::builder().history(100_000).audit_limit(100_000);
        Self {
            server: server.build(),
            file,
            away: Arc::default(),
            answers: Arc::default(),
        }
    }

    /// A client of the provider.
    pub(super) fn client(&self) -> kube::Client {
        let service = self.server.service().with_token(PROVIDER);
        let (away, answers) = (self.away.clone(), self.answers.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (service, away, answers) = (service.clone(), away.clone(), answers.clone());
            async move {
                if away.load(SeqCst) {
                    return Err(Error::new(ErrorKind::ConnectionRefused, "the hub is away"));
                }
                let path = request.uri().path();
                let own = answers.lock().iter().find_map(|(end, answer)| {
                    (path.ends_with(end.as_str()) && !answer.is_null()).then(|| answer.clone())
                });
                match own {
                    Some(Value::String(_)) => std::future::pending().await,
                    Some(answer) => Ok(answered(&answer)),
                    None => Ok(service.answer(request).await.map(BodyExt::boxed)),
                }
            }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn set_away(&self, away: bool) {
        self.away.store(away, SeqCst);
        self.server.end_watches();
    }

    pub(super) fn set_answers(&self, answers: &BTreeMap<String, Value>) {
        for (end, answer) in answers {
            let answer = self.filled(answer, 0);
            self.answers.lock().insert(end.clone(), answer);
        }
    }

    /// Grants the provider the rights of these roles, except those that `rights` excludes.
    pub(super) fn grant(&self, roles: &str, rights: &Rights) {
        let mut user = SimUser::new(PROVIDER);
        for role in roles.split("\n---\n") {
            let mut role: Value = serde_saphyr::from_str(role).unwrap_or_else(|error| fail(error));
            for rule in role["rules"].as_array_mut().into_iter().flatten() {
                for without in &rights.without {
                    let (verb, resource) = without.split_once(' ').unwrap_or(("", without));
                    if list(rule, "resources").contains(&resource.to_owned()) {
                        let verbs = list(rule, "verbs");
                        let left = verbs.into_iter().filter(|has| !verb.is_empty() && has != verb);
                        rule["verbs"] = left.collect();
                    }
                }
            }
            for rule in SimRule::of_role(&role.to_string()).unwrap_or_else(|error| fail(error)) {
                user = match &rights.namespaces[..] {
                    [] => user.rule(rule),
                    some => some
                        .iter()
                        .fold(user, |user, space| user.rule(rule.clone().in_namespace(space))),
                };
            }
        }
        self.server.set_user(PROVIDER, user);
    }

    /// The object of a template, with its placeholders filled.
    pub(super) fn object(&self, named: &Named, round: usize) -> Value {
        let (name, more) = named.parts();
        self.filled(&self.file.object(name, more), round)
    }

    /// The resource and the key of an object, in the form of the server.
    pub(super) fn place(&self, named: &str, round: usize) -> (String, String) {
        let object = self.file.object(named, None);
        let metadata = self.filled(&object["metadata"], round);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut resource = format!("{}s", text(&object["kind"]).to_lowercase());
        if let Some((group, _)) = text(&object["apiVersion"]).split_once('/') {
            resource += &format!(".{group}");
        }
        let name = text(&metadata["name"]);
        match metadata["namespace"].as_str() {
            Some(namespace) => (resource, format!("{namespace}/{name}")),
            None => (resource, name),
        }
    }

    pub(super) fn get(&self, named: &str, round: usize) -> Value {
        let (resource, key) = self.place(named, round);
        let object = self.server.get(&resource, &key);
        object.unwrap_or_else(|| fail(format!("there is no {named}")))
    }

    /// Fills the placeholders in all texts of a value.
    pub(super) fn filled(&self, value: &Value, round: usize) -> Value {
        let mut value = value.clone();
        let uid = |named: &str| {
            let uid = &self.get(named, round)["metadata"]["uid"];
            uid.as_str().unwrap_or_default().to_owned()
        };
        replace(&mut value, &|text| fill(text, round, &uid));
        value
    }

    /// The names of all events, and each as a line.
    pub(super) fn events(&self) -> BTreeMap<String, String> {
        let events = self.server.list("events.events.k8s.io", "").into_iter();
        let line = |event: Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (of, name) = (&event["regarding"], text(&event["metadata"]["name"]));
            let object = format!(
                "{} {}/{}",
                text(&of["kind"]),
                text(&of["namespace"]),
                text(&of["name"])
            );
            (
                name,
                format!("{object} {}: {}", text(&event["reason"]), text(&event["note"])),
            )
        };
        events.map(line).collect()
    }
}

fn list(rule: &Value, field: &str) -> Vec<String> {
    let texts = rule[field].as_array().into_iter().flatten();
    texts.filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

fn answered(answer: &Value) -> Response<BoxBody<Bytes, Infallible>> {
    let status = answer["status"].as_u64().unwrap_or(200);
    let mut response = Response::builder().status(u16::try_from(status).unwrap_or(500));
    let none = json!({});
    let headers = answer["headers"].as_object().or(none.as_object());
    for (name, value) in headers.into_iter().flatten() {
        response = response.header(name, value.as_str().unwrap_or_default());
    }
    let body = match &answer["body"] {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let response = response.header("content-type", "application/json");
    let response = response.body(Full::new(Bytes::from(body)).boxed());
    response.unwrap_or_else(|error| fail(error))
}
