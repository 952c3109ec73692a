//! Lists one kind, watches it, and keeps a [`WatchTarget`] equal to the API server.

use std::{collections::BTreeSet, mem::Discriminant, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use mcr_access::ClusterName;
use mcr_client::{
    ResponseBody, Transport,
    internal::{Backoff, jitter},
};
use mcr_store::{
    Encoder, Item, LineDecoder, NotAnObject, ObjectKey, TemplateRegistry, WatchEvent, parse_event, parse_list,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    WatchError, WatchRequest, WatchSettings,
    counters::{KindCounters, count},
    exchange::{checked, request},
    health::{Health, Phase},
    permit::Permit,
    target::{Applied, WatchTarget},
};

/// What a driver needs of its cluster and fleet.
#[derive(Clone)]
pub struct DriverEnv {
    /// The cluster, for the log.
    pub cluster: ClusterName,
    /// Requests are sent through this.
    pub transport: Transport,
    /// Tells when the cluster can be spoken to, and is told how it answers.
    pub health: Arc<Health>,
    /// Bounds the lists under way in the whole fleet.
    pub list_permits: Arc<Semaphore>,
    /// Times and sizes.
    pub settings: Arc<WatchSettings>,
    /// What all watches of this kind did.
    pub counts: Arc<KindCounters>,
    /// What objects of this kind have in common.
    pub templates: Arc<TemplateRegistry>,
}

/// A slot is for work, not for waiting: a cluster that is slow to answer gives it back after this long, so
/// that slow clusters never keep the others from being listed. Hundreds of silent ones may stand in line before
/// a healthy one, so it is not long; when the answer comes there is a place to be taken again.
const PERMIT_WHILE_WAITING: Duration = Duration::from_millis(250);
const PERMIT_WHILE_READING: Duration = Duration::from_secs(10);

/// A watch that lived this long has proven that things work, and the next failure starts with short pauses.
const PROVEN_AFTER: Duration = Duration::from_secs(10);

/// A watch that has been open for this long without a word is taken for one that works.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// After this many watches that failed at the same place, everything is listed again: what stands in the way
/// there (an event that can't be converted, or that a proxy cuts off) would otherwise be asked for for ever.
const STUCK_AFTER: u32 = 3;

/// The longest pause that a server can ask for: what asks for more is misconfigured, and nobody would find out
/// why a kind sleeps for a year.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Clusters that move to another endpoint do so one after the other; one list is for all that came within this time.
const RELIST_PAUSE: Duration = Duration::from_millis(250);

/// How many unreadable objects are remembered as told.
const REMEMBERED: usize = 1000;

/// Lists and watches until the watch is stopped.
pub fn drive(watch: Arc<dyn WatchTarget>, env: DriverEnv) -> impl Future<Output = ()> + Send + 'static {
    // Not an async function: it would have room for its arguments besides what is made of them.
    let mut driver = Driver {
        encoder: Encoder::with_templates(env.templates.clone()),
        kind: watch.query().clone(),
        backoff: Backoff::new(Duration::from_millis(500), env.settings.retry_cap),
        position: None,
        interrupted: None,
        list_not_before: Instant::now(),
        applied: false,
        stuck: 0,
        cut_short: 0,
        spoke: false,
        bookmarked: false,
        left_out: false,
        told: Vec::new(),
        unreadable: BTreeSet::new(),
        watch,
        env,
    };
    async move {
        let watch = driver.watch.clone();
        tokio::select! {
            () = watch.stopped().cancelled() => {}
            () = driver.run() => {}
        }
    }
}

