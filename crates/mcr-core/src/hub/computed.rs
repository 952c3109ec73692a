//! Kubeconfigs that a function of the program gives.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use kube::{Client, Resource};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    description::Closure,
    fetch::fetch_secret,
    inventory::Verdict,
    kubeconfig::{Judge, SecretContent},
    options::Hub,
};
use mcr_access::{BoxError, EndpointAccess, reason};
use mcr_client::internal::{Request, Requests, Ticket, jitter};
use mcr_store::{ObjectKey, describe as describe_json_error};

/// So many calls run at once.
const AT_ONCE: usize = 16;
/// A function is called for one object at most once in this time, however often the object changes.
const LEAST: Duration = Duration::from_secs(1);
/// A Secret is read again after this time.
const SECRETS_EVERY: Duration = Duration::from_secs(60);
const LARGEST: usize = 1 << 20;

/// None: there is no kubeconfig yet.
type Given = Result<Option<Vec<u8>>, BoxError>;
type Answer = Result<Option<EndpointAccess>, Arc<str>>;
/// Why a function gives none.
const ABSENT: &str = "the program has none for it, or the Secret that it names is not there";

/// The name of a Secret of the hub, and the key of the kubeconfig in it.
///
/// ```
/// use mcr_core::hub::SecretKeyRef;
///
/// // By default the Secret is in the namespace of the object that describes the cluster.
/// let secret = SecretKeyRef::new("eu-1-user-kubeconfig", "value").namespace("credentials");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretKeyRef {
    /// The namespace of the Secret. None: that of the object that describes the cluster.
    pub namespace: Option<String>,
    /// The name of the Secret.
    pub name: String,
    /// The key of the kubeconfig in the Secret.
    pub key: String,
}

impl SecretKeyRef {
    /// A Secret and a key.
    pub fn new(name: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            namespace: None,
            name: name.into(),
            key: key.into(),
        }
    }

    /// Sets the namespace of the Secret. It should be the operator's: whoever writes the object must not choose it.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

/// Reads a kubeconfig in a Secret of a hub. None: there is no such Secret. Cancel safe; has no deadline of its own.
///
/// # Errors
/// If the hub does not give the Secret, or it has no kubeconfig under this key. The text has nothing of the Secret.
pub async fn kubeconfig_in_secret(
    client: &Client,
    secret: &ObjectKey,
    key: &str,
) -> Result<Option<Vec<u8>>, BoxError> {
    let read = fetch_secret(client, secret).await;
    let read = read.map_err(|refused| {
        let why = match refused.status {
            Some(StatusCode::FORBIDDEN) => "forbidden; grant the verb get on it to the client of the hub",
            _ => &refused.why,
        };
        format!("Secret {secret} can't be read in the hub: {why}")
    });
    let Some(body) = read? else { return Ok(None) };
    let content: Result<SecretContent, _> = serde_json::from_slice(&body);
    let mut content =
        content.map_err(|error| format!("the hub's answer is no Secret: {}", describe_json_error(&error)))?;
    let text = content
        .take(key)
        .map_err(|no| format!("Secret {secret}: {}", no.why))?;
    Ok(Some(text))
}

/// A function of the program that gives the kubeconfig of the cluster that an object describes, and how often it is called.
#[derive(Debug, Clone)]
pub struct KubeconfigOf<K> {
    function: Closure<Arc<K>, BoxFuture<'static, Given>>,
    every: Duration,
}

impl<K> KubeconfigOf<K> {
    /// A function that is called at each change of an object, and again after this time. None: there is no kubeconfig yet.
    pub fn new<F, R>(every: Duration, function: F) -> Self
    where
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Given> + Send + 'static,
    {
        Self {
            function: Closure::new(move |object: &Arc<K>| function(object.clone()).boxed()),
            every: every.max(LEAST),
        }
    }

    /// The function that reads the Secret of the hub which `secret` names, at each change of an object and each minute.
    pub fn in_secret(client: Client, secret: Closure<K, SecretKeyRef>) -> Self
    where
        K: Resource + Send + Sync + 'static,
    {
        Self::new(SECRETS_EVERY, move |object: Arc<K>| {
            let (client, secret) = (client.clone(), secret.call(&object));
            let namespace = secret.namespace.or_else(|| object.meta().namespace.clone());
            let at = ObjectKey {
                namespace: namespace.map(Arc::from),
                name: secret.name.into(),
            };
            async move { kubeconfig_in_secret(&client, &at, &secret.key).await }
        })
    }
}

/// The kubeconfigs that a [`KubeconfigOf`] gives, for the decisions of a provider.
///
/// One call runs for an object at once, and [as many as requests](Requests) in all. A call that fails, panics or exceeds the deadline of
/// requests is repeated after a pause that grows.
pub struct ComputedKubeconfigs<K> {
    function: KubeconfigOf<K>,
    deadline: Duration,
    judge: Arc<Judge>,
    requests: Requests<ObjectKey>,
    known: HashMap<ObjectKey, Known<K>>,
}

