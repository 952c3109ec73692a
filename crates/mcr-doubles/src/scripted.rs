//! An API server that answers with the bytes that a test has chosen, and records all requests.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::Request;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, broadcast, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{kube_system, status_object, version};

/// The path of ConfigMaps.
pub const MAPS: &str = "/api/v1/configmaps";
/// The path of Secrets.
pub const SECRETS: &str = "/api/v1/secrets";

/// One request that the server has received.
#[derive(Debug, Clone)]
pub struct Asked {
    /// When the server received the request.
    pub at: Instant,
    /// The path, without the query.
    pub path: String,
    /// The query, not decoded.
    pub raw_query: String,
    query: HashMap<String, String>,
    headers: Vec<(String, String)>,
    /// How many earlier requests had the same path and the same form: list, watch, or request for the newest version.
    pub nth: usize,
}

impl Asked {
    /// Whether the request starts a watch.
    pub fn is_watch(&self) -> bool {
        self.get("watch") == Some("true")
    }

    /// Whether the request is for the newest resource version only.
    fn is_check(&self) -> bool {
        let accept = self.header("accept").unwrap_or_default();
        self.get("limit") == Some("1") && accept.contains("PartialObjectMetadataList")
    }

    /// A parameter of the query.
    pub fn get(&self, parameter: &str) -> Option<&str> {
        self.query.get(parameter).map(String::as_str)
    }

    /// A header of the request.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// What the server does about a request, step by step. After the last step of a complete answer, the server keeps the
/// connection for the next request. After any other answer, it closes the connection.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    steps: Vec<Step>,
    keeps_connection: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Write(Vec<u8>),
    Wait(Duration),
    /// Waits until the test adds a permit to the semaphore.
    Gate(Arc<Semaphore>),
    /// Passes on the events of [`Server::send`], until the client closes the connection.
    Live,
}

impl Answer {
    /// A complete answer.
    pub fn new(status: u16, media: &str, body: impl AsRef<[u8]>) -> Self {
        Self::with_headers(status, &[("content-type", media)], body)
    }

    /// A complete answer with these headers.
    pub fn with_headers(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let headers: String = headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let mut bytes = format!(
            "HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend_from_slice(body);
        Self {
            steps: vec![Step::Write(bytes)],
            keeps_connection: true,
        }
    }

    /// Exactly these bytes. Then the server closes the connection.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            steps: vec![Step::Write(bytes.as_ref().to_vec())],
            keeps_connection: false,
        }
    }

    /// A complete answer in JSON.
    pub fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// A complete answer with the `Status` object of an API server.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::new(
            code,
            "application/json",
            status_object(code, reason, message).to_string(),
        )
    }

    /// Nothing at all, until the client closes the connection.
    pub fn silence() -> Self {
        Self {
            steps: vec![Step::Live],
            keeps_connection: false,
        }
    }

    /// The head of an answer in chunks, whose length the client does not know in advance.
    pub fn begin() -> Self {
        let head = b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        Self {
            steps: vec![Step::Write(head.to_vec())],
            keeps_connection: false,
        }
    }

    /// An answer whose head promises more bytes than its body has.
    pub fn promise(length: usize, body: impl AsRef<[u8]>) -> Self {
        let head =
            format!("HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
        Self {
            steps: vec![Step::Write([head.as_bytes(), body.as_ref()].concat())],
            keeps_connection: false,
        }
    }

    /// A watch that sends these events, and then those of [`Server::send`].
    pub fn watch<'a>(events: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut answer = events
            .into_iter()
            .fold(Self::begin(), |answer, event| answer.line(event));
        answer.steps.push(Step::Live);
        answer
    }

    /// A watch that sends these events and ends, as a watch does at its timeout.
    pub fn short_watch<'a>(events: impl IntoIterator<Item = &'a Value>) -> Self {
        events
            .into_iter()
            .fold(Self::begin(), |answer, event| answer.line(event))
            .end()
    }

    /// Adds a step: the server sends this line.
    pub fn line(self, event: &Value) -> Self {
        self.chunk(format!("{event}\n"))
    }

    /// Adds a step: the server sends a chunk with these bytes.
    pub fn chunk(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Write(chunk(bytes.as_ref())));
        self
    }

    /// Adds a step: the server sends nothing for this time.
    pub fn wait(mut self, time: Duration) -> Self {
        self.steps.push(Step::Wait(time));
        self
    }

    /// Adds a step: the server waits until the test adds a permit.
    pub fn gate(mut self, gate: &Arc<Semaphore>) -> Self {
        self.steps.push(Step::Gate(gate.clone()));
        self
    }

    /// Adds a first step: the server waits for this time, so that even the head comes late.
    pub fn after(mut self, time: Duration) -> Self {
        self.steps.insert(0, Step::Wait(time));
        self
    }

    /// Adds a first step: the server waits until the test adds a permit, so that even the head comes late.
    pub fn after_gate(mut self, gate: &Arc<Semaphore>) -> Self {
        self.steps.insert(0, Step::Gate(gate.clone()));
        self
    }

    /// Adds a last step: the server sends the events of [`Server::send`].
    pub fn live(mut self) -> Self {
        self.steps.push(Step::Live);
        self
    }

    /// Adds a last step: the server sends the last chunk, so that the answer is complete.
    pub fn end(mut self) -> Self {
        self.steps.push(Step::Write(b"0\r\n\r\n".to_vec()));
        self.keeps_connection = true;
        self
    }
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

