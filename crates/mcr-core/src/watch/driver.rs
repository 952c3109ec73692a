//! Keeps one [`SharedWatch`] equal to what the API server has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, header};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::value::RawValue;
use tokio::{
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};

use super::{
    SharedWatch, WatchError,
    decode::{self, WatchLine},
    lines::Lines,
};
use crate::{
    ClusterName,
    backoff::Backoff,
    slots::Slot,
    store::{Namespaces, Object, TypePrefix},
    transport::{ResponseBody, Transport},
};

/// How lists and watches behave. The defaults suit fleets of any size.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WatchSettings {
    /// How long a list may take from its request to its last byte. Default 5 minutes.
    pub list_timeout: Duration,
    /// How many objects a page of a repeated list has. The first list is one page, from the API server's
    /// cache. Default 500.
    pub page_size: u32,
    /// How long the API server is asked to keep a watch open. Default 290 seconds, jittered by a tenth.
    pub watch_timeout: Duration,
    /// The longest pause between attempts for a kind that can't be listed. Default 15 seconds.
    pub retry_cap: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            list_timeout: Duration::from_secs(300),
            page_size: 500,
            watch_timeout: Duration::from_secs(290),
            retry_cap: Duration::from_secs(15),
        }
    }
}

/// Whether the cluster can be spoken to, as its supervisor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not connected, or suspended: nothing is sent.
    Down,
    /// Connected. A new number means another endpoint, whose resource versions need not continue the old ones.
    Up { endpoint: u64 },
}

/// What the watches of a cluster have seen of it, for its supervisor. Only the last report counts.
#[derive(Debug, Clone)]
pub(crate) struct Health(watch::Sender<Seen>);

/// How often the cluster has answered and has failed to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) answers: u64,
    pub(crate) failures: u64,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::default())
    }

    fn answered(&self) {
        self.0.send_modify(|seen| seen.answers += 1);
    }

    fn failed(&self) {
        self.0.send_modify(|seen| seen.failures += 1);
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Seen> {
        self.0.subscribe()
    }
}

/// What a driver needs of its cluster and fleet.
#[derive(Clone)]
pub(crate) struct DriverEnv {
    pub(crate) cluster: ClusterName,
    pub(crate) transport: Transport,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) health: Health,
    /// Bounds the lists under way in the whole fleet.
    pub(crate) list_slots: Arc<Semaphore>,
    pub(crate) settings: Arc<WatchSettings>,
}

/// A slot is for work, not for waiting: a cluster that is slow to answer gives it back after this long, so
/// that slow clusters never keep the others from being listed.
const SLOT_WHILE_WAITING: Duration = Duration::from_secs(2);
const SLOT_WHILE_READING: Duration = Duration::from_secs(10);

/// A watch that lived this long has proven that things work, and the next failure starts with short pauses.
const PROVEN_AFTER: Duration = Duration::from_secs(10);

/// Lists and watches until the watch is stopped.
pub(crate) async fn drive(watch: Arc<SharedWatch>, env: DriverEnv) {
    let mut driver = Driver {
        prefix: watch.request().type_prefix(),
        namespaces: Namespaces::default(),
        backoff: Backoff::new(Duration::from_millis(500), env.settings.retry_cap),
        position: None,
        watch: watch.clone(),
        env,
    };
    tokio::select! {
        () = watch.stopped() => {}
        () = driver.run() => {}
    }
}

struct Driver {
    watch: Arc<SharedWatch>,
    env: DriverEnv,
    prefix: TypePrefix,
    namespaces: Namespaces,
    backoff: Backoff,
    /// Where to go on from; none before the first list and after the API server has forgotten it.
    position: Option<Position>,
}

struct Position {
    endpoint: u64,
    resource_version: String,
}

impl Driver {
    async fn run(&mut self) {
        loop {
            let Some(endpoint) = self.connected().await else {
                return;
            };
            let mut phase = self.env.phase.clone();
            phase.mark_unchanged();
            let step = async {
                match &self.position {
                    Some(position) if position.endpoint == endpoint => {
                        let from = position.resource_version.clone();
                        self.follow(from).await
                    }
                    _ => self.list(endpoint).await,
                }
            };
            // Leaving in the middle is safe: objects are applied one by one, and a listing that was not
            // finished deletes nothing.
            let result = tokio::select! {
                result = step => result,
                () = left(&mut phase, endpoint) => {
                    self.watch.abort_listing();
                    continue;
                }
            };
            if let Err(error) = result {
                self.watch.abort_listing();
                self.failed(error).await;
            }
        }
    }