struct Known<K> {
    object: Arc<K>,
    /// When the function was called last, and whether the object has changed since.
    called: Option<Instant>,
    changed: bool,
    answer: Option<Answer>,
}

/// A call that has ended, for [`ComputedKubeconfigs::ended`].
pub struct Called(ObjectKey, Ticket, Option<Answer>);

impl<K: Send + Sync + 'static> ComputedKubeconfigs<K> {
    /// The kubeconfigs of this function.
    pub fn new(hub: &Hub, judge: Judge, function: KubeconfigOf<K>) -> Self {
        Self {
            function,
            deadline: hub.times.deadline,
            judge: judge.into(),
            requests: Requests::new(AT_ONCE, hub.times.pauses),
            known: HashMap::new(),
        }
    }

    /// What follows for the cluster of this object, which is ready. Plans a call if the object is new or has changed. None: the function
    /// has not answered yet.
    pub fn verdict(
        &mut self,
        kind: &str,
        (key, object): (&ObjectKey, &Arc<K>),
        engaged: bool,
        now: Instant,
    ) -> Option<Verdict> {
        let known = self.known.entry(key.clone()).or_insert_with(|| Known {
            object: object.clone(),
            called: None,
            changed: true,
            answer: None,
        });
        let is_new = known.called.is_none() && self.requests.is_idle(key);
        if is_new || !Arc::ptr_eq(&known.object, object) {
            (known.object, known.changed) = (object.clone(), true);
            // A call that runs goes on: an object that changes all the time would never get an answer.
            if self.requests.is_idle(key) || self.requests.is_planned(key) {
                let at = known.called.map_or(now, |called| now.max(called + LEAST));
                self.requests.plan(key, at);
            }
        }
        let why = match known.answer.clone()? {
            Ok(Some(access)) => return Some(Verdict::Good(access)),
            Ok(None) if !engaged => {
                let why = format!("the cluster is ready, but its kubeconfig is missing: {ABSENT}");
                return Some(Verdict::Waiting(why.into()));
            }
            Ok(None) => ABSENT.into(),
            Err(why) => why,
        };
        let object = format!("{kind} {key}");
        Some(Verdict::Broken { object, why })
    }

    /// Calls the function for this object no more.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.requests.cancel(key);
        self.known.remove(key);
    }

    /// Starts the calls that are due.
    pub fn start(&mut self, now: Instant) -> Vec<BoxFuture<'static, Called>> {
        let mut calls = Vec::new();
        while let Some(request) = self.requests.start(now) {
            let Request {
                key, ticket, stop, ..
            } = request;
            let Some(known) = self.known.get_mut(&key) else {
                continue;
            };
            (known.called, known.changed) = (Some(now), false);
            let function = self.function.function.clone();
            let answer = answer(function, known.object.clone(), self.judge.clone());
            let deadline = self.deadline;
            let late = move |_| Err(format!("no kubeconfig within {deadline:?}").into());
            let answer = async move { timeout(deadline, answer).await.unwrap_or_else(late) };
            calls.push(async move { Called(key, ticket, stop.run_until_cancelled(answer).await) }.boxed());
        }
        calls
    }

    /// A call has ended. Returns the object whose verdict may be another one now.
    pub fn ended(&mut self, Called(key, ticket, answer): Called, now: Instant) -> Option<ObjectKey> {
        if !self.requests.ended(&key, ticket) {
            return None;
        }
        let (known, answer) = (self.known.get_mut(&key)?, answer?);
        if let Ok(Some(_)) = &answer {
            self.requests.succeeded(&key, now);
            let every = self.function.every;
            let pause = if known.changed {
                LEAST
            } else {
                every - jitter(every / 10)
            };
            self.requests.plan(&key, now + pause);
        } else {
            self.requests.failed(&key, now, LEAST);
        }
        known.answer = Some(answer);
        Some(key)
    }

    /// When the next call is due.
    pub fn due(&self) -> Option<Instant> {
        self.requests.next_due()
    }
}

async fn answer<K>(
    function: Closure<Arc<K>, BoxFuture<'static, Given>>,
    object: Arc<K>,
    judge: Arc<Judge>,
) -> Answer {
    let given = AssertUnwindSafe(async { function.call(&object).await });
    let given = given.catch_unwind().await;
    let text = match given {
        Ok(Ok(Some(text))) if text.len() <= LARGEST => text,
        Ok(Ok(Some(_))) => return Err("the kubeconfig has more than 1 MiB; make it smaller".into()),
        Ok(Ok(None)) => return Ok(None),
        Ok(Err(error)) => return Err(reason(&error.to_string()).into()),
        Err(_) => {
            let why = "the program's function for kubeconfigs panicked, which is a fault in its code; what this process has written to its \
                       standard error says where";
            return Err(why.into());
        }
    };
    // Parsing may take long, and a parser may panic.
    match spawn_blocking(move || judge.parse(text, None)).await {
        Ok(parsed) => parsed.map(Some).map_err(|problem| problem.text),
        Err(_) => Err("mcr panicked when it read the kubeconfig; please report this".into()),
    }
}