struct Driver {
    watch: Arc<dyn WatchTarget>,
    kind: WatchRequest,
    env: DriverEnv,
    encoder: Encoder,
    backoff: Backoff,
    /// Where to go on from; none before the first list and after the API server has forgotten it.
    position: Option<Position>,
    /// Where a watch that worked was when someone asked for a list.
    interrupted: Option<Position>,
    list_not_before: Instant,
    /// Whether the list under way has brought anything yet.
    applied: bool,
    /// How many watches in a row failed without getting on from there.
    stuck: u32,
    /// How many watches in a row the server ended as soon as they had begun.
    cut_short: u32,
    /// Whether the watch under way has said anything, and whether that was a bookmark.
    spoke: bool,
    bookmarked: bool,
    /// Whether something could not be read since the last list began.
    left_out: bool,
    /// How often each kind of error came since a watch last lived for some time.
    told: Vec<(Discriminant<WatchError>, u32)>,
    /// The objects that were told to be unreadable, by whose they are in a scope; none for those without a name.
    unreadable: BTreeSet<(Option<Arc<str>>, Option<ObjectKey>)>,
}

struct Position {
    endpoint: u64,
    resource_version: String,
}

impl Driver {
    async fn run(&mut self) {
        loop {
            let endpoint = self.connected().await;
            let health = self.env.health.clone();
            let (watch, not_before) = (self.watch.clone(), self.list_not_before);
            // A list under way is not begun anew: those who ask for lists all the time would keep it from ending.
            let following = matches!(&self.position, Some(position) if position.endpoint == endpoint);
            let step = async {
                if following {
                    self.follow().await
                } else {
                    // In a box: a watch is read all the time, and listed for a moment.
                    Box::pin(self.list(endpoint)).await
                }
            };
            // Leaving in the middle is safe: objects are applied one by one, and a listing that was not
            // finished deletes nothing.
            let result = tokio::select! {
                result = step => result,
                () = asked_for_a_list(&*watch, not_before), if following => {
                    self.interrupted = self.position.take();
                    sleep(RELIST_PAUSE).await;
                    continue;
                }
                () = health.left(endpoint) => {
                    self.watch.abort_listing();
                    continue;
                }
            };
            if let Err(error) = result {
                self.watch.abort_listing();
                Box::pin(self.failed(error)).await;
            }
        }
    }

    /// Goes on with the watch that worked before someone asked for a list that now fails: those who did not ask must not
    /// suffer. Not where the list has brought something already, which the watch would take back.
    fn go_on_watching(&mut self, error: &WatchError, pause: Duration) -> bool {
        let interrupted = self.interrupted.take();
        if self.position.is_some() || self.applied || matches!(error, WatchError::Expired) {
            return false;
        }
        let Some(position) = interrupted else { return false };
        self.position = Some(position);
        self.list_not_before = Instant::now() + pause;
        self.watch.list_failed();
        true
    }

    async fn connected(&mut self) -> u64 {
        let health = &self.env.health;
        if health.phase.read(|now| now.phase == Phase::Down) {
            // What failed before says nothing of what comes after: an API server that starts forbids everything for a
            // moment. How often a cluster that comes and goes is dialled is its supervisor's concern.
            self.backoff.reset();
        }
        health.up().await
    }

    async fn failed(&mut self, error: WatchError) {
        let mut pause = self.backoff.pause();
        match &error {
            WatchError::Expired => self.position = None,
            WatchError::Malformed(_) => self.position = None,
            WatchError::TooManyRequests {
                retry_after: Some(asked),
            } => pause = pause.max((*asked).min(LONGEST_PAUSE)),
            _ => {}
        }
        if self.stuck >= STUCK_AFTER {
            self.stuck = 0;
            self.position = None;
        }
        self.env.counts.failure(&error);
        let times = self.times_told(&error);
        if matches!(error, WatchError::Expired) && times == 1 {
            // Normal after a while, and cured by a list; only one after the other is a loop.
            pause = jitter(Duration::from_millis(100));
        }
        // Having to list again is normal, unless it never ends.
        let loud = if matches!(error, WatchError::Expired) {
            3
        } else {
            1
        };
        // Said once per problem, then only to those who look closely: a thousand dead watches must not fill the
        // log. A watch that opens and fails each time is one problem.
        let warns = times == loud;
        let cluster = &self.env.cluster;
        let kind = &self.kind;
        if !warns {
            tracing::debug!(%cluster, %kind, %error, retry_in = ?pause, "watch failed again");
        } else {
            tracing::warn!(%cluster, %kind, %error, retry_in = ?pause, "watch failed");
        }
        if error.concerns_cluster() {
            self.env.health.failed();
        } else if error.is_blocked() {
            self.env.health.answered();
        }
        let goes_on = self.go_on_watching(&error, pause);
        self.watch.failed(error);
        if goes_on {
            return;
        }
        let health = &self.env.health;
        let number = health.phase.read(|now| now.number);
        // The supervisor finding the cluster again makes waiting pointless; a small spread keeps the watches
        // of one cluster from starting in the same instant.
        tokio::select! {
            () = sleep(pause) => {}
            () = health.changed(number) => sleep(jitter(Duration::from_millis(100))).await,
        }
    }

