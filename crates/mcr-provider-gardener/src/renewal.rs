//! When a kubeconfig is asked for again. No I/O, no clock of its own.

use std::time::Duration;

/// A kubeconfig that lives less than this is renewed in the middle of its life.
const SHORT: Duration = Duration::from_secs(600);
/// So long before the end of its life, a kubeconfig is renewed at the latest, unless it is short.
const RESERVE: Duration = Duration::from_secs(300);

/// How long a kubeconfig is used before it is renewed.
///
/// `chance` is from 0 to 1. It spreads the renewals of kubeconfigs that were issued at the same moment over the last fifth of
/// the time.
pub(crate) fn renew_after(life: Duration, chance: f64) -> Duration {
    let latest = if life < SHORT {
        life / 2
    } else {
        (life - life / 10).min(life - RESERVE)
    };
    latest - (latest / 5).mul_f64(chance.clamp(0.0, 1.0))
}

/// The life of a kubeconfig in a seed, where nothing shows how long it is valid.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// So long after the time that Gardener has set for a new token, it should be there.
const LATE: Duration = Duration::from_secs(300);
/// How often a kubeconfig in a seed is read again if Gardener does not renew it in time.
const AGAIN: Duration = Duration::from_secs(3600);

/// When to read a kubeconfig in a seed again although its watch has reported nothing.
///
/// `renews_in`: when Gardener wants to renew it. None: it should have done so already.
pub(crate) fn look_after(renews_in: Option<Duration>) -> Duration {
    renews_in.map_or(AGAIN, |renews_in| renews_in.saturating_add(LATE).min(FOREVER))
}

#[cfg(test)]
mod tests;
