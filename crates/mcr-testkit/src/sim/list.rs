use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::error::SimError;
use super::kinds::Kind;
use super::object::Object;
use super::query::{From, ListOptions};
use super::store::Store;

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) version: u64,
    pub(crate) objects: Vec<Arc<Object>>,
    pub(crate) token: Option<String>,
    pub(crate) remaining: Option<u64>,
}

/// Lists as Kubernetes 1.31 and later do, from an up-to-date cache. Returns the objects whose keys begin with
/// `prefix`; see [`prefix`](super::object::prefix).
pub(crate) fn list(
    store: &Store,
    kind: &Kind,
    prefix: &str,
    options: &ListOptions,
) -> Result<Page, SimError> {
    if let Some(token) = &options.token {
        return next_page(store, kind, prefix, options, token);
    }
    let current = store.version;
    match options.from {
        From::Version(version) if version > current => Err(SimError::too_large_version(version, current)),
        From::Version(version)
            if options.exact || (options.limit.is_some() && !options.matching && version < current) =>
        {
            // A page of a version without `resourceVersionMatch` has exactly that version, as in etcd.
            let objects = store.at(&kind.table, prefix, "", version)?;
            Ok(page(objects.iter(), options, version, prefix))
        }
        // The cache answers these requests without pages. It ignores the limit.
        From::Any => {
            let whole = ListOptions {
                limit: None,
                ..options.clone()
            };
            let objects = store.current(&kind.table, prefix, "");
            Ok(page(objects, &whole, current, prefix))
        }
        From::Newest | From::Version(_) => {
            let objects = store.current(&kind.table, prefix, "");
            Ok(page(objects, options, current, prefix))
        }
    }
}

fn next_page(
    store: &Store,
    kind: &Kind,
    prefix: &str,
    options: &ListOptions,
    token: &str,
) -> Result<Page, SimError> {
    let (version, after) = read_token(token, prefix)?;
    if matches!(options.from, From::Version(_)) {
        let message = "specifying resource version is not allowed when using continue";
        return Err(SimError::bad_request(message));
    }
    // The token has no version, because the client got a 410 for the old version. It continues at the newest state.
    if version == 0 {
        let objects = store.current(&kind.table, prefix, &after);
        return Ok(page(objects, options, store.version, prefix));
    }
    match store.at(&kind.table, prefix, &after, version) {
        Ok(objects) => Ok(page(objects.iter(), options, version, prefix)),
        Err(_) => {
            let message = "The provided continue parameter is too old to display a consistent list result. \
                           You can start a new list without the continue parameter, or use the continue token \
                           in this response to retrieve the remainder of the results. Continuing with the \
                           provided token results in an inconsistent list - objects that were created, modified, \
                           or deleted between the time the first chunk was returned and now may show up in the list.";
            let mut error = SimError::expired(message);
            error.set_continue(write_token(0, &after, prefix));
            Err(error)
        }
    }
}

fn page<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    options: &ListOptions,
    version: u64,
    prefix: &str,
) -> Page {
    let limit = options.limit.and_then(|limit| usize::try_from(limit).ok());
    let mut objects = objects;
    let mut chosen: Vec<Arc<Object>> = Vec::new();
    while limit.is_none_or(|limit| chosen.len() < limit)
        && let Some(object) = objects.next()
    {
        if options.selector.matches(object) && options.selector.shows(object) {
            chosen.push(object.clone());
        }
    }
    // Some of the remaining objects may not match. A real server notices that only with the next page.
    let rest = if limit.is_some() { objects.count() } else { 0 };
    let token = chosen
        .last()
        .filter(|_| rest > 0)
        .map(|last| write_token(version, &last.key, prefix));
    // With a selector, a real server does not know how many of the remaining objects match.
    let remaining = (rest > 0 && options.selector.is_empty()).then(|| u64::try_from(rest).unwrap_or(0));
    Page {
        version,
        objects: chosen,
        token,
        remaining,
    }
}

/// Writes a token in the format of a real server. The key in it is relative to the listed prefix, and is the end of
/// the page.
fn write_token(version: u64, last: &str, prefix: &str) -> String {
    let relative = format!("/{}", last.strip_prefix(prefix).unwrap_or(last));
    let version: Value = if version == 0 { json!(-1) } else { json!(version) };
    let token = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": format!("{relative}\0") });
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn read_token(token: &str, prefix: &str) -> Result<(u64, String), SimError> {
    let bad = |why: &str| {
        SimError::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    };
    let bytes = URL_SAFE_NO_PAD
        .decode(token.trim_end_matches('='))
        .or_else(|_| STANDARD_NO_PAD.decode(token.trim_end_matches('=')))
        .map_err(|error| bad(&error.to_string()))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
    if token["v"] != "meta.k8s.io/v1" {
        return Err(bad("server does not recognize this encoded version"));
    }
    let version = match token["rv"].as_i64() {
        Some(-1) => 0,
        Some(version) if version > 0 => version.unsigned_abs(),
        _ => return Err(bad("incorrect encoded start resourceVersion")),
    };
    let start = token["start"].as_str().unwrap_or_default();
    let start = start.trim_end_matches('\0').trim_start_matches('/');
    Ok((version, format!("{prefix}{start}")))
}
