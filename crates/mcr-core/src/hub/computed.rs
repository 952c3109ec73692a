//! Kubeconfigs that a function of the program gives.

use std::{
    collections::{BTreeMap, HashMap},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use kube::{Client, Resource};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    description::Closure,
    fetch::{Refused, fetch_secret},
    inventory::Verdict,
    kubeconfig::{Judge, SecretContent},
    options::Hub,
};
use mcr_access::{BoxError, EndpointAccess, reason};
use mcr_client::internal::{Request, Requests, Ticket, jitter};
use mcr_store::{ObjectKey, describe as describe_json_error};

/// So many calls run at once.
const AT_ONCE: usize = 16;
/// So many may beside them wait for servers, each for one of its own.
const SLOW_AT_ONCE: usize = 1024;
/// A call that runs longer than this waits for a server.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A function is called for one object at most once in this time, however often the object changes.
const LEAST: Duration = Duration::from_secs(1);
/// A Secret is read again after this time.
const SECRETS_EVERY: Duration = Duration::from_secs(60);
/// A function is called at least once in this time.
const RAREST: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// A hub that wants to be left alone is left alone for so long at most.
const LONGEST_QUIET: Duration = Duration::from_secs(300);
const LARGEST: usize = 1 << 20;

/// A kubeconfig, and the beginning of an error about it.
type Given = Result<(Vec<u8>, String), Nothing>;
type Answer = Result<EndpointAccess, Nothing>;

/// Why there is no kubeconfig.
#[derive(Debug, Clone)]
struct Nothing {
    why: Arc<str>,
    /// Whether there is none yet, which is no fault.
    is_absent: bool,
    /// How long the server wants to be left alone at least, if it has refused the request. None: it has not, or it does not matter.
    quiet: Option<Duration>,
}

impl Nothing {
    fn new(why: impl Into<Arc<str>>) -> Self {
        Self {
            why: why.into(),
            is_absent: false,
            quiet: None,
        }
    }

    fn absent(why: impl Into<Arc<str>>) -> Self {
        Self {
            is_absent: true,
            ..Self::new(why)
        }
    }

    fn after(error: &BoxError) -> Self {
        let refused = error.downcast_ref::<Refused>();
        Self {
            quiet: refused.and_then(|refused| refused.retry_after),
            ..Self::new(reason(&error.to_string()))
        }
    }
}

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
        let why = format!("Secret {secret} can't be read in the hub: {why}");
        Refused { why, ..refused }
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
    /// Whether one server answers for all objects.
    one_cause: bool,
}

