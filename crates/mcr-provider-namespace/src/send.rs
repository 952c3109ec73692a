//! Sends a request of one cluster to its host.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::StreamBody;
use kube::client::Body;
use mcr_core::{AnswerBody, BoxError};

use crate::{
    error::AnswerError,
    kinds::{Found, Host, Kinds},
    mapping::{
        answer::Answers,
        body,
        json::Unreadable,
        lines::map_lines,
        names::Names,
        path::{self, Target},
        refuse::{self, Refusal, nothing_deleted},
    },
    read::{MAX_BODY, read, within},
    route::{Route, accept, route},
};

/// Maps a request of the cluster with these names, sends it, and maps its answer.
///
/// A request that must not be sent gets an answer here, as from an API server. Dropping the future cancels the request.
pub(crate) async fn send(
    names: Names,
    kinds: &Kinds,
    request: Request<Body>,
    host: Host,
) -> Result<Response<AnswerBody>, BoxError> {
    match try_send(names, kinds, request, host).await {
        Ok(response) => Ok(response),
        Err(Stop::Refused(refusal)) => {
            tracing::debug!(
                code = refusal.code.as_u16(),
                "a request of a cluster that is a namespace was refused"
            );
            Ok(refusal.into_response())
        }
        Err(Stop::Answered(response)) => Ok(response),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Why a request was not sent, or its answer not mapped.
enum Stop {
    Refused(Refusal),
    Answered(Response<AnswerBody>),
    Failed(BoxError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<BoxError> for Stop {
    fn from(error: BoxError) -> Self {
        Self::Failed(error)
    }
}

async fn try_send(
    names: Names,
    kinds: &Kinds,
    request: Request<Body>,
    host: Host,
) -> Result<Response<AnswerBody>, Stop> {
    let (mut parts, sent) = request.into_parts();
    let uri = parts.uri.clone();
    let target = path::parse(&uri)?;
    if let Target::Objects(objects) = &target
        && objects.namespace.is_none()
    {
        let kind = (objects.group, objects.version, objects.plural);
        match kinds.find(kind, &host).await? {
            Found::Namespaced => {}
            Found::ClusterScoped => return Err(Refusal::cluster_scoped(&names.real, objects.plural).into()),
            Found::Unknown => return Err(Refusal::no_such_path().into()),
            Found::Answered(response) => return Err(Stop::Answered(response)),
        }
    }
    let (to, answers, watch, mapped) =
        match route(&parts.method, &target, uri.query(), &parts.headers, &names)? {
            Route::Pass => return Ok(host(Request::from_parts(parts, sent)).await?),
            Route::NothingDeleted => return none_deleted(&target, kinds, &host).await,
            Route::Connect { to, answers } => (to, answers, false, false),
            Route::Map { to, answers, watch } => (to, answers, watch, true),
        };
    parts.uri = to
        .parse()
        .map_err(|_| Refusal::bad_request("the path of the request is too long"))?;
    if !mapped {
        let response = host(Request::from_parts(parts, sent)).await?;
        return match is_error(response.status()) && is_json(response.headers()) {
            true => Ok(whole(response, &answers).await?),
            false => Ok(response),
        };
    }
    parts.headers.insert(header::ACCEPT, accept(&parts.headers)?);
    // A compressed body can't be mapped.
    parts
        .headers
        .insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let body = written(&parts, sent, &answers).await?;
    for name in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let response = host(Request::from_parts(parts, body)).await?;
    Ok(answered(response, answers, watch).await?)
}

async fn none_deleted(target: &Target<'_>, kinds: &Kinds, host: &Host) -> Result<Response<AnswerBody>, Stop> {
    let Target::Objects(objects) = target else {
        return Err(Refusal::no_such_path().into());
    };
    let kind = (objects.group, objects.version, objects.plural);
    match kinds.find(kind, host).await? {
        Found::Namespaced => {}
        Found::ClusterScoped | Found::Unknown => return Err(Refusal::no_such_path().into()),
        Found::Answered(response) => return Err(Stop::Answered(response)),
    }
    let kind = kinds.kind(objects.group, objects.version, objects.plural);
    Ok(nothing_deleted(&objects.api_version(), &kind.unwrap_or_default()))
}

/// The mapped body.
async fn written(parts: &http::request::Parts, sent: Body, answers: &Answers) -> Result<Body, Stop> {
    use http::Method;
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Body::empty());
    }
    let Some(bytes) = within(AnswerBody::new(sent), MAX_BODY).await? else {
        return Err(Refusal::too_large(MAX_BODY).into());
    };
    if bytes.is_empty() {
        return Ok(Body::empty());
    }
    let form = body::form(&parts.headers)?;
    if parts.headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Refusal::unsupported("packed").into());
    }
    Ok(
        match body::written(&bytes, form, answers.field_rules, &answers.names)? {
            Some(text) => Body::from(text.into_bytes()),
            None => Body::from(bytes),
        },
    )
}

async fn answered(
    response: Response<AnswerBody>,
    answers: Answers,
    watch: bool,
) -> Result<Response<AnswerBody>, BoxError> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS || answers.names.inside == answers.names.real {
        return Ok(response);
    }
    if !is_json(response.headers()) {
        // A body that is no object, such as the text of an error, has no namespace.
        return match is_other_form(response.headers()) {
            true => Err(AnswerError::OtherForm.into()),
            false => Ok(response),
        };
    }
    if is_packed(response.headers()) {
        return Err(AnswerError::OtherForm.into());
    }
    if !watch || is_error(response.status()) {
        return whole(response, &answers).await;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = StreamBody::new(map_lines(body, answers));
    Ok(Response::from_parts(parts, AnswerBody::new(body)))
}

/// Reads an answer to its end and maps it.
async fn whole(response: Response<AnswerBody>, answers: &Answers) -> Result<Response<AnswerBody>, BoxError> {
    let (mut parts, body) = response.into_parts();
    let bytes = read(body).await?;
    if bytes.is_empty() {
        return Ok(Response::from_parts(parts, refuse::whole(bytes)));
    }
    let bytes = match answers.whole(&bytes) {
        Ok(Some(text)) => Bytes::from(text),
        Ok(None) => bytes,
        Err(Unreadable) => return Err(AnswerError::NotJson.into()),
    };
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts
        .headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Ok(Response::from_parts(parts, refuse::whole(bytes)))
}

fn is_error(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

fn media(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = value.unwrap_or_default().split(';').next().unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = media(headers);
    media == "application/json" || media.ends_with("+json")
}

/// Objects in a form that can't be mapped.
fn is_other_form(headers: &HeaderMap) -> bool {
    let media = media(headers);
    ["protobuf", "cbor", "yaml"]
        .iter()
        .any(|form| media.contains(form))
}

fn is_packed(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|value| value != "identity")
}

#[cfg(test)]
mod tests;
