//! Decides when a kubeconfig is requested again. No I/O: the caller passes times.

use std::time::Duration;

/// A kubeconfig with a shorter validity is renewed in the middle of it.
const SHORT: Duration = Duration::from_secs(600);
/// Any other kubeconfig is renewed at least this long before it expires.
const RESERVE: Duration = Duration::from_secs(300);

/// After how long a kubeconfig is renewed.
///
/// `chance` is between 0 and 1. It spreads the renewals of kubeconfigs that were issued at the same moment over the
/// last fifth of the time.
pub(crate) fn renew_after(life: Duration, chance: f64) -> Duration {
    let latest = if life < SHORT {
        life / 2
    } else {
        (life - life / 10).min(life - RESERVE)
    };
    latest - (latest / 5).mul_f64(chance.clamp(0.0, 1.0))
}

/// The validity of a kubeconfig in a seed, where nothing shows it.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// A new token should be there this long after the time that Gardener has announced.
const LATE: Duration = Duration::from_secs(300);
/// How often a kubeconfig in a seed is read again if Gardener is late.
const AGAIN: Duration = Duration::from_secs(3600);

/// After how long to read a kubeconfig in a seed again, even if its watch has reported nothing.
///
/// `renews_in`: in how long Gardener will renew it. `None`: it should have done so already.
pub(crate) fn read_again_after(renews_in: Option<Duration>) -> Duration {
    renews_in.map_or(AGAIN, |renews_in| renews_in.saturating_add(LATE).min(FOREVER))
}

#[cfg(test)]
mod tests;
