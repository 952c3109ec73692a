//! Prefixes of request paths: the base path of a server, and the path of a cluster within a scope.

use http::{Uri, uri::PathAndQuery};

/// Marks a request whose path is absolute: its channel does not put its prefix before the path.
///
/// It is an extension of the request. The base path of the server is put before every path.
#[derive(Clone, Copy)]
pub struct AbsolutePath;

/// The path and query of `uri` behind `prefix`, without scheme and authority.
///
/// # Errors
///
/// If the result is not a URI.
pub fn prefixed(prefix: &str, uri: &Uri) -> Result<Uri, http::Error> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    Ok(format!("{}{path}", prefix.trim_end_matches('/')).parse()?)
}

/// The path and query of `uri` behind the base path of a server, which may be empty.
pub(crate) fn with_base_path(base: &str, uri: &Uri) -> Result<Uri, http::Error> {
    match base {
        "" if uri.authority().is_none() => Ok(uri.clone()),
        base => prefixed(base, uri),
    }
}
