//! The form of times in JSON.

use std::time::SystemTime;

use serde::Serializer;

/// A time as RFC 3339 in UTC, with milliseconds. `unknown` for a time that RFC 3339 can't express.
fn text(time: &SystemTime) -> String {
    jiff::Timestamp::try_from(*time).map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

/// Serialises a time as RFC 3339, for `serialize_with`.
pub fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(time))
}

/// Serialises a time as RFC 3339 or as null, for `serialize_with`.
pub fn rfc3339_option<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&text(time)),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_rfc3339() {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_500);
        assert_eq!(text(&time), "1970-01-01T00:00:01.500Z");
    }
}
