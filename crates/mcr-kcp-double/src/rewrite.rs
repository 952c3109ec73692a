use bytes::Bytes;
use form_urlencoded::Serializer;
use http::request::Parts;
use http::{Response, Uri};

use super::shard::Shard;
use mcr_testkit::sim::SimBody;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::answer::Answer;
use mcr_testkit::sim::handle::{Caller, handle_for};

/// Replaces the path of a request.
pub(super) fn set_path(parts: &mut Parts, path: &str, query: Option<&str>) {
    let query = query
        .filter(|query| !query.is_empty())
        .map(|query| format!("?{query}"));
    let whole = format!("{path}{}", query.unwrap_or_default());
    // A path that was accepted once is still one.
    if let Ok(uri) = whole.parse::<Uri>() {
        parts.uri = uri;
    }
}

/// Adds a term to the label selector of a list or watch.
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

/// Answers with an error, which the audit log of a shard has too.
pub(super) fn refuse(
    shard: &Shard,
    parts: &Parts,
    user: &str,
    error: SimError,
    whole: &str,
) -> Response<SimBody> {
    let outcome: Result<Answer, SimError> = Err(error);
    let caller = Caller::Answered(user.to_owned(), outcome);
    handle_for(&shard.view(""), parts, &Bytes::new(), caller, whole)
}
