//! Lists one kind, watches it, and keeps a [`WatchTarget`] equal to the API server.

mod api;
mod content;
mod env;
mod grant;
mod left_out;
mod list;
mod listing;
mod page;
mod progress;
mod staged;
mod unreadable;
mod versions;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use mcr_client::{EndpointNumber, ResponseBody, internal::jitter};
use mcr_store::{Encoder, Item, LineDecoder, WatchEvent, parse_event};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::{
    api::{newest_version, silent, start_watch},
    left_out::LeftOutPlaces,
    listing::{Ahead, Listing, Paging},
    progress::{EndedWatch, Progress, Received},
    unreadable::Unreadable,
};
pub use self::{env::DriverEnv, grant::confirm_grant};
use crate::{
    counters::count,
    error::WatchError,
    request::WatchRequest,
    target::{Encoded, PlacedObject, TargetEvent, UnreadableObject, WatchTarget},
};

/// A watch that has been open for this long without an event counts as one that works.
const PATIENT_AFTER: Duration = Duration::from_secs(1);

/// How long the driver waits after its target has asked for a list: clusters that move to another endpoint do so one
/// after the other, and one list serves all that came within this time.
const RELIST_PAUSE: Duration = Duration::from_millis(250);

/// Lists and watches a kind until `stop` is cancelled.
pub fn drive(
    target: Arc<dyn WatchTarget>,
    kind: WatchRequest,
    stop: CancellationToken,
    env: DriverEnv,
) -> impl Future<Output = ()> + Send + 'static {
    // Not an async function: its future would have room for the arguments and for the driver made of them.
    let mut driver = Driver {
        encoder: Encoder::with_templates(env.templates.clone()),
        kind,
        progress: Progress::new(env.settings.retry_cap),
        unreadable: Unreadable::default(),
        left_out: Box::default(),
        paging: Paging::new(env.settings.page_size),
        listing: None,
        ahead: Ahead::default(),
        needed: 0,
        relist_not_before: Instant::now(),
        target,
        env,
    };
    async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = driver.run() => {}
        }
    }
}

struct Driver {
    target: Arc<dyn WatchTarget>,
    kind: WatchRequest,
    env: DriverEnv,
    encoder: Encoder,
    progress: Progress,
    unreadable: Unreadable,
    /// Boxed: few watches have places.
    left_out: Box<LeftOutPlaces>,
    paging: Paging,
    /// A list that has failed and can be resumed. Boxed: a watch needs no room for it.
    listing: Option<Box<Listing>>,
    ahead: Ahead,
    /// The bytes that the last list needed, if the fleet did not have them.
    needed: usize,
    /// When the target may ask for a list again.
    relist_not_before: Instant,
}

impl Driver {
    async fn run(&mut self) {
        loop {
            let endpoint = self.connected().await;
            let health = self.env.health.clone();
            let (target, not_before) = (self.target.clone(), self.relist_not_before);
            let watches = self.progress.watches_from(endpoint).is_some();
            let step = async {
                if watches {
                    self.watch(endpoint).await
                } else {
                    // Boxed: a task reads a watch all the time and a list for a moment.
                    Box::pin(self.list(endpoint)).await
                }
            };
            // Dropping the step at any point is safe: objects of a list are applied when it is complete, one by one, and its
            // deletions last.
            let result = tokio::select! {
                result = step => result,
                // Only a watch is interrupted: a target that asks all the time would keep a list from ending.
                () = relist_requested(&*target, not_before), if watches => {
                    self.progress.interrupt();
                    sleep(RELIST_PAUSE).await;
                    continue;
                }
                () = health.link.left(endpoint) => {
                    self.report(TargetEvent::ListFailed);
                    continue;
                }
            };
            if let Err(error) = result {
                Box::pin(self.failed(error)).await;
            }
        }
    }

    /// Waits until the cluster is connected. Returns the number of its endpoint.
    async fn connected(&mut self) -> EndpointNumber {
        let health = &self.env.health;
        if health.link.endpoint().is_none() {
            self.progress.cluster_down();
            // Its objects would take memory from the lists of other clusters for as long as the cluster is down.
            if self.listing.take().is_some() {
                self.report(TargetEvent::ListFailed);
            }
        }
        health.link.up().await
    }

