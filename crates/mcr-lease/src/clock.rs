//! The clock of a candidate. It is monotonic, and also counts the time during which the machine is suspended.

use std::time::Duration;

/// The time since a fixed point in the past.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// The time since a fixed point in the past. Whether it counts suspends depends on `Instant` on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn now() -> Duration {
    use std::{sync::OnceLock, time::Instant};

    static START: OnceLock<Instant> = OnceLock::new();
    // The clock starts at one second, because zero means that there is no deadline.
    START.get_or_init(Instant::now).elapsed() + Duration::from_secs(1)
}

/// Sleeps until `until` on this clock. The timers of tokio do not count suspends, so the sleep may end late after a
/// suspend.
pub(crate) async fn sleep_until(until: Duration) {
    while let Some(left) = until.checked_sub(now()).filter(|left| !left.is_zero()) {
        // Timers of tokio have a resolution of 1 ms and are never early.
        tokio::time::sleep(left).await;
    }
}
