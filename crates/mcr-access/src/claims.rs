//! Reads the claims of a token. Does not verify the token: never grant anything because of a claim.

use std::time::{Duration, SystemTime};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;

/// The useful claims of a token, without the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// The time at which the token expires: the claim `exp`.
    pub expires: Option<SystemTime>,
    /// Namespace and name of the ServiceAccount.
    pub account: Option<(String, String)>,
}

/// The claims of a token. `None` if it is no JSON Web Token.
pub fn of(token: &str) -> Option<Claims> {
    #[derive(Deserialize)]
    struct Payload {
        exp: Option<u64>,
        sub: Option<String>,
    }
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let payload: Payload = serde_json::from_slice(&payload).ok()?;
    let account = payload.sub.as_deref().and_then(|sub| {
        let (namespace, name) = sub.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        Some((namespace.to_owned(), name.to_owned()))
    });
    Some(Claims {
        expires: payload
            .exp
            .and_then(|at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at))),
        account,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload))
    }

    #[test]
    fn expiry_and_account_are_read_and_other_tokens_are_left_alone() {
        let claims = of(&token(
            r#"{"exp": 60, "sub": "system:serviceaccount:fleet:robot"}"#,
        ))
        .unwrap();
        assert_eq!(
            claims.expires,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60))
        );
        assert_eq!(claims.account, Some(("fleet".into(), "robot".into())));
        assert_eq!(of(&token(r#"{"sub": "anna"}"#)).unwrap().account, None);
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
