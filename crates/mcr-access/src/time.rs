//! The form of times in JSON.

use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, civil, fmt::temporal::Pieces};
use serde::Serializer;

/// The time 0, on the calendar. Unlike `jiff::Timestamp`, the calendar has all of the year 9999.
const EPOCH: civil::DateTime = civil::datetime(1970, 1, 1, 0, 0, 0, 0);

/// Reads a time of RFC 3339, up to the end of the year 9999 and with any number of digits after the seconds. Digits after
/// the ninth are cut off.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let nine = text.split_once('.').map(|(seconds, fraction)| {
        let (digits, offset) = fraction.split_at(digits(fraction));
        format!("{seconds}.{digits:.9}{offset}")
    });
    let pieces = Pieces::parse(nine.as_deref().unwrap_or(text)).ok()?;
    let offset = SignedDuration::from_secs(pieces.to_numeric_offset()?.seconds().into());
    let since = pieces.date().to_datetime(pieces.time()?).duration_since(EPOCH) - offset;
    match Duration::try_from(since) {
        Ok(after) => SystemTime::UNIX_EPOCH.checked_add(after),
        Err(_) => SystemTime::UNIX_EPOCH.checked_sub(since.unsigned_abs()),
    }
}

/// A time as RFC 3339 in UTC, with milliseconds. `unknown` for a time that RFC 3339 can't express.
fn text(time: &SystemTime) -> String {
    let since = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => SignedDuration::try_from(after),
        Err(before) => SignedDuration::try_from(before.duration()).map(|before| -before),
    };
    let date = since.ok().and_then(|since| EPOCH.checked_add(since).ok());
    date.map_or_else(|| "unknown".to_owned(), |date| format!("{date:.3}Z"))
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
    fn times_of_rfc3339_are_read_and_written() {
        // Written with milliseconds.
        for (read, written) in [
            ("1970-01-01T00:00:01.5Z", "1970-01-01T00:00:01.500Z"),
            ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999Z"),
            (
                "2026-01-01T00:00:00.123456789012345678901234567890Z",
                "2026-01-01T00:00:00.123Z",
            ),
            ("2026-01-01T00:00:00+01:30", "2025-12-31T22:30:00.000Z"),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59.000Z"),
            ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(
                parse_rfc3339(read).map(|time| text(&time)).as_deref(),
                Some(written),
                "{read}"
            );
        }
        for wrong in [
            "",
            "Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-02-30T00:00:00Z",
            "é.é",
        ] {
            assert_eq!(parse_rfc3339(wrong), None, "{wrong}");
        }
    }
}
