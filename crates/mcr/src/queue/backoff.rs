//! The delays of a key after failures, and the random numbers for their jitter.

use std::time::Duration;

/// The delay of a key after failures: exponential, capped and jittered.
///
/// After `n` failures in a row the nominal delay is `base * 2^(n-1)`, at most `cap`. The actual delay is uniform in
/// `(1 - jitter) * nominal ..= nominal`, so that keys that failed together (their cluster was unreachable) do not run again
/// at the same time.
///
/// ```
/// use mcr::queue::Backoff;
/// use std::time::Duration;
///
/// let backoff = Backoff::default();
/// assert_eq!(backoff.nominal(1), Duration::from_millis(5));
/// assert_eq!(backoff.nominal(4), Duration::from_millis(40));
/// assert_eq!(backoff.nominal(60), Duration::from_secs(1000));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure. Default 5 ms, as in client-go.
    pub base: Duration,
    /// The longest delay. Default 1000 s, as in client-go.
    pub cap: Duration,
    /// The random share of the delay, 0.0 to 1.0 (values outside are clamped). Default 0.2.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(5),
            cap: Duration::from_secs(1000),
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// The delay after `failures` failures in a row, before jitter. Zero failures: no delay.
    pub fn nominal(&self, failures: u32) -> Duration {
        let Some(doublings) = failures.checked_sub(1) else {
            return Duration::ZERO;
        };
        match 1u32.checked_shl(doublings) {
            Some(factor) => self
                .base
                .checked_mul(factor)
                .map_or(self.cap, |delay| delay.min(self.cap)),
            None if self.base.is_zero() => Duration::ZERO,
            // After 32 doublings, only a base of nanoseconds could still be below the cap.
            None => self.cap,
        }
    }

    pub(super) fn delay(&self, failures: u32, rng: &mut Rng) -> Duration {
        let jitter = if self.jitter.is_finite() {
            self.jitter.clamp(0.0, 1.0)
        } else {
            0.0
        };
        self.nominal(failures).mul_f64(1.0 - jitter * rng.unit())
    }
}

/// SplitMix64. It has eight bytes of state, and gives the same numbers for the same seed on every platform and release.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0.0..1.0`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_cap_whatever_the_jitter_is() {
        let mut backoff = Backoff::default();
        let ms: Vec<_> = (0..=19).map(|n| backoff.nominal(n).as_millis()).collect();
        assert_eq!(ms[..6], [0, 5, 10, 20, 40, 80]);
        assert_eq!(ms[18..], [655_360, 1_000_000]);
        for failures in [20, 32, 33, 34, u32::MAX] {
            assert_eq!(backoff.nominal(failures), Duration::from_secs(1000), "{failures}");
        }
        for jitter in [f64::NAN, f64::INFINITY, -3.0, 12.0] {
            backoff.jitter = jitter;
            assert!(backoff.delay(5, &mut Rng::new(1)) <= Duration::from_millis(80));
        }
    }
}