    async fn connected(&mut self) -> Option<u64> {
        let phase = self
            .env
            .phase
            .wait_for(|phase| matches!(phase, Phase::Up { .. }))
            .await
            .ok()?;
        match *phase {
            Phase::Up { endpoint } => Some(endpoint),
            Phase::Down => None,
        }
    }

    async fn failed(&mut self, error: WatchError) {
        let mut pause = self.backoff.next();
        match &error {
            WatchError::Expired => self.position = None,
            WatchError::Malformed(_) => self.position = None,
            WatchError::TooManyRequests {
                retry_after: Some(asked),
            } => pause = pause.max(*asked),
            _ => {}
        }
        let cluster = &self.env.cluster;
        let kind = self.watch.request();
        let known = self
            .watch
            .status()
            .problem
            .is_some_and(|p| std::mem::discriminant(&*p.error) == std::mem::discriminant(&error));
        // Said once per problem, then only to those who look closely: a thousand dead watches must not fill the log.
        if known || matches!(error, WatchError::Expired) {
            tracing::debug!(%cluster, %kind, %error, retry_in = ?pause, "watch failed again");
        } else {
            tracing::warn!(%cluster, %kind, %error, retry_in = ?pause, "watch failed");
        }
        if error.concerns_cluster() {
            self.env.health.failed();
        } else if error.is_blocked() {
            self.env.health.answered();
        }
        self.watch.failed(error);
        let mut phase = self.env.phase.clone();
        phase.mark_unchanged();
        // The supervisor finding the cluster again makes waiting pointless; a small spread keeps the watches
        // of one cluster from starting in the same instant.
        tokio::select! {
            () = sleep(pause) => {}
            _ = phase.changed() => sleep(self.backoff.spread(Duration::from_millis(100))).await,
        }
    }

