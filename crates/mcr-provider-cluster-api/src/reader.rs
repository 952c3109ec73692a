//! Reads of Secrets, a few at once.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{Request, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::{Client, client::Body};
use mcr_core::{
    ObjectKey, ObjectPath, explain_error,
    internal::{KubeconfigProblem, Pace, jitter},
};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, sleep_until, timeout},
};

use crate::{config::Config, inventory::Answer, member::Read, secret::Checks};

/// So many Secrets are read at once.
const AT_ONCE: usize = 16;
/// A Secret has 1 MiB of data at most, which is base64 in JSON, and its metadata.
const LARGEST_BODY: usize = 3 << 20;
/// A hub that wants to be left alone is left alone for so long at most.
const LONGEST_QUIET: Duration = Duration::from_secs(300);

/// Reads Secrets while it is polled.
pub(crate) struct Reader {
    config: Arc<Config>,
    checks: Arc<Checks>,
    places: Arc<Semaphore>,
    pace: Arc<Mutex<Pace>>,
    /// Reads that may be tried before their time, because another one has succeeded after a failure.
    early: Arc<Semaphore>,
    under_way: FuturesUnordered<BoxFuture<'static, (Read, Answer)>>,
}

impl Reader {
    pub(crate) fn new(config: Arc<Config>, checks: Checks) -> Self {
        Self {
            config,
            checks: checks.into(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            pace: Arc::default(),
            early: Arc::new(Semaphore::new(0)),
            under_way: FuturesUnordered::new(),
        }
    }

    /// Begins to read a Secret; after a pause, if it has failed before.
    pub(crate) fn read(&mut self, read: Read) {
        let (config, checks, places) = (self.config.clone(), self.checks.clone(), self.places.clone());
        let (pace, early) = (self.pace.clone(), self.early.clone());
        let due = self
            .pause(&read)
            .map(|pause| pace.lock().refused(Instant::now(), pause));
        self.under_way.push(
            async move {
                if let Some(due) = due {
                    tokio::select! {
                        () = sleep_until(due) => {}
                        Ok(early) = early.acquire() => early.forget(),
                    }
                }
                let _place = places.acquire().await;
                let quiet = |now| pace.lock().quiet_until(now);
                while let Some(until) = quiet(Instant::now()) {
                    sleep_until(until).await;
                }
                let answer = match timeout(config.times.read, get(&config.client, &read, checks, &pace)).await
                {
                    Ok(answer) => answer,
                    Err(_) => failed(&read.secret, &format!("no answer within {:?}", config.times.read)),
                };
                match answer {
                    Answer::Failed(_) => drop(early.forget_permits(usize::MAX)),
                    _ if due.is_some() => early.add_permits(pace.lock().recovered(Instant::now())),
                    _ => {}
                }
                (read, answer)
            }
            .boxed(),
        );
    }

    fn pause(&self, read: &Read) -> Option<Duration> {
        let (first, longest) = self.config.times.pauses;
        let doublings = read.failures.checked_sub(1)?;
        Some(jitter(first.saturating_mul(1 << doublings.min(20)).min(longest)))
    }

    /// The next read that has ended. Waits forever if none is under way. Cancel safe.
    pub(crate) async fn next(&mut self) -> (Read, Answer) {
        match self.under_way.next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }
}

async fn get(client: &Client, read: &Read, checks: Arc<Checks>, pace: &Mutex<Pace>) -> Answer {
    let Read { secret, key, .. } = read;
    let namespace = secret.namespace.as_deref().unwrap_or_default();
    let path = ObjectPath {
        group: "",
        version: "v1",
        plural: "secrets",
        namespace: Some(namespace),
        name: &secret.name,
    };
    let Ok(path) = path.path() else {
        return failed(
            secret,
            "this can't be the name of a Secret; correct `kubeconfig_secret`",
        );
    };
    // kube would decode the body and log it if it can't.
    let response = match Request::get(path).body(Body::empty()) {
        Ok(request) => client.send(request).await,
        Err(error) => return failed(secret, &error.to_string()),
    };
    let response = match response {
        Ok(response) => response,
        Err(error) => return failed(secret, &explain_error(&error)),
    };
    let seconds = response.headers().get(RETRY_AFTER);
    if let Some(seconds) = seconds.and_then(|value| value.to_str().ok()?.parse().ok()) {
        pace.lock()
            .quiet(Instant::now() + Duration::from_secs(seconds).min(LONGEST_QUIET));
    }
    match response.status() {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => return Answer::Gone,
        StatusCode::FORBIDDEN => {
            let why = format!(
                "forbidden; grant the verb get on secrets in namespace {namespace} to the client of the hub"
            );
            return failed(secret, &why);
        }
        other => return failed(secret, &format!("the hub answered {}", other.as_u16())),
    }
    let body = match Limited::new(response.into_body(), LARGEST_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return failed(secret, "it is larger than a Secret can be");
        }
        Err(_) => return failed(secret, "the answer broke off"),
    };
    // Parsing may take long, and a parser may panic.
    let key = key.clone();
    match spawn_blocking(move || checks.read(&body, &key)).await {
        Ok(Ok(read)) => Answer::Read(Box::new(read)),
        Ok(Err(why)) => failed(secret, &why),
        Err(_) => failed(
            secret,
            "mcr panicked when it read the kubeconfig; please report this",
        ),
    }
}

fn failed(secret: &ObjectKey, why: &str) -> Answer {
    Answer::Failed(KubeconfigProblem::new(format!(
        "Secret {secret} can't be read in the hub: {why}"
    )))
}
