//! Reads when a token says that it expires. The token is not verified, so whoever writes it chooses what it says: a claim decides when to
//! renew and what a text says, and nothing else. No other claim is read.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::Value;

/// The useful claims of a token, without the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The time at which the token expires: the claim `exp`.
    pub expires: Option<SystemTime>,
}

/// The claims of a token. `None` if it is no JSON Web Token.
pub fn of(token: &str) -> Option<Claims> {
    #[derive(Deserialize)]
    struct Payload {
        #[serde(default)]
        exp: Value,
    }
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let payload: Payload = serde_json::from_slice(&payload).ok()?;
    Some(Claims {
        expires: numeric_date(&payload.exp),
    })
}

/// Reads a NumericDate of RFC 7519: seconds since 1970, also as a fraction or with an exponent.
fn numeric_date(date: &Value) -> Option<SystemTime> {
    match (date.as_u64(), date.as_f64()?) {
        (Some(whole), _) => SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(whole)),
        (None, before) if before < 0.0 => {
            SystemTime::UNIX_EPOCH.checked_sub(Duration::try_from_secs_f64(-before).ok()?)
        }
        (None, after) => SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(after).ok()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload))
    }

    #[test]
    fn the_expiry_is_read_and_other_tokens_are_left_alone() {
        let claims = of(&token(
            r#"{"exp": 60, "sub": "system:serviceaccount:fleet:robot"}"#,
        ))
        .unwrap();
        assert_eq!(
            claims.expires,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60))
        );
        let at = |millis| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        for (exp, expires) in [
            ("60.5", at(60_500)),
            ("1.784e9", at(1_784_000_000_000)),
            ("1784000000.0", at(1_784_000_000_000)),
            ("0", at(0)),
            ("-1", Some(SystemTime::UNIX_EPOCH - Duration::from_secs(1))),
            ("253402300799", at(253_402_300_799_000)),
            ("18446744073709551615", None),
            ("1e300", None),
            ("-1e300", None),
            ("null", None),
            (r#""60""#, None),
        ] {
            let claims = of(&token(&format!(r#"{{"exp": {exp}}}"#))).unwrap();
            assert_eq!(claims.expires, expires, "{exp}");
        }
        for other in ["", "opaque", "a.b.c", "a.b", "e30.e30.x.y"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
