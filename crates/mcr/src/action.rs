//! The result of a successful reconcile.

use std::time::Duration;

use kube::runtime::controller::Action as KubeAction;

/// The next step after a successful reconcile: none, or another reconcile after a time.
///
/// In both cases, the next change of the object, or of an object that is mapped to it, leads to another reconcile.
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
    /// No further reconcile until the next change.
    pub const fn done() -> Self {
        Self { requeue_after: None }
    }

    /// The same as [`done`](Self::done), under the name that kube uses.
    pub const fn await_change() -> Self {
        Self::done()
    }

    /// Another reconcile after this time, even without a change. Longer times than a year are shortened to a year.
    ///
    /// For an object that is deleted or absent, it has the effect of [`done`](Self::done), so a reconciler may return it
    /// every time. To retry a clean-up after a deletion, return an error.
    pub const fn requeue(after: Duration) -> Self {
        Self {
            requeue_after: Some(after),
        }
    }

    /// The time until the next reconcile; `None` for [`done`](Self::done).
    pub const fn requeue_after(&self) -> Option<Duration> {
        self.requeue_after
    }
}

/// The types that a successful reconciler may return: `()`, [`Action`], and the `Action` of kube.
pub trait IntoAction {
    /// Converts the value into an [`Action`].
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

/// The requeue time if the `Debug` form of an `Action` of kube can't be parsed.
const UNREADABLE: Duration = Duration::from_secs(60);

/// Reads the `Action` of kube from its `Debug` form, because it has no getter. The `Debug` form of a duration is lossless.
/// `tests::kubes_action_reads_the_same` fails if a release of kube changes the form.
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
        tracing::error!(%text, "the Action of kube can't be read, so the request is requeued after 60 s; use the version of kube that mcr re-exports");
    }
    Action::requeue(duration.unwrap_or(UNREADABLE))
}

/// Parses the `Debug` form of a `Duration`.
fn parse_duration(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let digits = match text.strip_prefix(number)? {
        "ns" => 0,
        "µs" => 3,
        "ms" => 6,
        "s" => 9,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let nanos: u128 = format!("{whole}{fraction:0<digits$}").parse().ok()?;
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Some(Duration::new(seconds.try_into().ok()?, nanos.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn kubes_action_reads_the_same(secs in any::<u64>(), nanos in 0u32..1_000_000_000, small in 0u64..5_000_000_000) {
            prop_assert_eq!(KubeAction::await_change().into_action(), Action::done());
            for wait in [Duration::new(secs, nanos), Duration::from_nanos(small), Duration::ZERO, Duration::MAX] {
                prop_assert_eq!(KubeAction::requeue(wait).into_action(), Action::requeue(wait));
            }
        }
    }
}
