//! Asks the hub who a bearer token belongs to, and what that user may do.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use axum::body::{Body, to_bytes};
use http::{Method, Request, StatusCode, header};
use kube::Client;
use mcr_core::{BoxError, Fingerprint, internal::is_login_error};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::seldom::Seldom;

/// How many callers are reviewed at once. Further ones wait.
const AT_ONCE: usize = 8;
/// The same for those who had a right not long ago, so that they do not wait behind others.
const KNOWN_AT_ONCE: usize = 2;
/// How long a caller waits for a decision.
const WITHIN: Duration = Duration::from_secs(10);
/// How long a refusal is kept at most.
const REFUSED_TTL: Duration = Duration::from_secs(10);
/// The decisions that are kept. Refusals have a map of their own, so that nobody without a right makes the hub be asked again for
/// those with one.
const ALLOWED: usize = 256;
const REFUSED: usize = 1024;
/// The largest answer of the hub.
const ANSWER: usize = 1 << 20;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What the hub decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// The user of the token does not have the right.
    Forbidden,
    /// No user has the token.
    Unauthenticated,
}

/// The hub could not be asked, or did not answer in time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Undecided;

/// The decisions of the hub.
pub(super) struct Reviews {
    client: Client,
    cache_ttl: Duration,
    cache: Mutex<[Kept; 2]>,
    permits: Semaphore,
    permits_of_known: Semaphore,
    warnings: Seldom,
}

impl Reviews {
    pub(super) fn new(client: Client, cache_ttl: Duration) -> Self {
        Self {
            client,
            cache_ttl,
            cache: Mutex::new([Kept::new(ALLOWED), Kept::new(REFUSED)]),
            permits: Semaphore::new(AT_ONCE),
            permits_of_known: Semaphore::new(KNOWN_AT_ONCE),
            warnings: Seldom::default(),
        }
    }

    /// Whether the user of a token has the right to a path.
    pub(super) async fn verdict(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, Undecided> {
        // The key is a hash with random keys of this process: the token itself is not kept.
        let key = Fingerprint::of(&(token, verb, path));
        if let Some(verdict) = self.kept(key) {
            return Ok(verdict);
        }
        let asked = timeout(WITHIN, async {
            let is_known = self.cache.lock()[0].until.contains_key(&key);
            let permits = if is_known {
                &self.permits_of_known
            } else {
                &self.permits
            };
            let _permit = permits.acquire().await?;
            match self.kept(key) {
                Some(verdict) => Ok(verdict),
                None => {
                    // What is revoked during the review may still be in its answer.
                    let since = Instant::now();
                    let verdict = self.ask(token, verb, path).await?;
                    self.keep(key, verdict, since);
                    Ok::<_, BoxError>(verdict)
                }
            }
        });
        match asked.await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(error)) => Err(self.undecided(&*error)),
            Err(_) => Err(self.undecided(&"no answer in time")),
        }
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Result<Verdict, BoxError> {
        let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let status: TokenStatus = self.create(TOKENS, &token).await?;
        let Some(user) = status
            .user
            .filter(|user| status.authenticated && !user.username.is_empty())
        else {
            return Ok(Verdict::Unauthenticated);
        };
        let access = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let status: AccessStatus = self.create(ACCESS, &access).await?;
        if status.allowed && !status.denied {
            return Ok(Verdict::Allowed);
        }
        tracing::debug!(
            user = user.username,
            verb,
            path,
            "a request to this server is forbidden"
        );
        Ok(Verdict::Forbidden)
    }

    /// Creates a review, and returns its status. kube would log an answer that it can't parse, with the token in it.
    async fn create<S: DeserializeOwned>(&self, path: &str, review: &Value) -> Result<S, BoxError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(review)?.into())?;
        let sent = self.client.send(request).await;
        let answer = sent.map_err(|error| without_credentials(error.into()))?;
        if answer.status() == StatusCode::FORBIDDEN {
            return Err("forbidden: grant the program create on tokenreviews.authentication.k8s.io and \
                        subjectaccessreviews.authorization.k8s.io, as the ClusterRole system:auth-delegator does"
                .into());
        }
        if !answer.status().is_success() {
            return Err(format!("the hub answered {} to {path}", answer.status()).into());
        }
        let body = to_bytes(Body::new(answer.into_body()), ANSWER).await?;
        let reviewed: Option<Reviewed<S>> = serde_json::from_slice(&body).ok();
        reviewed
            .and_then(|reviewed| reviewed.status)
            .ok_or_else(|| format!("the hub answered something else than a review to {path}").into())
    }

    fn kept(&self, key: Fingerprint) -> Option<Verdict> {
        self.cache.lock().iter().find_map(|kept| kept.get(key))
    }

    fn keep(&self, key: Fingerprint, verdict: Verdict, since: Instant) {
        let mut cache = self.cache.lock();
        let [allowed, refused] = &mut *cache;
        match verdict {
            Verdict::Allowed => allowed.insert(key, verdict, since + self.cache_ttl),
            _ => {
                allowed.until.remove(&key);
                refused.insert(key, verdict, since + self.cache_ttl.min(REFUSED_TTL));
            }
        }
    }

    fn undecided(&self, error: &dyn std::fmt::Display) -> Undecided {
        if self.warnings.is_due() {
            tracing::warn!(%error, "requests to this server are refused, because the hub can't be asked who may read");
        }
        Undecided
    }
}

/// The error of a client of the hub. Those of credentials quote what a plugin wrote, which may be a credential.
pub(super) fn without_credentials(error: BoxError) -> BoxError {
    if is_login_error(&*error) {
        return "no credential for the hub: its credential plugin or its file of credentials failed".into();
    }
    error
}

/// Decisions, each until its time is over. One that is over makes room for others, and until then shows whom the hub knew.
struct Kept {
    most: usize,
    until: HashMap<Fingerprint, (Instant, Verdict)>,
}

impl Kept {
    fn new(most: usize) -> Self {
        Self {
            most,
            until: HashMap::new(),
        }
    }

    fn get(&self, key: Fingerprint) -> Option<Verdict> {
        let (until, verdict) = self.until.get(&key)?;
        (Instant::now() < *until).then_some(*verdict)
    }

    fn insert(&mut self, key: Fingerprint, verdict: Verdict, until: Instant) {
        let now = Instant::now();
        if self.until.len() >= self.most {
            self.until.retain(|_, (until, _)| now < *until);
        }
        if self.until.len() >= self.most {
            let first = self.until.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(key, _)| *key) {
                self.until.remove(&first);
            }
        }
        self.until.insert(key, (until, verdict));
    }
}

#[derive(Deserialize)]
struct Reviewed<S> {
    status: Option<S>,
}

#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    user: Option<UserInfo>,
}

#[derive(Deserialize, Serialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
