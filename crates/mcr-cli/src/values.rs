//! Parses and checks values of flags.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// A time span as kubectl accepts it: `15s`, `10m`, `1h30m`, `8760h`; also `30d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let span = text
        .parse::<Span>()
        .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let span = span
        .and_then(Duration::try_from)
        .ok()
        .filter(|span| !span.is_zero());
    span.ok_or_else(|| format!("{text:?} is not a time span; write for example 30s, 10m or 8760h"))
}

/// `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} has to be KEY=VALUE")),
    }
}

/// A time span in the short form of kubectl: `45s`, `12m`, `3h`, `6d`.
pub(crate) fn short(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A time span in words, rounded down: `45 seconds`, `1 hour`, `23 days`, `2 years`.
pub(crate) fn long(span: Duration) -> String {
    const DAY: u64 = 86_400;
    /// The average length in the Gregorian calendar, in seconds.
    const MONTH: u64 = 2_629_746;
    const YEAR: u64 = 12 * MONTH;
    let seconds = span.as_secs();
    let (unit, length) = match seconds {
        0..120 => ("second", 1),
        120..7200 => ("minute", 60),
        7200..172_800 => ("hour", 3600),
        _ if seconds < 120 * DAY => ("day", DAY),
        _ if seconds < 2 * YEAR => ("month", MONTH),
        _ => ("year", YEAR),
    };
    match seconds / length {
        1 => format!("1 {unit}"),
        count => format!("{count} {unit}s"),
    }
}

/// A time limit in seconds with at most one decimal: `10 s`, `1.7 s`.
pub(crate) fn seconds(limit: Duration) -> String {
    let text = format!("{:.1}", limit.as_secs_f64());
    format!("{} s", text.trim_end_matches(".0"))
}

/// Whether Kubernetes accepts this label: a name `[domain/]name`, and a value.
pub(crate) fn is_label(key: &str, value: &str) -> bool {
    let name = match key.split_once('/') {
        Some((domain, name)) if is_subdomain(domain) => name,
        Some(_) => return false,
        None => key,
    };
    is_word(name) && (value.is_empty() || is_word(value))
}

fn is_word(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    text.len() <= 63
        && end(bytes.first())
        && end(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Whether a text can be the name of most kinds of objects: at most 253 lower-case letters, digits, hyphens and dots.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_dns(part, 253))
}

/// Whether a text can be the name of a namespace: at most 63 lower-case letters, digits and hyphens.
pub(crate) fn is_dns_label(text: &str) -> bool {
    is_dns(text, 63)
}

fn is_dns(text: &str, most: usize) -> bool {
    let inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let bytes = text.as_bytes();
    !text.is_empty()
        && text.len() <= most
        && bytes.iter().all(inside)
        && bytes.first() != Some(&b'-')
        && bytes.last() != Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans_are_parsed_as_kubectl_parses_them() {
        assert_eq!(duration("8760h"), Ok(Duration::from_secs(8760 * 3600)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ",0s,10,h,1y,-5s,99999999999999999999h,18446744073709551615h".split(',') {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        let shown = [5, 119, 120, 7200, 172_800].map(|seconds| short(Duration::from_secs(seconds)));
        assert_eq!(shown, ["5s", "119s", "2m", "2h", "2d"]);
    }

    #[test]
    fn time_spans_are_reported_as_a_person_writes_them() {
        const DAY: u64 = 86_400;
        for (seconds, reported) in [
            (1, "1 second"),
            (45, "45 seconds"),
            (120, "2 minutes"),
            (7200, "2 hours"),
            (23 * DAY, "23 days"),
            (200 * DAY, "6 months"),
            (729 * DAY, "23 months"),
            (731 * DAY, "2 years"),
            (755_726 * DAY, "2069 years"),
        ] {
            assert_eq!(long(Duration::from_secs(seconds)), reported);
        }
        let limits =
            [100, 500, 5_000 / 3, 2_000, 10_000].map(|millis| seconds(Duration::from_millis(millis)));
        assert_eq!(limits, ["0.1 s", "0.5 s", "1.7 s", "2 s", "10 s"]);
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        assert!(is_subdomain("kind-a") && is_subdomain("eu-1.example.com"));
        for wrong in ["", "arn:aws:eks/x", "Kind", "-a", "a-", "a..b", "a_b"] {
            assert!(!is_subdomain(wrong), "{wrong}");
        }
        assert!(is_dns_label("default") && !is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
        assert!(is_label("region", "eu") && is_label("example.com/tier", ""));
        assert!(!is_label("/tier", "") && !is_label("a b", "") && !is_label("a", "b c"));
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }
}
