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

/// The life of a kubeconfig in a seed, which does not say how long it is valid.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
/// So long after the time that Gardener has set for a new token, it should be there.
const LATE: Duration = Duration::from_secs(300);
/// How often a kubeconfig in a seed is read again if Gardener does not renew it in time.
const AGAIN: Duration = Duration::from_secs(3600);

/// When to look whether Gardener has renewed a kubeconfig in a seed, although its watch has told nothing.
///
/// `renews_in`: when Gardener wants to renew it. None: it should have done so already.
pub(crate) fn look_after(renews_in: Option<Duration>) -> Duration {
    renews_in.map_or(AGAIN, |renews_in| renews_in.saturating_add(LATE).min(FOREVER))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[test]
    fn a_kubeconfig_of_an_hour_is_renewed_in_its_last_third() {
        assert_eq!(renew_after(minutes(60), 0.0), minutes(54));
        assert_eq!(renew_after(minutes(60), 1.0), Duration::from_secs(2592));
    }

    #[test]
    fn a_short_kubeconfig_is_renewed_in_the_middle_of_its_life() {
        assert_eq!(renew_after(minutes(8), 0.0), minutes(4));
        assert_eq!(renew_after(minutes(10), 0.0), minutes(5));
    }

    #[test]
    fn a_kubeconfig_of_a_seed_is_read_again_once_gardener_should_have_renewed_it() {
        assert_eq!(look_after(Some(minutes(60))), minutes(65));
        assert_eq!(look_after(None), minutes(60));
        assert_eq!(look_after(Some(Duration::MAX)), FOREVER);
    }

    proptest! {
        #[test]
        fn a_renewal_leaves_time_to_try_again(seconds in 0_u64..10_000_000, chance in 0.0..=1.0) {
            let life = Duration::from_secs(seconds);
            let after = renew_after(life, chance);
            let left = life - after;
            prop_assert!(left >= (life / 2).min(RESERVE), "{left:?} of {life:?}");
            prop_assert!(after >= life.mul_f64(0.39), "{after:?} of {life:?}: too many requests");
        }
    }
}
