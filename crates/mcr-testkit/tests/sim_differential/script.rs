//! Scripts: requests that are sent to a server, and what it answered.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A request. `{name}` in path and body stands for what an earlier step saved.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    method: Method,
    path: String,
    body: Option<String>,
    headers: Vec<(&'static str, String)>,
    user: &'static str,
    save: Vec<(&'static str, &'static str)>,
    background: bool,
    compact: bool,
    quiet: bool,
}

fn step(method: Method, path: &str, body: Option<String>) -> Step {
    Step {
        method,
        path: path.to_owned(),
        body,
        headers: vec![("user-agent", "tester/1".to_owned())],
        user: "admin",
        save: Vec::new(),
        background: false,
        compact: false,
        quiet: false,
    }
}

pub(crate) fn get(path: &str) -> Step {
    step(Method::GET, path, None)
}

pub(crate) fn post(path: &str, body: Value) -> Step {
    step(Method::POST, path, Some(body.to_string())).content("application/json")
}

pub(crate) fn put(path: &str, body: Value) -> Step {
    step(Method::PUT, path, Some(body.to_string())).content("application/json")
}

pub(crate) fn delete(path: &str) -> Step {
    step(Method::DELETE, path, None)
}

pub(crate) fn delete_with(path: &str, options: Value) -> Step {
    step(Method::DELETE, path, Some(options.to_string())).content("application/json")
}

pub(crate) fn patch(kind: &str, path: &str, body: Value) -> Step {
    let media = match kind {
        "apply" => "application/apply-patch+yaml".to_owned(),
        "strategic" => "application/strategic-merge-patch+json".to_owned(),
        "merge" => "application/merge-patch+json".to_owned(),
        "json" => "application/json-patch+json".to_owned(),
        other => other.to_owned(),
    };
    step(Method::PATCH, path, Some(body.to_string())).content(&media)
}

pub(crate) fn raw(method: Method, path: &str, body: &str) -> Step {
    step(method, path, Some(body.to_owned())).content("application/json")
}

/// A watch that is open while the following steps run; its events are in the transcript of the end.
pub(crate) fn watch(path: &str) -> Step {
    Step {
        background: true,
        ..get(path)
    }
}

/// Makes the server forget all history.
pub(crate) fn compact() -> Step {
    Step {
        compact: true,
        ..get("")
    }
}

impl Step {
    fn content(self, media: &str) -> Self {
        self.header("content-type", media)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }

    /// Compares the status code only.
    pub(crate) fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    pub(crate) fn by(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    pub(crate) fn save(mut self, name: &'static str, pointer: &'static str) -> Self {
        self.save.push((name, pointer));
        self
    }
}

/// Steps that have a namespace of their own, `{ns}`.
pub(crate) struct Script {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
}

/// A server to run scripts against.
pub(crate) trait Server: Sync {
    fn client(&self, user: &str) -> Client;
    fn compact(&self) -> impl Future<Output = ()> + Send;
}

/// The answer of a server to a step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) step: String,
    pub(crate) code: u16,
    pub(crate) media: String,
    /// The body; of a watch its events.
    pub(crate) body: Value,
}

pub(crate) async fn run(server: &impl Server, script: &Script) -> Vec<Answer> {
    let mut saved: BTreeMap<String, String> = BTreeMap::new();
    saved.insert("ns".to_owned(), script.name.replace('_', "-"));
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{ns}" } });
    let mut answers = Vec::new();
    let mut watches = Vec::new();
    let first = post("/api/v1/namespaces", namespace);
    for step in std::iter::once(&first).chain(&script.steps) {
        if step.compact {
            server.compact().await;
            continue;
        }
        let fill = |text: &str| {
            saved.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), value)
            })
        };
        let path = fill(&step.path);
        let body = step.body.as_deref().map(fill);
        let label = format!("{} {path} {}", step.method, body.as_deref().unwrap_or_default());
        let mut request = Request::builder().method(step.method.clone()).uri(&path);
        for (name, value) in &step.headers {
            request = request.header(*name, value);
        }
        let request = request.body(body.unwrap_or_default().into_bytes()).unwrap();
        let mut tries = 0;
        let (parts, body) = loop {
            let request = request.clone().map(Body::from);
            let (parts, body) = server.client(step.user).send(request).await.unwrap().into_parts();
            // The storage of a new CRD takes its time.
            if parts.status != http::StatusCode::TOO_MANY_REQUESTS || tries > 600 {
                break (parts, body);
            }
            tries += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let media = parts
            .headers
            .get("content-type")
            .map_or("", |value| value.to_str().unwrap());
        let mut answer = Answer {
            step: label,
            code: parts.status.as_u16(),
            media: media.to_owned(),
            body: Value::Null,
        };
        let is_watch = path.contains("watch=") && answer.code == 200;
        let read = async move {
            let collected = tokio::time::timeout(Duration::from_secs(60), body.collect());
            let bytes = collected.await.expect("the answer ends").unwrap().to_bytes();
            parse(&bytes, is_watch)
        };
        if step.background {
            watches.push((answer, tokio::spawn(read)));
            continue;
        }
        answer.body = read.await;
        if step.quiet {
            answer.body = Value::Null;
        }
        for (name, pointer) in &step.save {
            let value = answer.body.pointer(pointer).cloned().unwrap_or_default();
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            saved.insert((*name).to_owned(), text);
        }
        answers.push(answer);
    }
    for (mut answer, events) in watches {
        answer.body = events.await.unwrap();
        answers.push(answer);
    }
    answers
}

fn parse(bytes: &[u8], lines: bool) -> Value {
    if lines {
        let events = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
        return events.map(Result::unwrap).collect();
    }
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into())
}