type Script = Box<dyn Fn(&Asked) -> Answer + Send + Sync>;

/// A server that follows a script.
pub struct Server {
    /// The address of the socket. A server in memory has port 0.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _task: Option<AbortOnDropHandle<()>>,
}

struct Shared {
    script: Script,
    asked: Mutex<Vec<Asked>>,
    events: broadcast::Sender<(String, String)>,
    /// The paths on which there has been a live watch.
    watched: watch::Sender<HashSet<String>>,
    /// How many connections were ever made.
    connections: AtomicUsize,
    /// How many connections are open.
    open: AtomicUsize,
    /// How many answers are in their live step.
    live: AtomicUsize,
    /// How often the test has replaced the cluster. The number is a part of the UID that the server answers to probes.
    incarnation: AtomicUsize,
    /// Whether new requests get no answer.
    silent: watch::Sender<bool>,
    /// The answer to a request for the newest resource version. 0: the server refuses such a request.
    newest: AtomicUsize,
    /// Whether the script also answers probes.
    scripts_probes: AtomicBool,
    /// The values of the header `Authorization` that the server answers with 401.
    refused: Mutex<HashSet<String>>,
}

impl Server {
    /// Starts a server that listens on a socket.
    pub async fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::new(script));
        let serving = shared.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (tcp, _) = accepted.unwrap();
                        connections.spawn(serving.clone().serve_tcp(tcp, address.port()));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self {
            address,
            shared,
            _task: Some(AbortOnDropHandle::new(task)),
        }
    }

    /// Makes a server without sockets, for tests in paused time. A paused clock moves on as soon as all tasks wait,
    /// also if they wait for bytes in a socket, so requests over sockets would time out.
    pub fn in_memory(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            address: ([127, 0, 0, 1], 0).into(),
            shared: Arc::new(Shared::new(script)),
            _task: None,
        }
    }

    /// A client of a server in memory.
    pub fn client(&self) -> kube::Client {
        assert_eq!(self.address.port(), 0);
        let shared = self.shared.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let shared = shared.clone();
            async move {
                let (near, far) = tokio::io::duplex(64 << 10);
                let (read, write) = tokio::io::split(far);
                tokio::spawn(shared.serve(read, write, 0));
                let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await?;
                tokio::spawn(connection);
                sender.send_request(request).await
            }
        });
        kube::Client::new(service, "default")
    }

    /// A kubeconfig with the address of the server.
    pub fn kubeconfig(&self) -> String {
        kubeconfig(&format!("http://{}", self.address))
    }

    /// From now on the script also answers probes.
    pub fn script_probes(&self) {
        self.shared.scripts_probes.store(true, Ordering::SeqCst);
    }

    /// From now on new requests get no answer. All connections stay open, and all watches go on.
    pub fn fall_silent(&self) {
        self.shared.silent.send_replace(true);
    }

    /// Ends [`fall_silent`](Self::fall_silent): requests that come from now on get an answer.
    pub fn speak_again(&self) {
        self.shared.silent.send_replace(false);
    }

    /// All requests so far, except probes and requests for the newest resource version.
    pub fn asked(&self) -> Vec<Asked> {
        let all = self.shared.asked.lock().unwrap();
        all.iter()
            .filter(|asked| !is_probe(&asked.path) && !asked.is_check())
            .cloned()
            .collect()
    }

    /// The number of probes so far.
    pub fn probes(&self) -> usize {
        let all = self.shared.asked.lock().unwrap();
        all.iter().filter(|asked| is_probe(&asked.path)).count()
    }

    /// The lists of a path so far.
    pub fn lists(&self, path: &str) -> Vec<Asked> {
        self.asked()
            .into_iter()
            .filter(|asked| asked.path == path && !asked.is_watch())
            .collect()
    }

    /// The watches of a path so far.
    pub fn watches(&self, path: &str) -> Vec<Asked> {
        self.asked()
            .into_iter()
            .filter(|asked| asked.path == path && asked.is_watch())
            .collect()
    }

    /// Sends an event on every live watch of a path. Waits until there is one.
    pub async fn send(&self, path: &str, event: &Value) {
        let mut watched = self.shared.watched.subscribe();
        watched.wait_for(|watched| watched.contains(path)).await.unwrap();
        self.shared
            .events
            .send((path.to_owned(), format!("{event}\n")))
            .unwrap();
    }

    /// Sets the answer to requests for the newest resource version.
    pub fn set_newest_version(&self, version: usize) {
        self.shared.newest.store(version, Ordering::SeqCst);
    }

    /// From now on the server answers probes with the UID of another cluster, as if somebody had replaced the cluster.
    pub fn become_another(&self) {
        self.shared.incarnation.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on the server answers every request with this token with 401, probes included.
    pub fn refuse(&self, token: &str) {
        self.shared
            .refused
            .lock()
            .unwrap()
            .insert(format!("Bearer {token}"));
    }

    /// How many connections were ever made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many answers are in their live step: the server keeps them open for further events.
    pub fn live(&self) -> usize {
        self.shared.live.load(Ordering::SeqCst)
    }
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/version" | "/api/v1/namespaces/kube-system") || path.ends_with("/selfsubjectreviews")
}

