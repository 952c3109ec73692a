//! A kubeconfig that a garden has issued, or that a seed contains. No I/O.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcr_core::{
    EndpointAccess, Fingerprint,
    hub::{Judge, SecretContent, describe_json_error, parse_rfc3339},
};
use serde::Deserialize;
use tokio::time::Instant;

use crate::renewal::{FOREVER, read_again_after};

/// A usable kubeconfig, with its validity.
#[derive(Clone)]
pub(crate) struct UsableKubeconfig {
    pub(crate) access: EndpointAccess,
    pub(crate) fingerprint: Fingerprint,
    /// A fingerprint of server and certificate authority.
    target: Fingerprint,
    /// The place of the Shoot when the kubeconfig was requested, as in its facts.
    pub(crate) place: Fingerprint,
    life: Duration,
    pub(crate) ends: Instant,
    pub(crate) renew_at: Instant,
}

impl UsableKubeconfig {
    /// When the kubeconfig was issued. In a seed: when it was read.
    pub(crate) fn issued(&self) -> Instant {
        self.ends - self.life
    }

    /// Whether this kubeconfig must be tested before it replaces `other`.
    pub(crate) fn is_doubtful_after(&self, other: &Self) -> bool {
        self.target != other.target || self.life < other.life.mul_f64(0.9)
    }
}

// Shows no contents, because these are credentials.
impl fmt::Debug for UsableKubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsableKubeconfig")
            .field("access", &self.access)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

/// Why there is no new kubeconfig. The text contains nothing of a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) why: Arc<str>,
    /// Whether there is a kubeconfig, but it can't be used.
    pub(crate) unusable: bool,
    /// Whether the seed has no kubeconfig yet. Its watch will report one.
    pub(crate) absent: bool,
    /// How long the garden wants no further requests.
    pub(crate) retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(why: impl Into<Arc<str>>) -> Self {
        Self {
            why: why.into(),
            unusable: false,
            absent: false,
            retry_after: None,
        }
    }

    fn unusable(why: impl fmt::Display) -> Self {
        Self {
            unusable: true,
            ..Self::new(format!("the kubeconfig of the Shoot can't be used: {why}"))
        }
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    status: Status<'a>,
}

/// Has no `Debug`, because it contains secrets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    kubeconfig: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    expiration_timestamp: std::borrow::Cow<'a, str>,
}

/// The annotation with the time at which Gardener will replace the token in the Secret of a seed.
const RENEW_ANNOTATION: &str = "serviceaccount.resources.gardener.cloud/token-renew-timestamp";

/// How the provider checks kubeconfigs.
#[derive(Debug, Clone)]
pub(crate) struct Checks {
    pub(crate) judge: Judge,
    /// The validity that is requested.
    pub(crate) valid_for: Duration,
}

impl Checks {
    /// Reads the garden's answer. Blocks while the kubeconfig is parsed.
    ///
    /// `renew_after` returns the time after which a kubeconfig with this validity is renewed.
    ///
    /// # Errors
    /// If the kubeconfig can't be used. The text contains nothing of it.
    pub(crate) fn read(
        &self,
        body: &[u8],
        place: Fingerprint,
        now: (SystemTime, Instant),
        renew_after: impl FnOnce(Duration) -> Duration,
    ) -> Result<UsableKubeconfig, Failure> {
        let answer: Answer<'_> = parse(body)?;
        let (clock, now) = now;
        // If the clock of this process is behind, the validity must not appear longer than it is.
        let expires = parse_rfc3339(&answer.status.expiration_timestamp)
            .ok_or_else(|| Failure::unusable("its expirationTimestamp is not an RFC 3339 time"))?;
        let life = expires
            .duration_since(clock)
            .map_err(|_| {
                Failure::unusable(
                    "it has expired already; compare the clocks of this process and of the garden",
                )
            })?
            .min(self.valid_for);
        let renew_at = now + renew_after(life).max(Duration::from_secs(1));
        let yaml = STANDARD.decode(&*answer.status.kubeconfig);
        let yaml = yaml.map_err(|_| Failure::unusable("it is not base64"))?;
        self.checked(&yaml, place, now, life, renew_at)
    }

    /// Reads the Secret of a Shoot in a seed. Blocks while the kubeconfig is parsed.
    ///
    /// # Errors
    /// If the kubeconfig can't be used. The text contains nothing of it.
    pub(crate) fn read_secret(
        &self,
        body: &[u8],
        place: Fingerprint,
        now: (SystemTime, Instant),
    ) -> Result<UsableKubeconfig, Failure> {
        let mut secret: SecretContent = parse(body)?;
        let yaml = secret
            .take("kubeconfig")
            .map_err(|problem| Failure::unusable(problem.why))?;
        let annotations = secret.metadata.annotations.unwrap_or_default();
        let renews = annotations
            .get(RENEW_ANNOTATION)
            .and_then(|text| parse_rfc3339(text));
        let (clock, now) = now;
        let renews_in = renews.map(|renews| renews.duration_since(clock).ok());
        let renew_at = renews_in.map_or(now + FOREVER, |renews_in| now + read_again_after(renews_in));
        self.checked(&yaml, place, now, FOREVER, renew_at)
    }

    /// Checks a kubeconfig.
    fn checked(
        &self,
        yaml: &[u8],
        place: Fingerprint,
        now: Instant,
        life: Duration,
        renew_at: Instant,
    ) -> Result<UsableKubeconfig, Failure> {
        let access = self
            .judge
            .parse(yaml, None)
            .map_err(|problem| Failure::unusable(problem.text))?;
        let endpoint = &access.endpoint;
        if endpoint.server.scheme_str() != Some("https") {
            return Err(Failure::unusable(
                "its server is not https, so its credential would travel unencrypted",
            ));
        }
        Ok(UsableKubeconfig {
            fingerprint: Fingerprint::of(&yaml),
            target: Fingerprint::of(&(endpoint.server.to_string(), &endpoint.certificate_authority)),
            access,
            place,
            life,
            ends: now + life,
            renew_at,
        })
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        let why = describe_json_error(&error);
        Failure::unusable(format!("the answer can't be read: {why}"))
    })
}
