use std::time::Duration;

use jiff::Timestamp;

/// The time as Kubernetes writes it: to the second.
pub fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// To the microsecond, as the audit log has it.
pub fn now_precise() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The time since then.
pub fn since(time: &str) -> Option<Duration> {
    let time: Timestamp = time.parse().ok()?;
    Timestamp::now().duration_since(time).try_into().ok()
}
