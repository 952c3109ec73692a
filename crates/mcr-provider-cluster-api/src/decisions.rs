//! The Clusters of the hub and their Secrets: what to read and what to announce. No I/O.

use std::{
    collections::{HashMap, HashSet},
    mem::take,
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use http::StatusCode;
use mcr_core::{
    BoxError, EndpointAccess, HubEvent, ObjectKey, ObjectPath, WatchError,
    hub::{
        Called, ComputedKubeconfigs, Decide, Decoded, Inventory, Judge, KubeconfigOf, KubeconfigProblem,
        Notice, Outcome, Refused, Request, Requests, Ticket, Verdict, fetch_secret,
    },
    reason,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

use crate::{
    config::{CLUSTERS, Config},
    facts::Facts,
    secret::{CLUSTER_NAME_LABEL, ReadSecret, Stamp},
    selection::Selection,
    v1beta2::Cluster,
};

/// So many Secrets are read at once.
const AT_ONCE: usize = 16;
/// A hub that wants to be left alone is left alone for so long at most.
const LONGEST_QUIET: Duration = Duration::from_secs(300);

pub(crate) enum Event {
    Cluster(HubEvent<Decoded<Facts>>),
    /// With what the watch keeps of a Secret with the label.
    Secret(HubEvent<Arc<Stamp>>),
    /// A read for a Cluster has ended. None: it was cancelled.
    Read(ObjectKey, Ticket, Option<Answer>),
    /// A call of the function for kubeconfigs has ended.
    Called(Called),
    /// Whether the hub serves Clusters in another version now.
    Moved(Option<BoxError>),
}

/// None: there is no such Secret.
type Answer = Result<Option<ReadSecret>, Refused>;

pub(crate) struct Decisions {
    config: Arc<Config>,
    /// The version of the Clusters.
    version: &'static str,
    judge: Arc<Judge>,
    inventory: Inventory<Facts>,
    members: HashMap<ObjectKey, Member>,
    secrets: HashMap<ObjectKey, Arc<Stamp>>,
    secrets_listed: bool,
    /// The Clusters of each Secret. Nearly always one.
    users: HashMap<ObjectKey, HashSet<ObjectKey>>,
    /// The reads of Secrets, by Cluster.
    requests: Requests<ObjectKey>,
    /// The kubeconfigs that are not in Secrets which are watched.
    computed: Option<ComputedKubeconfigs<Cluster>>,
    notices: Vec<Notice>,
}

/// What is known of a Cluster beside its facts.
#[derive(Default)]
struct Member {
    /// The Secret with the kubeconfig, and the key in it. None: no facts are known yet.
    source: Option<(ObjectKey, Arc<str>)>,
    /// Once true it stays true, as Cluster API's own field does.
    ready: bool,
    content: Option<Content>,
    /// The Secret that is being read.
    reading: Option<Arc<Stamp>>,
    /// Why the hub has not given it, if it has refused it.
    failed: Option<KubeconfigProblem>,
}

/// The content of a Secret.
struct Content {
    /// As the watch knew the Secret when it was read. The read may be ahead of the watch.
    at: Arc<Stamp>,
    of: Stamp,
    /// None: the Secret was not there any more.
    kubeconfig: Option<Result<EndpointAccess, KubeconfigProblem>>,
}

impl Content {
    fn is_at(&self, stamp: &Stamp) -> bool {
        *self.at == *stamp || self.of == *stamp
    }
}

impl Decide for Decisions {
    type Event = Event;

    fn decide(&mut self, events: Vec<Event>, now: Instant) -> Outcome<Event> {
        let (mut tasks, mut error) = (Vec::new(), None);
        for event in events {
            match event {
                Event::Cluster(HubEvent::Applied(key, facts)) => self.cluster(&key, facts, now),
                Event::Cluster(HubEvent::Deleted(key)) => {
                    self.forget(&key);
                    if let Some(computed) = &mut self.computed {
                        computed.forget(&key);
                    }
                    self.inventory.deleted(&key);
                }
                Event::Cluster(HubEvent::Synced) => self.inventory.listed(),
                Event::Cluster(HubEvent::Failing(problem))
                    if matches!(*problem.error, WatchError::NotServed) =>
                {
                    let (hub, only) = (&self.config.hub, self.config.only);
                    let moved = CLUSTERS.moved(hub.client.clone(), only, hub.times.deadline, self.version);
                    tasks.push(moved.map(Event::Moved).boxed());
                }
                Event::Secret(HubEvent::Applied(key, stamp)) => {
                    self.secrets.insert(key.clone(), stamp);
                    self.secret(&key, now);
                }
                Event::Secret(HubEvent::Deleted(key)) => {
                    self.secrets.remove(&key);
                    self.notices.push(Notice::gone(&key));
                    self.secret(&key, now);
                }
                // From now on a Secret that is unknown is missing.
                Event::Secret(HubEvent::Synced) => {
                    self.secrets_listed = true;
                    self.inventory.listed();
                    for key in self.inventory.keys() {
                        self.announce(&key, now);
                    }
                }
                Event::Read(key, ticket, answer) => {
                    if self.requests.ended(&key, ticket)
                        && let Some(answer) = answer
                    {
                        self.answered(&key, answer, now);
                    }
                }
                Event::Called(called) => {
                    let computed = self.computed.as_mut();
                    if let Some(key) = computed.and_then(|computed| computed.ended(called, now)) {
                        self.announce(&key, now);
                    }
                }
                Event::Moved(moved) => error = error.or(moved),
                // An outage, which the watch logs.
                Event::Cluster(_) | Event::Secret(_) => {}
            }
        }
        while let Some(request) = self.requests.start(now) {
            tasks.extend(self.read(request));
        }
        let calls = self.computed.iter_mut().flat_map(|computed| computed.start(now));
        tasks.extend(calls.map(|call| call.map(Event::Called).boxed()));
        Outcome {
            changes: self.inventory.take_changes(),
            notices: take(&mut self.notices),
            tasks,
            error,
        }
    }

    fn due(&self) -> Option<Instant> {
        let call = self.computed.as_ref().and_then(ComputedKubeconfigs::due);
        self.requests.next_due().into_iter().chain(call).min()
    }
}

impl Decisions {
    pub(crate) fn new(config: Arc<Config>, version: &'static str, judge: Judge) -> Self {
        let Selection {
            kubeconfig_of,
            kubeconfig_secret,
            ..
        } = &*config.selection;
        let in_secret = kubeconfig_secret
            .clone()
            .map(|secret| KubeconfigOf::in_secret(config.hub.client.clone(), secret));
        let function = kubeconfig_of.clone().or(in_secret);
        let watches = 1 + usize::from(kubeconfig_of.is_none());
        Self {
            inventory: Inventory::new("Cluster", watches, config.memory.clone()),
            computed: function.map(|function| ComputedKubeconfigs::new(&config.hub, judge.clone(), function)),
            requests: Requests::new(AT_ONCE, config.hub.times.pauses).one_cause(),
            config,
            version,
            judge: judge.into(),
            members: HashMap::new(),
            secrets: HashMap::new(),
            secrets_listed: false,
            users: HashMap::new(),
            notices: Vec::new(),
        }
    }

    fn cluster(&mut self, key: &ObjectKey, facts: Decoded<Facts>, now: Instant) {
        let Some(name) = self.config.hub.cluster_name(key) else {
            return;
        };
        let before = self.inventory.get(key).and_then(|entry| entry.facts()).cloned();
        if self.inventory.applied(key, name, facts) {
            self.forget(key);
        }
        if let Some(facts) = self.inventory.get(key).and_then(|entry| entry.facts()) {
            if let (Some(computed), Some(before)) = (&mut self.computed, before)
                && before.description != facts.description
            {
                computed.outdate(key);
            }
            let (source, waits) = (facts.secret(key), facts.waits.is_some());
            let member = self.members.entry(key.clone()).or_default();
            member.ready |= !waits || self.inventory.memory().is_engaged(key);
            if member.source.as_ref() != Some(&source) {
                let ready = member.ready;
                self.forget(key);
                self.users
                    .entry(source.0.clone())
                    .or_default()
                    .insert(key.clone());
                let member = self.members.entry(key.clone()).or_default();
                (member.ready, member.source) = (ready, Some(source));
            }
        }
        self.announce(key, now);
    }

    fn secret(&mut self, key: &ObjectKey, now: Instant) {
        let users = self.users.get(key).into_iter().flatten().cloned();
        let is_gone = !self.secrets.contains_key(key);
        for cluster in users.collect::<Vec<_>>() {
            let member = self.members.get_mut(&cluster).filter(|_| is_gone);
            // What was read before the watch knew the Secret is gone with it.
            if let Some(content) = member.and_then(|member| member.content.as_mut())
                && *content.at == Stamp::default()
            {
                content.kubeconfig = None;
            }
            self.announce(&cluster, now);
        }
    }

    fn forget(&mut self, key: &ObjectKey) {
        if let Some(computed) = &mut self.computed {
            computed.pause(key);
        }
        self.requests.cancel(key);
        if let Some((secret, _)) = self.members.remove(key).and_then(|member| member.source)
            && let Some(users) = self.users.get_mut(&secret)
        {
            users.remove(key);
            if users.is_empty() {
                self.users.remove(&secret);
            }
        }
    }

    /// Plans the read that is needed, and announces what is new.
    fn announce(&mut self, key: &ObjectKey, now: Instant) {
        let verdict = self.verdict(key, now);
        self.inventory.announce(key, verdict);
    }

    /// None if something is not known yet.
    fn verdict(&mut self, key: &ObjectKey, now: Instant) -> Option<Verdict> {
        let facts = self.inventory.get(key)?.facts()?;
        let member = self.members.get_mut(key)?;
        let (secret, secret_key) = member.source.as_ref()?;
        let engaged = self.inventory.memory().is_engaged(key);
        if let (Some(computed), Some(cluster), true) = (&mut self.computed, &facts.whole, member.ready) {
            return computed.verdict("Cluster", (key, cluster), engaged, now);
        }
        // The watch of Secrets may be behind that of Clusters, so one that is unknown is asked for.
        let asked = member
            .content
            .as_ref()
            .is_some_and(|content| *content.at == Stamp::default());
        let asks = self.inventory.is_synced() && (!engaged || asked);
        let known = self.secrets.get(secret);
        let (stamp, of_another) = match known {
            Some(stamp) if stamp.may_be_of(facts.description.uid.as_ref()) => (Some(stamp.clone()), false),
            Some(_) => (None, true),
            None => (asks.then(Arc::default), false),
        };
        let content = member
            .content
            .as_mut()
            .filter(|content| stamp.as_ref().is_some_and(|stamp| content.is_at(stamp)));
        if let (Some(content), Some(stamp)) = (content, &stamp) {
            content.at = stamp.clone();
        }
        let content = member
            .content
            .as_ref()
            .filter(|content| Some(&content.at) == stamp.as_ref());
        let named = path(secret).is_some();
        let wanted = stamp
            .as_ref()
            .filter(|_| named && member.ready && content.is_none());
        // A read that began before the watch knew the Secret is judged when it ends.
        let is_read = wanted.is_some() && member.reading.as_ref().is_some_and(|at| **at == Stamp::default());
        if member.reading.as_ref() != wanted && !is_read {
            match wanted {
                Some(_) => self.requests.plan(key, now),
                None => self.requests.cancel(key),
            }
            member.reading = wanted.cloned();
            member.failed = None;
        }
        if !member.ready {
            return facts.waits.clone().map(Verdict::Waiting);
        }
        let broken = |why: &Arc<str>| Verdict::Broken {
            object: reason(&format!("Secret {secret}, key {secret_key:?}")),
            why: why.clone(),
        };
        match content.map(|content| &content.kubeconfig) {
            Some(Some(Ok(access))) => return Some(Verdict::Good(access.clone())),
            Some(Some(Err(problem))) => return Some(broken(&problem.text)),
            Some(None) => {}
            None if wanted.is_some() => return member.failed.as_ref().map(|failed| broken(&failed.text)),
            None if !self.secrets_listed => return None,
            None => {}
        }
        if !named {
            let why = "this can't be the name of a Secret; correct `kubeconfig_secret`";
            return Some(broken(&why.into()));
        }
        let why = if of_another {
            format!("Secret {secret} belongs to another Cluster of this name; it waits for its own")
        } else {
            let (name, namespace) = (
                reason(&secret.name),
                secret.namespace.as_deref().unwrap_or_default(),
            );
            format!("no Secret {name} with the label {CLUSTER_NAME_LABEL} in namespace {namespace}")
        };
        if engaged {
            let (object, why) = (reason(&format!("Secret {secret}")), why.into());
            return Some(Verdict::Broken { object, why });
        }
        let why = format!("the control plane is initialized, but its kubeconfig is missing: {why}");
        Some(Verdict::Waiting(why.into()))
    }

    fn read(&self, request: Request<ObjectKey>) -> Option<BoxFuture<'static, Event>> {
        let Request {
            key, ticket, stop, ..
        } = request;
        let (secret, secret_key) = self.members.get(&key)?.source.clone()?;
        let (client, deadline) = (self.config.hub.client.clone(), self.config.hub.times.deadline);
        let judge = self.judge.clone();
        let read = async move {
            let Some(body) = fetch_secret(&client, &secret).await? else {
                return Ok(None);
            };
            // Parsing may take long, and a parser may panic.
            match spawn_blocking(move || ReadSecret::parse(&body, &secret_key, &judge)).await {
                Ok(read) => read.map(Some).map_err(Refused::new),
                Err(_) => Err(Refused::new(
                    "mcr panicked when it read the kubeconfig; please report this",
                )),
            }
        };
        let late = move |_| Err(Refused::new(format!("no answer within {deadline:?}")));
        let read = async move { timeout(deadline, read).await.unwrap_or_else(late) };
        Some(async move { Event::Read(key, ticket, stop.run_until_cancelled(read).await) }.boxed())
    }

    fn answered(&mut self, key: &ObjectKey, answer: Answer, now: Instant) {
        let uid = self
            .inventory
            .get(key)
            .and_then(|entry| entry.facts()?.description.uid.clone());
        let Some(member) = self.members.get_mut(key) else {
            return;
        };
        let (Some(at), Some((secret, _))) = (member.reading.clone(), &member.source) else {
            return;
        };
        match answer {
            Ok(read) => {
                self.requests.succeeded(key, now);
                self.requests.cancel(key);
                // A Secret without the label does not count, nor one of an earlier Cluster of this name.
                let read = read.filter(|read| read.labelled && read.stamp.may_be_of(uid.as_ref()));
                let of = read
                    .as_ref()
                    .map_or_else(Stamp::default, |read| read.stamp.clone());
                let kubeconfig = read.map(|read| read.content);
                self.notices.extend(match &kubeconfig {
                    Some(Ok(_)) => Some(Notice::well(secret, of.uid.clone())),
                    Some(Err(problem)) => {
                        Some(Notice::broken(secret, of.uid.clone(), problem.public.clone()))
                    }
                    None => None,
                });
                member.content = Some(Content { at, of, kubeconfig });
                (member.reading, member.failed) = (None, None);
            }
            Err(refused) => {
                let quiet = refused.retry_after.map(|quiet| quiet.min(LONGEST_QUIET));
                if let Some(quiet) = quiet {
                    self.requests.quiet(now + quiet);
                }
                self.requests.failed(key, now, quiet.unwrap_or_default());
                let why = match refused.status {
                    Some(StatusCode::FORBIDDEN) => format!(
                        "forbidden; grant the verb get on secrets in namespace {} to the client of the hub",
                        secret.namespace.as_deref().unwrap_or_default()
                    ),
                    _ => refused.why,
                };
                let why = format!(
                    "{} can't be read in the hub: {why}",
                    reason(&format!("Secret {secret}"))
                );
                member.failed = Some(KubeconfigProblem::new(why));
            }
        }
        self.announce(key, now);
    }
}

fn path(secret: &ObjectKey) -> Option<String> {
    let path = ObjectPath {
        group: "",
        version: "v1",
        plural: "secrets",
        namespace: Some(secret.namespace.as_deref().unwrap_or_default()),
        name: &secret.name,
    };
    path.path().ok()
}

#[cfg(test)]
mod tests;
