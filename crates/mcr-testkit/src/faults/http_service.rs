//! Forwards requests, and applies faults to the answers.

use std::sync::atomic::Ordering;

use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::sleep;

use super::{
    Fault,
    body::{self, Body, BoxError, full, local_answer, paced},
    request::RequestInfo,
    rules::{Active, Rules},
    shared::Shared,
    stale,
    watch_body::watched,
};

/// Answers a request. An error closes the connection without an answer.
pub(super) async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let info = RequestInfo::of(request.method(), request.uri());
    let rules = shared.rules.borrow().clone();
    let mut bytes_per_second = None;
    for rule in fitting(&rules, &info) {
        if let Fault::Slow {
            first_byte,
            bytes_per_second: rate,
        } = rule.fault()
            && rule.count_match(&shared.hits)
        {
            bytes_per_second = *rate;
            sleep(*first_byte).await;
            break;
        }
    }
    let is_watch = info.verb == "watch";
    let response = answer_without_delay(shared, &rules, info, request).await?;
    Ok(match bytes_per_second {
        // The body of a watch limits its rate itself, because the rate may change while the watch runs.
        Some(rate) if !(is_watch && response.status().is_success()) => response.map(|body| paced(body, rate)),
        _ => response,
    })
}

fn fitting<'a>(rules: &'a Rules, info: &'a RequestInfo) -> impl Iterator<Item = &'a Active> {
    rules.iter().map(|rule| &**rule).filter(|rule| rule.fits(info))
}

async fn answer_without_delay(
    shared: &Shared,
    rules: &Rules,
    info: RequestInfo,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    for rule in fitting(rules, &info) {
        if let Some(response) = local_answer(rule.fault(), &info)
            && rule.count_match(&shared.hits)
        {
            return Ok(response);
        }
    }
    let key = if info.reads_objects() {
        stale::key(
            request.method(),
            request.uri(),
            request.headers().get(header::ACCEPT),
        )
    } else {
        None
    };
    let remembered = key.as_deref().and_then(|key| shared.memory.get(key));
    if let Some(remembered) = remembered
        && fitting(rules, &info)
            .any(|rule| *rule.fault() == Fault::StaleReads && rule.count_match(&shared.hits))
    {
        let mut response = Response::new(remembered.body());
        if let Some(content_type) = remembered.content_type() {
            response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        }
        return Ok(response);
    }
    let (parts, incoming) = request.into_parts();
    let request = Request::from_parts(parts, incoming.map_err(BoxError::from).boxed_unsync());
    let (mut parts, incoming) = shared.upstream.send(request).await?.into_parts();
    parts.headers.remove(header::CONNECTION);
    parts.headers.remove(header::TRANSFER_ENCODING);
    if !parts.status.is_success() {
        return Ok(Response::from_parts(
            parts,
            incoming.map_err(BoxError::from).boxed_unsync(),
        ));
    }
    if info.verb == "watch" {
        parts.headers.remove(header::CONTENT_LENGTH);
        let body = watched(incoming, info, shared.rules.subscribe(), shared.hits.clone());
        return Ok(Response::from_parts(parts, body));
    }
    let damage = fitting(rules, &info)
        .find(|rule| body::changes(rule.fault(), &info) && rule.count_match(&shared.hits));
    if let Some(rule) = damage {
        let whole = incoming.collect().await?.to_bytes();
        parts.headers.remove(header::CONTENT_LENGTH);
        return Ok(Response::from_parts(parts, body::changed(rule.fault(), whole)));
    }
    if parts.status == http::StatusCode::NO_CONTENT {
        return Ok(Response::from_parts(parts, full("")));
    }
    let mut body = incoming.map_err(BoxError::from).boxed_unsync();
    if let Some(key) = key {
        body = shared
            .memory
            .remember(key, parts.headers.get(header::CONTENT_TYPE).cloned(), body);
    }
    Ok(Response::from_parts(parts, body))
}