    /// Reports an error and waits until it is time to try again.
    async fn failed(&mut self, error: WatchError) {
        let error = self.kind.explain(error);
        let retry = self.progress.failed(&error);
        let pause = retry.pause;
        self.env.counts.failure(&error);
        let cluster = &self.env.cluster;
        let kind = &self.kind;
        // A kind that is refused is often refused in all clusters: one line a minute has the number of the others.
        let others = if error.is_blocked() && retry.warn {
            self.env.counts.warns(&error, Instant::now())
        } else {
            retry.warn.then_some(0)
        };
        if let Some(others) = others.filter(|_| !self.env.transport.is_closed()) {
            let others = (others > 0).then_some(others);
            tracing::warn!(%cluster, %kind, %error, retry_in = ?pause, others, "watch failed");
        } else {
            tracing::debug!(%cluster, %kind, %error, retry_in = ?pause, "watch failed again");
        }
        if error.asks_for_probe() {
            self.env.health.failed();
        }
        if retry.resume {
            self.listing = None;
        }
        if self.listing.is_none() {
            self.report(TargetEvent::ListFailed);
        }
        if retry.resume {
            self.relist_not_before = Instant::now() + pause;
        }
        self.report(TargetEvent::Failed(error));
        if retry.resume {
            return;
        }
        let link = &self.env.health.link;
        let number = link.number();
        // The pause is pointless once the supervisor has found the cluster again. The watches of the cluster spread a
        // little, so that they do not all start at once.
        tokio::select! {
            () = sleep(pause) => {}
            () = link.changed(number) => sleep(jitter(Duration::from_millis(100))).await,
        }
    }

    /// Watches until the API server ends the watch.
    async fn watch(&mut self, endpoint: EndpointNumber) -> Result<(), WatchError> {
        if self.progress.versions.unconfirmed
            && let Some(newest) = Box::pin(newest_version(&self.env, &self.kind)).await
        {
            self.progress.confirm(&newest)?;
        }
        let from = self.progress.watches_from(endpoint).unwrap_or_default();
        let asked = Instant::now();
        // Boxed: most watches start in a moment, and their tasks would keep the room for that all their life.
        let response = Box::pin(async {
            let started = start_watch(&self.env, &self.kind, from);
            tokio::select! {
                response = started => response,
                error = silent(&self.env, &self.kind), if !self.env.health.is_supervised => Err(error),
            }
        });
        let response = response.await?;
        let mut received = Received::Nothing;
        // A watch counts from its request, because some servers send the head only with the first event or the end.
        let (started, result) = match response {
            Ok(mut body) => (asked, self.read(&mut body, &mut received).await),
            Err(error) => (Instant::now(), Err(error)),
        };
        let ended = EndedWatch {
            lasted: started.elapsed(),
            timeout: self.env.settings.watch_timeout,
            received,
            left_out: self.unreadable.left_out(),
        };
        if ended.was_silent() {
            tracing::debug!(cluster = %self.env.cluster, kind = %self.kind, "the watch received nothing; listing again");
        }
        if let Some(cut_short) = self.progress.watch_ended(ended, &result) {
            if cut_short.report {
                // No error, but the objects are as old as the pauses are long.
                self.report(TargetEvent::Failed(WatchError::Transport(
                    "the server ends every watch at once, so changes arrive late; check the proxies in front of the API server".into(),
                )));
            }
            sleep(cut_short.pause).await;
        }
        result
    }

