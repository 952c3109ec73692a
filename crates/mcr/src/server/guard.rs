//! Decides who is served.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use mcr_core::Fingerprint;

use super::{
    access::{Kind, ServerAccess},
    answer::error,
    reviews::{Reviews, Undecided, Verdict, without_credentials},
    seldom::Seldom,
};
use crate::error::ServeError;

/// The largest file of tokens.
const TOKEN_FILE: u64 = 64 << 10;

/// A guard that runs.
pub(super) enum Guard {
    Open,
    Hub(Box<Reviews>),
    TokenFile(PathBuf, Seldom),
    ClientCertificates,
}

/// What a guard decides by.
pub(super) struct Caller<'a> {
    pub(super) verb: &'a str,
    pub(super) path: &'a str,
    pub(super) headers: &'a HeaderMap,
    /// Whether the connection has a client certificate that was verified.
    pub(super) is_verified: bool,
    /// Whether that may have been by an authority that is trusted no more.
    pub(super) trusts_old_authorities: bool,
}

impl Guard {
    pub(super) async fn new(access: Option<ServerAccess>) -> Result<Self, ServeError> {
        Ok(match access.map(|access| access.0) {
            // For this machine only: `ServerOptions::check`.
            None | Some(Kind::Open) => Self::Open,
            Some(Kind::Hub { client, cache_ttl }) => {
                let made = client().await;
                let (client, _) = made.map_err(|source| ServeError::HubClient {
                    source: without_credentials(source),
                })?;
                Self::Hub(Box::new(Reviews::new(client, cache_ttl)))
            }
            Some(Kind::TokenFile(path)) => {
                let tokens = tokens(&path);
                let problem = match tokens {
                    Ok(tokens) if !tokens.is_empty() => {
                        return Ok(Self::TokenFile(path, Seldom::default()));
                    }
                    Ok(_) => "holds no token".to_owned(),
                    Err(problem) => problem,
                };
                return Err(ServeError::File { path, problem });
            }
            Some(Kind::ClientCertificates(_)) => Self::ClientCertificates,
        })
    }

    /// The response to a caller who is not served.
    pub(super) async fn refusal(&self, caller: &Caller<'_>) -> Option<Response> {
        match self {
            Self::Open => None,
            Self::ClientCertificates if caller.trusts_old_authorities => Some(undecided()),
            Self::ClientCertificates => {
                let message = "show a client certificate of the authority that this server trusts";
                (!caller.is_verified).then(|| error(StatusCode::UNAUTHORIZED, message))
            }
            Self::Hub(reviews) => {
                let Some(token) = bearer(caller.headers) else {
                    return Some(unauthorized());
                };
                match reviews.verdict(token, caller.verb, caller.path).await {
                    Ok(Verdict::Allowed) => None,
                    Ok(Verdict::Unauthenticated) => Some(unauthorized()),
                    Ok(Verdict::Forbidden) => Some(error(
                        StatusCode::FORBIDDEN,
                        &format!(
                            "the user of this token may not {} this path; grant it by a ClusterRole with nonResourceURLs",
                            caller.verb
                        ),
                    )),
                    Err(Undecided) => Some(undecided()),
                }
            }
            Self::TokenFile(path, warnings) => {
                let Some(token) = bearer(caller.headers) else {
                    return Some(unauthorized());
                };
                let (file, token) = (path.clone(), Fingerprint::of(&token));
                let read = tokio::task::spawn_blocking(move || tokens(&file)).await;
                match read.unwrap_or_else(|_| Err("can't be read".to_owned())) {
                    Ok(tokens) if tokens.contains(&token) => None,
                    Ok(_) => Some(unauthorized()),
                    Err(problem) => {
                        if warnings.is_due() {
                            tracing::warn!(path = %path.display(), problem, "the file of tokens can't be used, so requests are refused");
                        }
                        Some(undecided())
                    }
                }
            }
        }
    }
}

fn unauthorized() -> Response {
    let mut response = error(
        StatusCode::UNAUTHORIZED,
        "send a token that is valid, in the header Authorization: Bearer TOKEN",
    );
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

fn undecided() -> Response {
    let message = "it can't be checked who may read this; the log of the program has the reason";
    error(StatusCode::SERVICE_UNAVAILABLE, message)
}

/// The token of a request that has one, and only one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The fingerprints of the tokens in a file. A comparison of tokens themselves would take longer the more of them is right.
///
/// # Errors
/// The problem, without any text of the file. A comment must not become a token that others know.
fn tokens(path: &Path) -> Result<Vec<Fingerprint>, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(TOKEN_FILE + 1).read_to_string(&mut text));
    match read {
        Ok(read) if read as u64 > TOKEN_FILE => return Err("is larger than 64 KiB".to_owned()),
        Ok(_) => {}
        Err(error) => return Err(format!("can't be read as text: {error}")),
    }
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| {
            if line.starts_with('#') || line.contains(char::is_whitespace) {
                let number = index + 1;
                return Err(format!(
                    "has no token on line {number}: a token has no spaces and no # at its beginning"
                ));
            }
            Ok(Fingerprint::of(&line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_bearer_token_or_none() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(of(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(of(&["bEARER  abc "]).as_deref(), Some("abc"));
        for none in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Basic abc"],
            &["abc"],
            &["Bearer abc", "Bearer abc"],
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
