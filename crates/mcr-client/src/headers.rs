//! Request headers that carry a credential.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header::AUTHORIZATION};
use mcr_access::{AccessError, Credential, Impersonation};
use secrecy::ExposeSecret;

pub(crate) type Header = (HeaderName, HeaderValue);

/// The headers that carry a credential.
///
/// # Errors
///
/// Names the field of the credential that does not fit into a header.
pub(crate) fn headers(credential: &Credential) -> Result<Vec<Header>, AccessError> {
    let mut headers = Vec::new();
    let secret = |field: &str, value: String| {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            AccessError::invalid(
                field,
                "holds characters that don't fit into a header; copy it again",
            )
        })?;
        value.set_sensitive(true);
        Ok(value)
    };
    if let Some(token) = &credential.token {
        let token = format!("Bearer {}", token.expose_secret().trim());
        headers.push((AUTHORIZATION, secret("token", token)?));
    } else if let Some(basic) = &credential.basic {
        let value = basic_auth(&basic.username, basic.password.expose_secret());
        headers.push((AUTHORIZATION, secret("username", value)?));
    }
    if let Some(impersonation) = &credential.impersonate {
        impersonate(&mut headers, impersonation)?;
    }
    Ok(headers)
}

/// The value of an `Authorization` header for HTTP basic authentication (RFC 7617).
pub(crate) fn basic_auth(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

fn impersonate(headers: &mut Vec<Header>, impersonation: &Impersonation) -> Result<(), AccessError> {
    let unfit = || {
        AccessError::invalid(
            "as",
            "or one of its groups or extras holds characters that don't fit into a header; correct it",
        )
    };
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| unfit());
    headers.push((
        HeaderName::from_static("impersonate-user"),
        value(&impersonation.user)?,
    ));
    if let Some(uid) = &impersonation.uid {
        headers.push((HeaderName::from_static("impersonate-uid"), value(uid)?));
    }
    for group in &impersonation.groups {
        headers.push((HeaderName::from_static("impersonate-group"), value(group)?));
    }
    for (key, values) in &impersonation.extra {
        let name = HeaderName::try_from(format!("impersonate-extra-{}", percent_encoded(key)))
            .map_err(|_| unfit())?;
        for text in values {
            headers.push((name.clone(), value(text)?));
        }
    }
    Ok(())
}

/// Encodes a key for the name of an `Impersonate-Extra-` header, which the API server decodes. Upper case is encoded, too,
/// because header names are case-insensitive.
fn percent_encoded(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}
