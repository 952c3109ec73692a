//! Reads when a token says that it expires. The token is not verified, so whoever writes it chooses what it says: a claim decides when to
//! renew and what a text says, and nothing else. No other claim is read.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

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
        exp: Option<u64>,
    }
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let payload: Payload = serde_json::from_slice(&payload).ok()?;
    Some(Claims {
        expires: payload
            .exp
            .and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at))),
    })
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
        assert!(
            of(&token(&format!(r#"{{"exp": {}}}"#, u64::MAX)))
                .unwrap()
                .expires
                .is_none()
        );
        for other in ["", "opaque", "a.b.c", "a.b", "e30.e30.x.y"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
