//! A server that answers as a test decides, as a workspace and a shard of a kcp that is out of order.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use mcr_core::{Access, Credential, Endpoint, EndpointAccess, StaticCredential};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// Speaks HTTP without TLS, and closes each connection after its answer.
pub(crate) struct Scripted {
    pub(crate) url: String,
    state: Arc<State>,
    _running: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    answers: Mutex<HashMap<String, Answer>>,
    /// The paths of the open watches.
    open: Mutex<Vec<String>>,
    /// Whether connections are closed without an answer.
    down: AtomicBool,
    /// Counts the changes. Open watches end with each of them, unless their answer is live.
    changes: watch::Sender<u64>,
}

/// The answer to requests for a resource.
#[derive(Clone)]
pub(crate) struct Answer {
    status: &'static str,
    type_: &'static str,
    list: String,
    /// Bytes of the list that are promised and do not come.
    missing: usize,
    /// What a watch begins with, before it stays open.
    watch: String,
    /// Whether open watches go on with the beginning of the next answer. Otherwise they end.
    live: bool,
}

impl Answer {
    /// A list that is served well.
    pub(crate) fn list(kind: &str, api_version: &str, items: &[Value]) -> Self {
        let list = json!({
            "kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": "1"}, "items": items,
        });
        Self::text("200 OK", "application/json", &list.to_string())
    }

    pub(crate) fn text(status: &'static str, type_: &'static str, list: &str) -> Self {
        Self {
            status,
            type_,
            list: list.to_owned(),
            missing: 0,
            watch: String::new(),
            live: false,
        }
    }

    /// The answer breaks off before its end.
    pub(crate) fn cut(mut self) -> Self {
        let keep = self.list.len() / 2;
        self.missing = self.list.len() - keep;
        self.list.truncate(keep);
        self
    }

    fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Watches begin with this.
    pub(crate) fn watched(mut self, start: &str) -> Self {
        self.watch = start.to_owned();
        self
    }
}

impl Scripted {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<State>::default();
        let running = tokio::spawn({
            let state = state.clone();
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    if !state.is_down() {
                        let state = state.clone();
                        tokio::spawn(async move { _ = state.serve(stream).await });
                    }
                }
            }
        });
        Self {
            url,
            state,
            _running: AbortOnDropHandle::new(running),
        }
    }

    /// Requests whose path ends with this resource get this answer from now on.
    pub(crate) fn set(&self, resource: &str, answer: Answer) {
        self.state
            .answers
            .lock()
            .unwrap()
            .insert(resource.to_owned(), answer);
        self.state.changes.send_modify(|count| *count += 1);
    }

    /// From now on connections are closed without an answer, or answered again.
    pub(crate) fn set_down(&self, down: bool) {
        self.state.down.store(down, Ordering::Release);
        self.state.changes.send_modify(|count| *count += 1);
    }

    /// Sets the slice `widgets`, with these URLs.
    pub(crate) fn set_slice(&self, urls: &[&str]) {
        self.put_slice(urls, &json!([]));
    }

    /// As [`set_slice`](Self::set_slice), with a condition about why the export is not valid.
    pub(crate) fn set_invalid_slice(&self, urls: &[&str], message: &str) {
        let condition = json!({"type": "APIExportValid", "status": "False", "message": message});
        self.put_slice(urls, &json!([condition]));
    }

    fn put_slice(&self, urls: &[&str], conditions: &Value) {
        let endpoints: Vec<Value> = urls.iter().map(|url| json!({"url": url})).collect();
        let version = *self.state.changes.borrow() + 1;
        let slice = json!({
            "apiVersion": "apis.kcp.io/v1alpha1", "kind": "APIExportEndpointSlice",
            "metadata": {"name": "widgets", "uid": "s", "resourceVersion": version.to_string()},
            "spec": {"export": {"path": "root:provider", "name": "widgets"}},
            "status": {"endpoints": endpoints, "conditions": conditions},
        });
        // A watch that goes on receives it, too.
        let event = json!({"type": "MODIFIED", "object": slice});
        let list = Answer::list("APIExportEndpointSliceList", "apis.kcp.io/v1alpha1", &[slice])
            .watched(&format!("{event}\n"))
            .live();
        self.set("apiexportendpointslices", list);
    }

    /// The endpoints with open watches of their bindings, as often as they have one.
    pub(crate) fn watched(&self) -> Vec<String> {
        let open = self.state.open.lock().unwrap().clone();
        let of_bindings = open.iter().filter(|path| path.ends_with("/apibindings"));
        let mut endpoints: Vec<String> = of_bindings
            .filter_map(|path| Some(format!("{}{}", self.url, path.split_once("/clusters/*/")?.0)))
            .collect();
        endpoints.sort();
        endpoints
    }

    /// The URL of the one endpoint of this server.
    pub(crate) fn endpoint(&self) -> String {
        format!("{}/services/apiexport/provider/widgets", self.url)
    }

    pub(crate) fn access(&self) -> Access {
        let server = format!("{}/clusters/root:provider", self.url).parse().unwrap();
        let credentials = StaticCredential::new(Credential::token("token"));
        EndpointAccess::new(Endpoint::new(server), credentials).into()
    }
}

