use std::time::Duration;

use jiff::Timestamp;

/// The current time in the format of Kubernetes, in seconds.
pub fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The current time in microseconds, as in the audit log.
pub fn now_precise() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The time since this moment.
pub fn since(time: &str) -> Option<Duration> {
    let time: Timestamp = time.parse().ok()?;
    Timestamp::now().duration_since(time).try_into().ok()
}