    /// How often this kind of error came, this time included.
    fn times_told(&mut self, error: &WatchError) -> u32 {
        let kind = std::mem::discriminant(error);
        match self.told.iter_mut().find(|(told, _)| *told == kind) {
            Some((_, times)) => {
                *times = times.saturating_add(1);
                *times
            }
            None => {
                self.told.push((kind, 1));
                1
            }
        }
    }

    async fn list(&mut self, endpoint: u64) -> Result<(), WatchError> {
        let first = self.watch.may_read_a_cache();
        let started = Instant::now();
        (self.left_out, self.applied) = (false, false);
        let resource_version = self.list_pages(first).await?;
        self.interrupted = None;
        self.env.counts.listed(started.elapsed());
        self.position = Some(Position {
            endpoint,
            resource_version,
        });
        tracing::debug!(
            cluster = %self.env.cluster, kind = %self.kind,
            objects = self.watch.len(), took = ?started.elapsed(), "listed"
        );
        Ok(())
    }

    /// Lists everything and returns the resource version to watch from.
    ///
    /// The first list may come from the API server's cache, in one page (a limit would turn it into a read
    /// from etcd). Later ones must not go back in time, so they ask for the newest state, in pages.
    async fn list_pages(&mut self, first: bool) -> Result<String, WatchError> {
        self.watch.begin_listing();
        let mut unreadable = false;
        let mut continue_token: Option<String> = None;
        let mut left = self.env.settings.list_timeout;
        loop {
            let limit = self.env.settings.page_size.to_string();
            let scope = if first {
                ("resourceVersion", "0")
            } else {
                ("limit", limit.as_str())
            };
            let next = continue_token.as_deref().map(|token| ("continue", token));
            let request = request(
                &self.kind,
                self.kind.accept_list(),
                [Some(scope), next].into_iter().flatten(),
            )?;
            // Waiting for a place is not the cluster's fault, so it does not count. The place is kept until the
            // objects are taken over: bodies that wait for that are what the bound is there for.
            let mut permit = Permit::take(&self.env.list_permits).await;
            let asked = Instant::now();
            // In a box of its own: thousands wait for a place, and have no room for what comes after it.
            let body = timeout(left, Box::pin(self.fetch_page(request, &mut permit)))
                .await
                .map_err(|_| WatchError::Timeout(self.env.settings.list_timeout))??;
            left = left.saturating_sub(asked.elapsed());
            let page = parse_list(&body)?;
            self.applied |= !page.items.is_empty();
            for (i, item) in page.items.iter().enumerate() {
                unreadable |= self.put(item, true).is_err_and(|error| error.key.is_none());
                // Decoding a big list must not hold up the other clusters that share this thread.
                if i % 256 == 255 {
                    tokio::task::yield_now().await;
                }
            }
            match page.continue_token {
                Some(token) => continue_token = Some(token),
                None => {
                    self.watch.finish_listing(!unreadable);
                    return Ok(page.resource_version);
                }
            }
        }
    }

    async fn fetch_page(&self, request: Request<Body>, permit: &mut Permit) -> Result<Bytes, WatchError> {
        let response = permit
            .hold(PERMIT_WHILE_WAITING, self.env.transport.send(request))
            .await;
        let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
        let response = checked(response).await?;
        // It takes the credentials and answers; how long the rest of the list takes says nothing about that. Whoever
        // sees the kind listed may go on to change how the cluster is reached: by then this connection has to count
        // as one that works.
        self.env.health.answered();
        permit.take_again(&self.env.list_permits).await;
        let expected = self.env.counts.expected_page();
        let read = permit.hold(PERMIT_WHILE_READING, response.into_body().into_bytes(expected));
        let body = read.await.map_err(|e| WatchError::from_transport(&e.into()))?;
        self.env.counts.read_page(body.len());
        Ok(body)
    }