    async fn list(&mut self, endpoint: u64) -> Result<(), WatchError> {
        let first = self.watch.status().lists == 0;
        let started = Instant::now();
        let listed = timeout(self.env.settings.list_timeout, self.list_pages(first));
        let resource_version = listed
            .await
            .map_err(|_| WatchError::Timeout(self.env.settings.list_timeout))??;
        self.env.health.answered();
        self.position = Some(Position {
            endpoint,
            resource_version,
        });
        tracing::debug!(
            cluster = %self.env.cluster, kind = %self.watch.request(),
            objects = self.watch.store().len(), took = ?started.elapsed(), "listed"
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
        loop {
            let limit = self.env.settings.page_size.to_string();
            let scope = if first {
                ("resourceVersion", "0")
            } else {
                ("limit", limit.as_str())
            };
            let next = continue_token.as_deref().map(|token| ("continue", token));
            let request = self.request(
                self.watch.request().accept_list(),
                [Some(scope), next].into_iter().flatten(),
            )?;
            let body = self.fetch_page(request).await?;
            let page = decode::list_page(&body)?;
            for (i, item) in page.items.iter().enumerate() {
                unreadable |= !self.put(item, true);
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

    async fn fetch_page(&self, request: Request<Body>) -> Result<Bytes, WatchError> {
        let mut slot = Slot::take(&self.env.list_slots).await;
        let response = slot
            .hold(SLOT_WHILE_WAITING, self.env.transport.send(request))
            .await;
        let response = response.map_err(|e| WatchError::from_transport(&e.into()))?;
        let response = checked(response).await?;
        slot.hold(SLOT_WHILE_READING, collect(response.into_body())).await
    }

    /// Watches until the API server ends the watch.
    async fn follow(&mut self, from: String) -> Result<(), WatchError> {
        let seconds = self.env.settings.watch_timeout.mul_f64(0.9)
            + self.backoff.spread(self.env.settings.watch_timeout.mul_f64(0.1));
        let seconds = seconds.as_secs().to_string();
        let query = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", &from),
            ("timeoutSeconds", &seconds),
        ];
        let request = self.request(self.watch.request().accept_watch(), query)?;
        let response = self
            .env
            .transport
            .send(request)
            .await
            .map_err(|e| WatchError::from_transport(&e.into()))?;
        let response = checked(response).await?;
        self.watch.heard();
        let started = Instant::now();
        let mut body = response.into_body();
        let mut lines = Lines::default();
        let limit = self.env.settings.watch_timeout + Duration::from_secs(30);
        while let Some(frame) = timeout(limit, body.frame())
            .await
            .map_err(|_| WatchError::Timeout(limit))?
        {
            let frame = frame.map_err(|e| WatchError::from_transport(&e.into()))?;
            let Ok(chunk) = frame.into_data() else { continue };
            lines.push(chunk);
            while let Some(line) = lines.next() {
                let line =
                    line.map_err(|_| WatchError::Malformed("a watch event is longer than 16 MiB".into()))?;
                self.take(&line)?;
            }
            self.watch.heard();
            if started.elapsed() > PROVEN_AFTER {
                self.backoff.reset();
            }
        }
        if lines.is_partial() {
            return Err(WatchError::Transport(
                "the watch broke off in the middle of an event".into(),
            ));
        }
        // A server that ends every watch at once would otherwise be asked in a tight loop.
        if started.elapsed() < Duration::from_secs(1) {
            let pause = self.backoff.next();
            sleep(pause).await;
        }
        Ok(())
    }

    fn take(&mut self, line: &[u8]) -> Result<(), WatchError> {
        let object = match decode::watch_line(line)? {
            WatchLine::Added(object) | WatchLine::Modified(object) => {
                self.put(object, false);
                object
            }
            WatchLine::Deleted(object) => {
                match Object::parse(object, &self.prefix, &mut self.namespaces) {
                    Ok(object) => self.watch.delete(object),
                    Err(error) => self.skip(&error),
                }
                object
            }
            WatchLine::Bookmark { resource_version } => {
                self.advance(resource_version);
                return Ok(());
            }
            WatchLine::Error(status) => return Err(WatchError::from_status(status, None)),
        };
        if let Some(resource_version) = decode::resource_version(object) {
            self.advance(resource_version);
        }
        Ok(())
    }

    fn advance(&mut self, resource_version: String) {
        if let Some(position) = &mut self.position {
            position.resource_version = resource_version;
        }
    }

    /// Puts an object into the store; false if it could not even be named.
    fn put(&mut self, json: &RawValue, initial: bool) -> bool {
        match Object::parse(json, &self.prefix, &mut self.namespaces) {
            Ok(object) => {
                self.watch.upsert(object, initial);
                true
            }
            Err(error) => {
                self.skip(&error);
                error.key.is_some()
            }
        }
    }

    fn skip(&self, error: &crate::store::NotAnObject) {
        let name = error.key.as_ref().map(ToString::to_string);
        tracing::warn!(
            cluster = %self.env.cluster, kind = %self.watch.request(), object = name, %error,
            "an object can't be read and is left out; what is held of it stays as it was"
        );
        self.watch.skip(error.key.as_ref());
    }

    fn request<'q>(
        &self,
        accept: &str,
        parameters: impl IntoIterator<Item = (&'q str, &'q str)>,
    ) -> Result<Request<Body>, WatchError> {
        let wanted = self.watch.request();
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        if let Some(labels) = &wanted.labels {
            query.append_pair("labelSelector", labels);
        }
        if let Some(fields) = &wanted.fields {
            query.append_pair("fieldSelector", fields);
        }
        Request::get(format!("{}?{}", wanted.path(), query.finish()))
            .header(header::ACCEPT, accept)
            .header(header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|_| WatchError::Malformed(format!("{wanted} does not make a valid URL")))
    }
}

async fn left(phase: &mut watch::Receiver<Phase>, endpoint: u64) {
    let elsewhere = |phase: &Phase| *phase != Phase::Up { endpoint };
    if phase.wait_for(elsewhere).await.is_err() {
        // No supervisor any more: the watch is about to be stopped.
        std::future::pending::<()>().await;
    }
}

async fn collect(mut body: ResponseBody) -> Result<Bytes, WatchError> {
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| WatchError::from_transport(&e.into()))?;
        let Ok(chunk) = frame.into_data() else { continue };
        match &first {
            None => first = Some(chunk),
            Some(start) => {
                if all.is_empty() {
                    all.extend_from_slice(start);
                }
                all.extend_from_slice(&chunk);
            }
        }
    }
    Ok(if all.is_empty() {
        first.unwrap_or_default()
    } else {
        all.freeze()
    })
}

/// Turns an answer that is not a success into its error.
async fn checked(response: Response<ResponseBody>) -> Result<Response<ResponseBody>, WatchError> {
    const MAX_STATUS: usize = 64 << 10;
    if response.status().is_success() {
        return Ok(response);
    }
    let code = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(Duration::from_secs);
    let body = http_body_util::Limited::new(response.into_body(), MAX_STATUS);
    let body = timeout(Duration::from_secs(5), body.collect()).await;
    let body = body
        .ok()
        .and_then(Result::ok)
        .map(|collected| collected.to_bytes())
        .unwrap_or_default();
    Err(WatchError::from_status(decode::status(code, &body), retry_after))
}