/// The answer of an API server to a probe, for a user that the server knows.
pub fn probe_answer(path: &str, uid: &str) -> Answer {
    Answer::json(&match path {
        "/version" => version(),
        "/api/v1/namespaces/kube-system" => kube_system(uid),
        _ => json!({"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
            "status": {"userInfo": {"username": "me"}}}),
    })
}

/// A kubeconfig with this address.
pub fn kubeconfig(server: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"{server}\"}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    )
}

/// A ConfigMap with a UID that follows from its name.
pub fn map(name: &str, version: u32) -> Value {
    let uid = format!(
        "{:032x}",
        name.bytes()
            .fold(7u128, |hash, byte| hash.wrapping_mul(257) + u128::from(byte))
    );
    json!({"metadata": {"name": name, "namespace": "default", "uid": uid, "resourceVersion": version.to_string()}})
}

/// An event of a watch.
pub fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

/// A bookmark.
pub fn bookmark(version: u32) -> Value {
    event(
        "BOOKMARK",
        json!({"kind": "ConfigMap", "metadata": {"resourceVersion": version.to_string()}}),
    )
}

/// A list of these objects.
pub fn list_object(version: u32, items: impl IntoIterator<Item = Value>) -> Value {
    let items: Vec<Value> = items.into_iter().collect();
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": items})
}

/// An answer that lists these objects.
pub fn list(version: u32, items: impl IntoIterator<Item = Value>) -> Answer {
    Answer::json(&list_object(version, items))
}

/// A page of a list, with the token of the next page.
pub fn page(version: u32, token: &str, items: impl IntoIterator<Item = Value>) -> Answer {
    let mut page = list_object(version, items);
    page["metadata"]["continue"] = token.into();
    Answer::json(&page)
}

/// A watch without events. It passes on those of [`Server::send`].
pub fn quiet() -> Answer {
    Answer::watch([])
}

/// A script that answers each watch with [`quiet`], and all other requests with `script`.
pub fn lists(script: impl Fn(&Asked) -> Answer) -> impl Fn(&Asked) -> Answer {
    move |asked| {
        if asked.is_watch() { quiet() } else { script(asked) }
    }
}

/// A script that answers each list with the ConfigMap `a`, and each watch with [`quiet`].
pub fn serves_one_map(asked: &Asked) -> Answer {
    lists(|_| list(10, [map("a", 1)]))(asked)
}

/// Counts up, until it is dropped.
struct Count<'a>(&'a AtomicUsize);

impl<'a> Count<'a> {
    fn up(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::SeqCst);
        Self(counter)
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    fn new(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            script: Box::new(script),
            asked: Mutex::default(),
            events: broadcast::channel(64).0,
            watched: watch::Sender::default(),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            incarnation: AtomicUsize::new(0),
            silent: watch::Sender::new(false),
            newest: AtomicUsize::new(0),
            scripts_probes: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }

