//! What a reconciler asks for when it succeeded.

use std::time::Duration;

use kube::runtime::controller::Action as KubeAction;

/// What is to happen after a reconcile that succeeded.
///
/// Whatever it says, the next change of the object (or of what is mapped to it) leads to another reconcile.
///
/// ```
/// use mcr::Action;
/// use std::time::Duration;
///
/// assert_eq!(Action::done().requeue_after(), None);
/// assert_eq!(Action::requeue(Duration::from_secs(60)).requeue_after(), Some(Duration::from_secs(60)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Action {
    requeue_after: Option<Duration>,
}

impl Action {
    /// Nothing more is to be done until something changes.
    pub const fn done() -> Self {
        Self { requeue_after: None }
    }

    /// As [`done`](Self::done), under the name it has in kube.
    pub const fn await_change() -> Self {
        Self::done()
    }

    /// Reconcile again after this time even if nothing changes. Delays are kept up to a year.
    ///
    /// Only for objects that exist: for one that is deleted or absent it means [`done`](Self::done), so that ending
    /// every reconcile this way is fine. A clean-up after a deletion that has to be tried again returns an error.
    pub const fn requeue(after: Duration) -> Self {
        Self {
            requeue_after: Some(after),
        }
    }

    /// After which time to reconcile again.
    pub const fn requeue_after(&self) -> Option<Duration> {
        self.requeue_after
    }
}

/// What a reconciler may return when it succeeded: nothing, an [`Action`], or kube's.
pub trait IntoAction {
    /// Turns it into an [`Action`].
    fn into_action(self) -> Action;
}

impl IntoAction for Action {
    fn into_action(self) -> Action {
        self
    }
}

impl IntoAction for () {
    fn into_action(self) -> Action {
        Action::done()
    }
}

impl IntoAction for KubeAction {
    fn into_action(self) -> Action {
        from_kube(&self)
    }
}

/// If kube ever changes how its `Action` looks, requests are asked for again after this long: late beats never.
const UNREADABLE: Duration = Duration::from_secs(60);

/// The one place where kube's `Action`, which has no getter, is read: through its `Debug` form, whose durations
/// are lossless. `tests::kubes_action_reads_the_same` pins it to kube's release.
fn from_kube(action: &KubeAction) -> Action {
    if *action == KubeAction::await_change() {
        return Action::done();
    }
    let text = format!("{action:?}");
    let duration = text
        .strip_prefix("Action { requeue_after: Some(")
        .and_then(|rest| rest.strip_suffix(") }"))
        .and_then(parse_duration);
    if duration.is_none() {
        tracing::error!(%text, "kube's Action can't be read any more; this version of mcr does not fit this version of kube");
    }
    Action::requeue(duration.unwrap_or(UNREADABLE))
}

/// Reads what `Duration`'s `Debug` writes.
fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit_nanos) = if let Some(number) = text.strip_suffix("ns") {
        (number, 1)
    } else if let Some(number) = text.strip_suffix("µs") {
        (number, 1_000)
    } else if let Some(number) = text.strip_suffix("ms") {
        (number, 1_000_000)
    } else {
        (text.strip_suffix('s')?, 1_000_000_000u64)
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().ok()?;
    let mut nanos = 0;
    let mut digit_nanos = unit_nanos;
    for digit in fraction.chars() {
        digit_nanos /= 10;
        nanos += u64::from(digit.to_digit(10)?) * digit_nanos;
    }
    let unit = Duration::from_nanos(unit_nanos);
    let whole = if unit_nanos == 1_000_000_000 {
        Duration::from_secs(whole)
    } else {
        unit.checked_mul(u32::try_from(whole).ok()?)?
    };
    whole.checked_add(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn kubes_action_reads_the_same() {
        assert_eq!(KubeAction::await_change().into_action(), Action::done());
        for wait in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_micros(1500),
            Duration::from_millis(10),
            Duration::from_secs(300),
            Duration::new(86_400, 1),
            Duration::MAX,
        ] {
            assert_eq!(
                KubeAction::requeue(wait).into_action(),
                Action::requeue(wait),
                "{wait:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_duration_survives(secs in any::<u64>(), nanos in 0u32..1_000_000_000, small in 0u64..5_000_000_000) {
            for wait in [Duration::new(secs, nanos), Duration::from_nanos(small)] {
                prop_assert_eq!(KubeAction::requeue(wait).into_action(), Action::requeue(wait));
            }
        }
    }
}