    /// Applies the events of a watch until its response ends.
    async fn read(&mut self, body: &mut ResponseBody, received: &mut Received) -> Result<(), WatchError> {
        self.report(TargetEvent::Received);
        let mut lines = LineDecoder::default();
        let limit = self.env.settings.watch_timeout + Duration::from_secs(30);
        let mut patience = PATIENT_AFTER;
        let mut is_patient = false;
        loop {
            if self.left_out.is_due() {
                self.progress.interrupt();
                return Ok(());
            }
            let frame = match timeout(self.left_out.wait_at_most(patience), body.frame()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(_) if self.left_out.is_due() => continue,
                Err(_) if !is_patient => {
                    self.report(TargetEvent::Recovered);
                    (is_patient, patience) = (true, limit);
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
                self.apply(&line, received)?;
            }
            self.report(TargetEvent::Recovered);
            is_patient = true;
            patience = if *received == Received::Bookmarks {
                limit.min(self.env.settings.silence_timeout)
            } else {
                limit
            };
        }
        let Some(last) = lines.rest() else { return Ok(()) };
        // The last event may lack its line feed (a 410 often does). An event that was cut off does not parse.
        if parse_event(&last).is_err() {
            return Err(WatchError::Transport(
                "the watch broke off in the middle of an event".into(),
            ));
        }
        self.apply(&last, received)
    }

    fn apply(&mut self, line: &[u8], received: &mut Received) -> Result<(), WatchError> {
        *received = (*received).max(Received::Events);
        let (event, applied) = match parse_event(line)? {
            WatchEvent::Put(event) => {
                let object = self.encode(event.item()).ok().flatten();
                let applied = match object.filter(|object| !self.ahead.is_repetition(object)) {
                    Some(object) if self.left_out.has(&object) => {
                        self.left_out.changed();
                        Some(object)
                    }
                    object => object.filter(|object| self.put(object, false).is_ok()),
                };
                if let Some(put) = &applied {
                    self.check_held(put)?;
                }
                (event, applied)
            }
            WatchEvent::Deleted(event) => {
                // To skip the event would keep a deleted object. The list after this error shows which one it is.
                let object = self.target.encode(event.item(), &mut self.encoder);
                let object = object.map_err(|unreadable| {
                    WatchError::Malformed(format!("a deleted object can't be read: {}", unreadable.error))
                })?;
                let applied = object.filter(|object| !self.ahead.is_repetition(object));
                if let Some(deleted) = &applied {
                    self.report(TargetEvent::Deleted(deleted));
                }
                self.left_out.changed();
                (event, applied)
            }
            WatchEvent::Bookmark { resource_version } => {
                *received = Received::Bookmarks;
                self.paging.watched();
                return self.progress.advance(resource_version);
            }
            WatchEvent::Error(status) => return Err(WatchError::from_status(status, None)),
        };
        count(&self.env.counts.events);
        self.paging.watched();
        self.progress.advance(match applied {
            Some(applied) => applied.object.resource_version().to_owned(),
            None => event.resource_version().unwrap_or_default(),
        })
    }

    /// Reports an event to the target.
    fn report(&self, event: TargetEvent<'_>) {
        // Only the object of a `Put` can be unreadable.
        _ = self.target.apply(event);
    }

    /// Encodes an object; none if the target does not hold it. An object that can't be read is left out.
    fn encode(&mut self, item: Item<'_>) -> Encoded {
        let encoded = self.target.encode(item, &mut self.encoder);
        encoded.inspect_err(|unreadable| self.leave_out(unreadable))
    }

    /// Puts an object into the target.
    fn put(&mut self, object: &PlacedObject, initial: bool) -> Result<(), UnreadableObject> {
        let put = self.target.apply(TargetEvent::Put { object, initial });
        if put.is_ok() {
            self.unreadable.remove(object.place.as_ref(), object.object.key());
        }
        put.inspect_err(|unreadable| self.leave_out(unreadable))
    }

    /// Counts an object that can't be read, and logs it.
    fn leave_out(&mut self, unreadable: &UnreadableObject) {
        if self.unreadable.add(unreadable) {
            let UnreadableObject { place, error } = unreadable;
            let name = error.key.as_ref().map(ToString::to_string);
            tracing::warn!(
                cluster = %self.env.cluster, kind = %self.kind, place = place.as_deref(), object = name, %error,
                "an object can't be read and is left out; the store keeps the version of it that it has"
            );
        }
        count(&self.env.counts.skipped);
    }
}

/// Resolves when the target asks for a list, after `not_before`. Boxed: most targets never ask, and need no room for it.
fn relist_requested(target: &dyn WatchTarget, not_before: Instant) -> BoxFuture<'_, ()> {
    match target.relist() {
        Some(relist) => Box::pin(async move {
            sleep_until(not_before).await;
            relist.await;
        }),
        None => Box::pin(std::future::pending()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use mcr_access::ClusterName;
    use mcr_client::{LinkState, Transport};
    use mcr_store::TemplateRegistry;

    use super::*;
    use crate::{budget::ListBudget, health::Health, settings::WatchSettings, shared::SharedWatch};

    /// An environment without a server.
    fn env(request: &WatchRequest, state: LinkState) -> DriverEnv {
        let transport = Transport::new(ClusterName::unchecked("a"));
        transport.set_link(state);
        DriverEnv {
            cluster: ClusterName::unchecked("a"),
            health: Arc::new(Health::new(transport.link())),
            transport,
            list_budget: Arc::new(ListBudget::new(&WatchSettings::default())),
            settings: Arc::default(),
            counts: Arc::default(),
            templates: Arc::new(TemplateRegistry::new(request.encoding())),
        }
    }

    /// Each watch has such a task for its whole life.
    #[test]
    fn the_task_of_a_watch_is_small() {
        let request = WatchRequest::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let env = env(&request, LinkState::down("not yet"));
        let stop = CancellationToken::new();
        let watch = Arc::new(SharedWatch::new(request.clone(), stop.clone()));
        let task = size_of_val(&drive(watch, request, stop, env));
        assert!(task < 1_340, "{task} bytes");
    }

    /// Writes down what the driver asks and reports, until a list has failed.
    #[derive(Default)]
    struct Asked {
        stop: CancellationToken,
        lines: Mutex<Vec<&'static str>>,
    }

    impl WatchTarget for Asked {
        fn encode(&self, _: Item<'_>, _: &mut Encoder) -> Encoded {
            Ok(None)
        }
        fn apply(&self, event: TargetEvent<'_>) -> Result<(), UnreadableObject> {
            match event {
                TargetEvent::ListBegins => self.lines.lock().unwrap().push("begins"),
                TargetEvent::ListFailed => self.stop.cancel(),
                _ => {}
            }
            Ok(())
        }
        fn needs_newest(&self) -> bool {
            self.lines.lock().unwrap().push("from the cache?");
            true
        }
    }

    /// A cluster that comes later brings objects that may be newer than the cache. It waits for the next list.
    #[tokio::test]
    async fn the_driver_asks_about_the_cache_after_the_listing_has_begun() {
        let target = Arc::new(Asked::default());
        let request = WatchRequest::of::<k8s_openapi::api::core::v1::ConfigMap>();
        let env = env(&request, LinkState::Up(EndpointNumber(1)));
        drive(target.clone(), request, target.stop.clone(), env).await;
        assert_eq!(*target.lines.lock().unwrap(), ["begins", "from the cache?"]);
    }
}