    async fn serve_tcp(self: Arc<Self>, tcp: TcpStream, port: u16) {
        tcp.set_nodelay(true).unwrap();
        let (read, write) = tcp.into_split();
        self.serve(read, write, port).await;
    }

    async fn serve(
        self: Arc<Self>,
        read: impl AsyncRead + Unpin,
        mut write: impl AsyncWrite + Unpin,
        port: u16,
    ) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let _open = Count::up(&self.open);
        let mut read = BufReader::new(read);
        while let Some(asked) = self.read(&mut read).await {
            if *self.silent.borrow() {
                while read.read_u8().await.is_ok() {}
                return;
            }
            let answer = match asked.path.as_str() {
                _ if self.refuses(&asked) => Answer::status(401, "Unauthorized", "Unauthorized"),
                _ if self.scripts_probes.load(Ordering::SeqCst) => (self.script)(&asked),
                path if is_probe(path) => {
                    let by_token = asked
                        .header("authorization")
                        .and_then(|token| token.split_once('@'));
                    let uid = match by_token {
                        Some((_, uid)) => uid.to_owned(),
                        None => format!("uid-{port}-{}", self.incarnation.load(Ordering::SeqCst)),
                    };
                    match &*uid {
                        "none" if path != "/version" => Answer::status(
                            403,
                            "Forbidden",
                            "namespaces \"kube-system\" is forbidden: User \"somebody\" cannot get it",
                        ),
                        _ => probe_answer(path, &uid),
                    }
                }
                _ if asked.is_check() => match self.newest.load(Ordering::SeqCst) {
                    0 => Answer::status(403, "Forbidden", "no"),
                    newest => Answer::json(
                        &json!({"metadata": {"resourceVersion": newest.to_string()}, "items": []}),
                    ),
                },
                _ => (self.script)(&asked),
            };
            let mut events = self.events.subscribe();
            for step in answer.steps {
                let done = match step {
                    Step::Write(bytes) => write.write_all(&bytes).await.is_ok(),
                    Step::Wait(time) => {
                        tokio::time::sleep(time).await;
                        true
                    }
                    Step::Gate(gate) => {
                        gate.acquire().await.unwrap().forget();
                        true
                    }
                    Step::Live => {
                        let _live = Count::up(&self.live);
                        self.watched
                            .send_if_modified(|watched| watched.insert(asked.path.clone()));
                        live(&asked.path, &mut events, &mut read, &mut write).await;
                        false
                    }
                };
                if !done {
                    return;
                }
            }
            if !answer.keeps_connection || asked.header("connection") == Some("close") {
                return;
            }
        }
    }

    fn refuses(&self, asked: &Asked) -> bool {
        let refused = self.refused.lock().unwrap();
        asked
            .header("authorization")
            .is_some_and(|who| refused.contains(who))
    }

    async fn read(&self, from: &mut BufReader<impl AsyncRead + Unpin>) -> Option<Asked> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(from.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let target = lines.next()?.split(' ').nth(1)?.to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let (path, raw_query) = target.split_once('?').unwrap_or((&target, ""));
        let query: HashMap<String, String> = form_urlencoded::parse(raw_query.as_bytes())
            .map(|(k, v)| (k.into_owned(), v.into_owned()))
            .collect();
        let mut asked = Asked {
            at: Instant::now(),
            path: path.to_owned(),
            raw_query: raw_query.to_owned(),
            query,
            headers,
            nth: 0,
        };
        let mut all = self.asked.lock().unwrap();
        let form = |asked: &Asked| (asked.path.clone(), asked.is_watch(), asked.is_check());
        asked.nth = all.iter().filter(|other| form(other) == form(&asked)).count();
        all.push(asked.clone());
        Some(asked)
    }
}

async fn live(
    path: &str,
    events: &mut broadcast::Receiver<(String, String)>,
    read: &mut BufReader<impl AsyncRead + Unpin>,
    write: &mut (impl AsyncWrite + Unpin),
) {
    loop {
        tokio::select! {
            // A client sends no request before the answer ends, so it has closed the connection.
            _ = read.read_u8() => return,
            event = events.recv() => {
                let Ok((of, line)) = event else { return };
                if of == path && write.write_all(&chunk(line.as_bytes())).await.is_err() {
                    return;
                }
            }
        }
    }
}
