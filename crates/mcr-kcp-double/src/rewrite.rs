use std::sync::Arc;

use bytes::Bytes;
use form_urlencoded::Serializer;
use http::request::Parts;
use http::{Response, Uri};

use super::inner::Inner;
use super::shard::Shard;
use super::user::KcpUser;
use mcr_testkit::sim::handle::{Caller, handle_for};
use mcr_testkit::sim::{SimBody, SimError, SimRule, SimUser};

/// Replaces the path of a request.
pub(super) fn set_path(parts: &mut Parts, path: &str, query: Option<&str>) {
    let query = query
        .filter(|query| !query.is_empty())
        .map(|query| format!("?{query}"));
    let whole = format!("{path}{}", query.unwrap_or_default());
    // A path that was accepted once is valid.
    if let Ok(uri) = whole.parse::<Uri>() {
        parts.uri = uri;
    }
}

/// Adds a requirement to the label selector of a list or watch.
pub(super) fn add_label(parts: &mut Parts, (key, value): &(String, String)) {
    let term = format!("{key}={value}");
    let mut pairs = pairs(parts.uri.query());
    match pairs.iter_mut().find(|(name, _)| name == "labelSelector") {
        Some((_, selector)) if !selector.is_empty() => *selector = format!("{selector},{term}"),
        Some((_, selector)) => *selector = term,
        None => pairs.push(("labelSelector".to_owned(), term)),
    }
    let query = Serializer::new(String::new()).extend_pairs(pairs).finish();
    let path = parts.uri.path().to_owned();
    set_path(parts, &path, Some(&query));
}

/// The names and values of a query.
pub(super) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .into_owned()
        .collect()
}

/// A request: the shard that received it, and the user who sent it.
#[derive(Clone, Copy)]
pub(super) struct Visit<'a> {
    pub(super) inner: &'a Inner,
    pub(super) shard: &'a Shard,
    pub(super) user: &'a KcpUser,
    /// The original path and query.
    pub(super) whole: &'a str,
}

impl Visit<'_> {
    /// Answers with an error, which is also added to the audit log of the shard.
    pub(super) fn refuse(self, parts: &Parts, error: SimError) -> Response<SimBody> {
        let caller = Caller::Answered(self.user.name.clone(), Err(error));
        handle_for(&self.shard.view(""), parts, &Bytes::new(), caller, self.whole)
    }

    /// The caller that has all rights.
    pub(super) fn admin(self) -> Caller {
        Caller::User(Arc::new(
            SimUser::new(self.user.name.clone()).rule(SimRule::all()),
        ))
    }
}