impl State {
    fn is_down(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    fn answer(&self, resource: &str) -> Answer {
        let known = self.answers.lock().unwrap().get(resource).cloned();
        known.unwrap_or_else(|| {
            if resource == "apis" {
                return Answer::list("APIGroupList", "v1", &[]);
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
            });
            Answer::text("404 Not Found", "application/json", &status.to_string())
        })
    }

    async fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let resource = path.rsplit('/').next().unwrap_or_default();
        let changed = self.changes.subscribe();
        let answer = self.answer(resource);
        let Answer { status, type_, .. } = answer;
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {type_}\r\nConnection: close\r\n");
        if query.contains("watch=") && status.starts_with("200") {
            stream.write_all(format!("{head}\r\n").as_bytes()).await?;
            self.open.lock().unwrap().push(path.to_owned());
            let ended = self.stay_open(stream, resource, answer, changed).await;
            let mut open = self.open.lock().unwrap();
            let at = open.iter().position(|known| known == path);
            at.map(|at| open.remove(at));
            return ended;
        }
        let length = answer.list.len() + answer.missing;
        let whole = format!("{head}Content-Length: {length}\r\n\r\n{}", answer.list);
        stream.write_all(whole.as_bytes()).await
    }

    async fn stay_open(
        &self,
        mut stream: TcpStream,
        resource: &str,
        mut answer: Answer,
        mut changed: watch::Receiver<u64>,
    ) -> std::io::Result<()> {
        stream.write_all(answer.watch.as_bytes()).await?;
        loop {
            // Nobody sends anything more: the read ends with the connection.
            tokio::select! {
                _ = changed.changed() => {}
                _ = stream.read_u8() => return Ok(()),
            }
            let new = self.answer(resource);
            if self.is_down() || !new.live {
                return Ok(());
            }
            if new.watch != answer.watch {
                stream.write_all(new.watch.as_bytes()).await?;
            }
            answer = new;
        }
    }
}

/// The binding of a workspace that is ready. Without an id it has no `kcp.io/cluster`.
pub(crate) fn bound(id: Option<&str>, name: &str) -> Value {
    let mut binding = json!({
        "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "annotations": {}},
        "spec": {"reference": {"export": {"path": "root:provider", "name": "widgets"}}},
        "status": {
            "apiExportClusterName": "provider", "phase": "Bound", "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    if let Some(id) = id {
        binding["metadata"]["annotations"]["kcp.io/cluster"] = id.into();
    }
    binding
}

/// A widget, as [`bound`].
pub(crate) fn listed(id: Option<&str>, name: &str, color: &str) -> Value {
    let mut widget = json!({
        "apiVersion": "example.io/v1", "kind": "Widget",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("{id:?}{name}"), "resourceVersion": "1",
            "annotations": {},
        },
        "spec": {"color": color},
    });
    if let Some(id) = id {
        widget["metadata"]["annotations"]["kcp.io/cluster"] = id.into();
    }
    widget
}

/// The event of a watch that has lost its place. The client lists again.
pub(crate) fn expired() -> String {
    let status = json!({"kind": "Status", "code": 410, "reason": "Expired"});
    format!("{}\n", json!({"type": "ERROR", "object": status}))
}

pub(crate) fn bindings(items: &[Value]) -> Answer {
    Answer::list("APIBindingList", "apis.kcp.io/v1alpha2", items)
}

pub(crate) fn widgets_of(items: &[Value]) -> Answer {
    Answer::list("WidgetList", "example.io/v1", items)
}