impl<K> KubeconfigOf<K> {
    /// A function that is called at each change of an object, and again after this time, which is a second at least and a year at most.
    /// None: there is no kubeconfig yet.
    pub fn new<F, R>(every: Duration, function: F) -> Self
    where
        F: Fn(Arc<K>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Option<Vec<u8>>, BoxError>> + Send + 'static,
    {
        let function = move |object: &Arc<K>| {
            let given = function(object.clone());
            async move {
                match given.await {
                    Ok(Some(text)) => Ok((text, String::new())),
                    Ok(None) => Err(Nothing::absent("the program has none for it")),
                    Err(error) => Err(Nothing::after(&error)),
                }
            }
            .boxed()
        };
        Self {
            function: Closure::new(function),
            every: every.clamp(LEAST, RAREST),
            one_cause: false,
        }
    }

    /// The function that reads the Secret of the hub which `secret` names, at each change of an object and each minute. While the hub
    /// refuses that, all objects share [one pace](Requests), which changes of objects do not raise.
    pub fn in_secret(client: Client, secret: Closure<K, SecretKeyRef>) -> Self
    where
        K: Resource + Send + Sync + 'static,
    {
        let function = move |object: &Arc<K>| {
            let (client, secret) = (client.clone(), secret.call(object));
            let namespace = secret.namespace.or_else(|| object.meta().namespace.clone());
            let at = ObjectKey {
                namespace: namespace.map(Arc::from),
                name: secret.name.into(),
            };
            async move {
                let key = &*secret.key;
                match kubeconfig_in_secret(&client, &at, key).await {
                    Ok(Some(text)) => Ok((text, reason(&format!("Secret {at}, key {key:?}:")) + " ")),
                    Ok(None) => {
                        let why = format!("there is no Secret {at}, which has it under the key {key:?}");
                        Err(Nothing::absent(reason(&why)))
                    }
                    Err(error) => {
                        let mut nothing = Nothing::after(&error);
                        if error.is::<Refused>() {
                            nothing.quiet.get_or_insert(Duration::ZERO);
                        }
                        Err(nothing)
                    }
                }
            }
            .boxed()
        };
        Self {
            function: Closure::new(function),
            every: SECRETS_EVERY,
            one_cause: true,
        }
    }
}

/// The kubeconfigs that a [`KubeconfigOf`] gives, for the decisions of a provider.
///
/// One call runs for an object at once, and 16 in all; a call that takes longer than a second does not count, of which 1,024 may run
/// beside them. A call that fails, panics or exceeds the deadline of requests is repeated after a pause that grows.
pub struct ComputedKubeconfigs<K> {
    function: KubeconfigOf<K>,
    deadline: Duration,
    judge: Arc<Judge>,
    requests: Requests<ObjectKey>,
    known: HashMap<ObjectKey, Known<K>>,
    /// Since when calls run that still have a place.
    quick: BTreeMap<Ticket, Instant>,
}

struct Known<K> {
    object: Arc<K>,
    /// Whether the object has changed since the last call.
    changed: bool,
    /// Whether it has described another cluster at the last call.
    outdated: bool,
    /// A change causes no call before this time.
    not_before: Option<Instant>,
    /// Whether the server has refused the last request, and so chooses the time of the next one.
    refused: bool,
    answer: Option<Answer>,
}

/// A call that has ended, for [`ComputedKubeconfigs::ended`].
pub struct Called(ObjectKey, Ticket, Option<Answer>);

impl<K: Send + Sync + 'static> ComputedKubeconfigs<K> {
    /// The kubeconfigs of this function.
    pub fn new(hub: &Hub, judge: Judge, function: KubeconfigOf<K>) -> Self {
        let requests = Requests::new(AT_ONCE, hub.times.pauses);
        Self {
            deadline: hub.times.deadline,
            judge: judge.into(),
            requests: if function.one_cause {
                requests.one_cause()
            } else {
                requests.with_slow(AT_ONCE, SLOW_AT_ONCE)
            },
            known: HashMap::new(),
            quick: BTreeMap::new(),
            function,
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
            changed: true,
            outdated: false,
            not_before: None,
            refused: false,
            answer: None,
        });
        let is_idle = self.requests.is_idle(key);
        let starts = is_idle && known.answer.is_none();
        if starts || !Arc::ptr_eq(&known.object, object) {
            (known.object, known.changed) = (object.clone(), true);
            // A call that runs goes on: an object that changes all the time would never get an answer.
            if is_idle || (self.requests.is_planned(key) && !known.refused) {
                self.requests.plan(key, known.not_before.unwrap_or(now).max(now));
            }
        }
        match known.answer.clone()? {
            Ok(access) => Some(Verdict::Good(access)),
            Err(Nothing {
                is_absent: true, why, ..
            }) if !engaged => {
                let why = format!("the cluster is ready, but its kubeconfig is missing: {why}");
                Some(Verdict::Waiting(why.into()))
            }
            Err(Nothing { why, .. }) => {
                let object = format!("{kind} {key}");
                Some(Verdict::Broken { object, why })
            }
        }
    }

    /// Calls the function for this object no more until its next [`verdict`](Self::verdict), and drops what it has given. Failures and the
    /// time of the last call count on, so that an object that is ready on and off gets no more calls than another one.
    pub fn pause(&mut self, key: &ObjectKey) {
        self.requests.pause(key);
        if let Some(known) = self.known.get_mut(key) {
            known.answer = None;
        }
    }

    /// The labels or properties of the object have changed. What the function has given, or gives in a call that runs, is not used:
    /// with it, a controller would take the cluster for the one that the object describes now.
    pub fn outdate(&mut self, key: &ObjectKey) {
        if let Some(known) = self.known.get_mut(key) {
            known.outdated = true;
            known.answer.take_if(|answer| answer.is_ok());
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&mut self, key: &ObjectKey) {
        self.requests.cancel(key);
        self.known.remove(key);
    }

    /// Starts the calls that are due.
    pub fn start(&mut self, now: Instant) -> Vec<BoxFuture<'static, Called>> {
        let mut calls = Vec::new();
        while let Some(first) = self.quick.first_entry()
            && *first.get() + SLOW_AFTER <= now
        {
            self.requests.slow(first.remove_entry().0);
        }
        while let Some(request) = self.requests.start(now) {
            let Request {
                key, ticket, stop, ..
            } = request;
            let Some(known) = self.known.get_mut(&key) else {
                continue;
            };
            (known.not_before, known.changed, known.outdated) = (Some(now + LEAST), false, false);
            self.quick.insert(ticket, now);
            let KubeconfigOf {
                function, one_cause, ..
            } = &self.function;
            let (deadline, of_server) = (self.deadline, *one_cause);
            let answer = answer(function.clone(), known.object.clone(), self.judge.clone());
            let late = move |_| {
                let why = format!("no kubeconfig within {deadline:?}");
                let quiet = of_server.then_some(Duration::ZERO);
                Err(Nothing {
                    quiet,
                    ..Nothing::new(why)
                })
            };
            let answer = async move { timeout(deadline, answer).await.unwrap_or_else(late) };
            calls.push(async move { Called(key, ticket, stop.run_until_cancelled(answer).await) }.boxed());
        }
        calls
    }

    /// A call has ended. Returns the object whose verdict may be another one now.
    pub fn ended(&mut self, Called(key, ticket, answer): Called, now: Instant) -> Option<ObjectKey> {
        self.quick.remove(&ticket);
        if !self.requests.ended(&key, ticket) {
            return None;
        }
        let (known, answer) = (self.known.get_mut(&key)?, answer?);
        let quiet = answer.as_ref().err().and_then(|nothing| nothing.quiet);
        known.refused = quiet.is_some();
        if let Some(quiet) = quiet.map(|quiet| quiet.min(LONGEST_QUIET)) {
            if self.function.one_cause {
                self.requests.quiet(now + quiet);
            }
            self.requests.failed(&key, now, quiet.max(LEAST));
            known.not_before = self.requests.planned(&key);
        } else {
            let every = self.function.every;
            if answer.is_ok() {
                self.requests.succeeded(&key, now);
                self.requests.plan(&key, now + every - jitter(every / 10));
            } else {
                self.requests.failed_alone(&key, now, LEAST);
            }
            if known.changed {
                self.requests.plan(&key, now + LEAST);
            }
        }
        known.answer = Some(match answer {
            Ok(_) if known.outdated => Err(Nothing::absent("it has other labels or properties since")),
            answer => answer,
        });
        Some(key)
    }

    /// When the next call is due.
    pub fn due(&self) -> Option<Instant> {
        let first = self.quick.first_key_value();
        let slow = first.map(|(_, since)| *since + SLOW_AFTER);
        self.requests.next_due().into_iter().chain(slow).min()
    }
}

async fn answer<K>(
    function: Closure<Arc<K>, BoxFuture<'static, Given>>,
    object: Arc<K>,
    judge: Arc<Judge>,
) -> Answer {
    let given = AssertUnwindSafe(async { function.call(&object).await });
    let given = given.catch_unwind().await;
    let (text, place) = match given {
        Ok(Ok((text, place))) if text.len() <= LARGEST => (text, place),
        Ok(Ok((_, place))) => {
            let why = format!("{place}the kubeconfig has more than 1 MiB; make it smaller");
            return Err(Nothing::new(why));
        }
        Ok(Err(nothing)) => return Err(nothing),
        Err(_) => {
            let why = "the program's function for kubeconfigs panicked, which is a fault in its code; what this process has written to its \
                       standard error says where";
            return Err(Nothing::new(why));
        }
    };
    // Parsing may take long, and a parser may panic.
    match spawn_blocking(move || judge.parse(text, None)).await {
        Ok(parsed) => parsed.map_err(|problem| Nothing::new(format!("{place}{}", problem.text))),
        Err(_) => Err(Nothing::new(
            "mcr panicked when it read the kubeconfig; please report this",
        )),
    }
}
