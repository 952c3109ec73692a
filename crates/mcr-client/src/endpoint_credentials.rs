//! The credentials of an endpoint: fetching them from their source, and making channels with them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_access::{Credential, EndpointAccess, Refresh};
use tokio::time::{Instant, timeout_at};

use crate::{
    backoff::{Backoff, jitter},
    channel::Channel,
    connect_error::ConnectError,
    dialer::Dialer,
    explain::explain,
    user_code::{CREDENTIAL_SOURCE, CatchPanic, catch_panic},
};

/// An endpoint and the source of its credentials: enough to connect again with a new credential.
pub struct EndpointCredentials {
    access: EndpointAccess,
    prefix: Arc<str>,
}

/// A credential that a source has issued.
pub struct IssuedCredential {
    /// The credential.
    pub credential: Credential,
    /// The interval at which the source wants to be asked again, even if nothing expires.
    pub every: Option<Duration>,
}

impl EndpointCredentials {
    /// The endpoint and the credential source of an access that a policy has admitted. `prefix` precedes all request paths.
    pub fn new(access: EndpointAccess, prefix: &str) -> Self {
        let prefix = prefix.into();
        Self { access, prefix }
    }

    /// Makes a channel to the endpoint, which uses this credential.
    ///
    /// # Errors
    ///
    /// If a field of the endpoint or of the credential is not usable.
    pub fn channel(&self, dialer: &Dialer, credential: &Credential) -> Result<Channel, ConnectError> {
        dialer
            .channel(&self.access.endpoint, credential, self.access.trust)
            .map(|channel| channel.with_prefix(&self.prefix))
            .map_err(|error| ConnectError::new(explain(&error)))
    }

    /// Fetches a credential from the source.
    ///
    /// # Errors
    ///
    /// If the source fails or panics, or takes longer than `limit`. If its work has to wait for its turn, it has as long from
    /// then on.
    pub async fn fetch(&self, why: Refresh, limit: Duration) -> Result<IssuedCredential, ConnectError> {
        let source = &*self.access.credentials;
        let issued = async {
            let credential = source.credential(why).await.map_err(|error| explain(&error))?;
            let every = source.renew_every();
            Ok::<_, String>(IssuedCredential { credential, every })
        };
        let mut fetch = CatchPanic::new(CREDENTIAL_SOURCE, Box::pin(issued));
        let mut end = Instant::now() + limit;
        loop {
            if let Ok(fetched) = timeout_at(end, &mut fetch).await {
                return fetched
                    .map_err(|panicked| ConnectError::no_credential(panicked.to_string()))?
                    .map_err(ConnectError::no_credential);
            }
            let began = catch_panic(CREDENTIAL_SOURCE, || source.work_began())
                .ok()
                .flatten();
            match began.map(|began| began + limit) {
                Some(later) if later > end => end = later,
                _ => {
                    return Err(ConnectError::no_credential(format!(
                        "no credential within {} s",
                        limit.as_secs()
                    )));
                }
            }
        }
    }
}

/// The longest wait for a renewal. Timers can't hold a credential that never expires.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl IssuedCredential {
    /// Whether the credential had expired when it came. A server with another clock may still accept it.
    pub fn had_expired(&self) -> bool {
        self.credential
            .expires_at
            .is_some_and(|expires| expires <= SystemTime::now())
    }

    /// When to fetch the next credential: some time before this one expires, and at the interval of its source. If it has
    /// expired already, the next one will hardly be better, so that counts as a failure, with a growing pause.
    pub fn refresh_at(&self, failed: &mut Backoff) -> Option<Instant> {
        if self.had_expired() {
            return Some(Instant::now() + failed.pause());
        }
        let before_expiry = self.credential.expires_at.map(|expires| {
            let left = expires.duration_since(SystemTime::now()).unwrap_or_default();
            // After four fifths of the remaining life, but at most five minutes before the end. Spread, so that clusters that
            // joined together don't renew together.
            let margin = (left / 5).min(Duration::from_secs(300));
            let spread = jitter(margin / 4);
            left.saturating_sub(margin)
                .saturating_sub(spread)
                .clamp(Duration::from_secs(1), LONGEST)
        });
        let wait = match (before_expiry, self.every) {
            (Some(expiry), Some(every)) => expiry.min(every),
            (expiry, every) => expiry.or(every)?,
        };
        Some(Instant::now() + wait)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use mcr_access::{CredentialError, CredentialSource, Endpoint, Fingerprint};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_expired_is_fetched_again_with_growing_pauses_and_what_never_expires_has_a_timer() {
        let mut backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
        let now = Instant::now();
        let mut wait = |expires: u64| {
            let expires = SystemTime::UNIX_EPOCH + Duration::from_secs(expires);
            let credential = Credential::token("t").expires_at(expires);
            let issued = IssuedCredential {
                credential,
                every: None,
            };
            issued.refresh_at(&mut backoff).unwrap() - now
        };
        for failures in 0..10_u32 {
            let full = Duration::from_secs(60.min(2 << failures));
            let wait = wait(0);
            assert!(wait >= full / 2 && wait <= full, "{failures}: {wait:?}");
        }
        assert_eq!(wait(253_402_300_799), LONGEST);
    }

    /// Waits for its turn, and then works for a while.
    struct Queued(Instant, Duration);

    impl CredentialSource for Queued {
        fn fingerprint(&self) -> Fingerprint {
            Fingerprint::of(&"queued")
        }
        fn credential(&self, _: Refresh) -> BoxFuture<'_, Result<Credential, CredentialError>> {
            let work = tokio::time::sleep_until(self.0 + self.1);
            Box::pin(async {
                work.await;
                Ok(Credential::anonymous())
            })
        }
        fn work_began(&self) -> Option<Instant> {
            (Instant::now() >= self.0).then_some(self.0)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_counts_from_the_beginning_of_the_work() {
        for (turn, works, fetched, after) in [
            (0, 30, true, 30),
            (0, 99, false, 35),
            (30, 30, true, 60),
            (30, 99, false, 65),
            (40, 1, false, 35),
        ] {
            let start = Instant::now();
            let source = Queued(start + Duration::from_secs(turn), Duration::from_secs(works));
            let endpoint = Endpoint::new(http::Uri::from_static("https://h"));
            let fetch = EndpointCredentials::new(EndpointAccess::new(endpoint, source), "");
            let result = fetch.fetch(Refresh::First, Duration::from_secs(35)).await;
            assert_eq!(
                (
                    result.map_err(|error| error.no_credential).map(drop),
                    start.elapsed().as_secs()
                ),
                (fetched.then_some(()).ok_or(true), after),
                "{turn}"
            );
        }
    }
}