    /// Asks for a watch. The inner error is that of a server that answered.
    async fn begin(&self) -> Result<Result<ResponseBody, WatchError>, WatchError> {
        let position = self.position.as_ref();
        let from = position.map_or("", |position| &position.resource_version);
        let seconds = self.env.settings.watch_timeout.mul_f64(0.9)
            + jitter(self.env.settings.watch_timeout.mul_f64(0.1));
        // None at all is what the API server makes of 0.
        let seconds = seconds.as_secs().max(1).to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", from),
            ("timeoutSeconds", &seconds),
        ];
        let request = request(&self.kind, self.kind.accept_watch(), query)?;
        let response = self.env.transport.send(request).await;
        let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
        Ok(checked(response).await.map(Response::into_body))
    }

    /// Watches until the API server ends the watch.
    async fn follow(&mut self) -> Result<(), WatchError> {
        // In a box: a watch begins in a moment, and its task would hold the room for that all its life.
        let begun = Box::pin(self.begin()).await?;
        let started = Instant::now();
        (self.spoke, self.bookmarked) = (false, false);
        let result = match begun {
            Ok(mut body) => self.read(&mut body).await,
            Err(error) => Err(error),
        };
        if started.elapsed() > PROVEN_AFTER {
            self.backoff.reset();
            self.told.clear();
            self.stuck = 0;
            self.cut_short = 0;
        }
        if !self.spoke && started.elapsed() >= self.env.settings.watch_timeout.mul_f64(0.8) {
            // Not even a bookmark in all its life: there are servers whose watches stay dead once they began with
            // nothing to watch. Only a list tells.
            tracing::debug!(cluster = %self.env.cluster, kind = %self.kind, "the watch never said anything; listing again");
            self.position = None;
        }
        if self.left_out {
            // An object that can be read again is not told by any event, nor is what an object without a name
            // kept from being deleted: only a list tells.
            self.position = None;
        }
        match &result {
            // A server that ends every watch at once would otherwise be asked in a tight loop.
            Ok(()) if started.elapsed() < Duration::from_secs(1) => {
                self.cut_short = self.cut_short.saturating_add(1);
                if self.cut_short >= STUCK_AFTER {
                    // No error, but what is held is as old as the pauses are long.
                    self.watch.failed(WatchError::Transport(
                        "every watch is ended as soon as it has begun, so changes are seen late; look at what stands between here and the API server".into(),
                    ));
                }
                let pause = self.backoff.pause();
                sleep(pause).await;
            }
            Err(WatchError::Api { .. } | WatchError::Transport(_)) => self.stuck += 1,
            _ => {}
        }
        result
    }

    /// Reads a watch that has begun to its end.
    async fn read(&mut self, body: &mut ResponseBody) -> Result<(), WatchError> {
        self.watch.noted();
        let mut lines = LineDecoder::default();
        let limit = self.env.settings.watch_timeout + Duration::from_secs(30);
        let mut patience = SETTLED_AFTER;
        let mut settled = false;
        loop {
            let frame = match timeout(patience, body.frame()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) if !settled => {
                    self.watch.heard();
                    (settled, patience) = (true, limit);
                    continue;
                }
                Err(_) => return Err(WatchError::Timeout(patience)),
            };
            let frame = frame.map_err(|e| WatchError::from_transport(&e.into()))?;
            let Ok(chunk) = frame.into_data() else { continue };
            lines.push(chunk);
            while let Some(line) = lines.next() {
                let line =
                    line.map_err(|_| WatchError::Malformed("a watch event is longer than 16 MiB".into()))?;
                self.take(&line)?;
            }
            self.watch.heard();
            settled = true;
            patience = if self.bookmarked {
                limit.min(self.env.settings.silence_timeout)
            } else {
                limit
            };
        }
        let Some(last) = lines.rest() else { return Ok(()) };
        // The last event need not end with a line feed (a 410 often does not); one that was cut off does not parse.
        if parse_event(&last).is_err() {
            return Err(WatchError::Transport(
                "the watch broke off in the middle of an event".into(),
            ));
        }
        self.take(&last)
    }

    fn take(&mut self, line: &[u8]) -> Result<(), WatchError> {
        self.spoke = true;
        let (event, object) = match parse_event(line)? {
            WatchEvent::Put(event) => {
                let put = self.put(event.item(), false).ok().flatten();
                (event, put)
            }
            WatchEvent::Deleted(event) => {
                // Leaving it out would keep an object that is gone; a list tells which one it is.
                let deleted = self
                    .watch
                    .delete(event.item(), &mut self.encoder)
                    .map_err(|error| {
                        WatchError::Malformed(format!("a deleted object can't be read: {error}"))
                    })?;
                (event, deleted)
            }
            WatchEvent::Bookmark { resource_version } => {
                self.bookmarked = true;
                self.advance(resource_version);
                return Ok(());
            }
            WatchEvent::Error(status) => return Err(WatchError::from_status(status, None)),
        };
        count(&self.env.counts.events);
        match object {
            Some(taken) => self.advance(taken.object.resource_version().to_owned()),
            None => self.advance(event.resource_version().unwrap_or_default()),
        }
        Ok(())
    }

    fn advance(&mut self, resource_version: String) {
        // Without a version the next watch would begin anywhere, and miss what was deleted before.
        if resource_version.is_empty() {
            return;
        }
        self.stuck = 0;
        if let Some(position) = &mut self.position {
            position.resource_version = resource_version;
        }
    }

    /// Puts an object into the store; none if it is not held there.
    fn put(&mut self, item: Item<'_>, initial: bool) -> Result<Option<Applied>, NotAnObject> {
        let put = self.watch.put(item, initial, &mut self.encoder);
        match &put {
            Ok(Some(Applied { place, object })) if !self.unreadable.is_empty() => {
                self.unreadable
                    .remove(&(place.clone(), Some(object.key().clone())));
            }
            Ok(_) => {}
            Err(error) => self.left_out(error),
        }
        put
    }

    fn left_out(&mut self, error: &NotAnObject) {
        if self.unreadable.len() >= REMEMBERED {
            self.unreadable.clear();
        }
        // Once for each object: it may change every second, and is in every list.
        if self.unreadable.insert((error.place.clone(), error.key.clone())) {
            let name = error.key.as_ref().map(ToString::to_string);
            tracing::warn!(
                cluster = %self.env.cluster, kind = %self.kind, place = error.place.as_deref(), object = name, %error,
                "an object can't be read and is left out; what is held of it stays as it was"
            );
        }
        self.left_out = true;
        count(&self.env.counts.skipped);
    }
}

/// In a box, which takes no room for those whom nobody asks.
fn asked_for_a_list(watch: &dyn WatchTarget, not_before: Instant) -> BoxFuture<'_, ()> {
    match watch.relist() {
        Some(relist) => Box::pin(async move {
            sleep_until(not_before).await;
            relist.await;
        }),
        None => Box::pin(std::future::pending()),
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::shared::SharedWatch;

    /// Every watch has such a task for as long as it is there.
    #[test]
    fn the_task_of_a_watch_is_small() {
        let request = WatchRequest::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let env = DriverEnv {
            cluster: ClusterName::unchecked("a"),
            transport: Transport::new(ClusterName::unchecked("a")),
            health: Arc::new(Health::new(Phase::Down)),
            list_permits: Arc::new(Semaphore::new(1)),
            settings: Arc::default(),
            counts: Arc::default(),
            templates: Arc::new(TemplateRegistry::new(request.encoding())),
        };
        let watch = Arc::new(SharedWatch::new(request, CancellationToken::new()));
        let task = size_of_val(&drive(watch, env));
        assert!(task < 1_300, "{task} bytes");
    }
}
