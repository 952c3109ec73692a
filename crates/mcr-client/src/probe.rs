//! Probes: whether a cluster answers, the UID that identifies it, and whether it accepts a credential.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;

use crate::{
    channel::{Channel, LastRequest},
    connect_error::ConnectError,
    explain::explain,
};

/// What happens to the HTTP connection after a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeConnection {
    /// It is kept for the requests that follow.
    Keep,
    /// It is closed. A healthy cluster has the connections of its watches; one more for each cluster would double the
    /// connections of an idle fleet. The next connection is cheap, because it resumes the TLS session.
    Close,
}

/// The size limit of an answer, in bytes. An answer to a probe has a few hundred bytes.
const MAX_ANSWER: usize = 256 << 10;

/// Reads the UID of the `kube-system` namespace. The UID is none if the credential may not read it.
///
/// An answer proves that the server answers and accepts the credential.
///
/// # Errors
///
/// If the API server refuses the credential, or does not answer within `limit`.
pub async fn identify(
    channel: &Channel,
    after: ProbeConnection,
    limit: Duration,
) -> Result<Option<Arc<str>>, ConnectError> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        uid: String,
    }
    let request = Request::get("/api/v1/namespaces/kube-system?resourceVersion=0").header(
        header::ACCEPT,
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    );
    let (_, body) = ask(channel, request, Body::empty(), after, limit).await?;
    Ok(serde_json::from_slice::<Namespace>(&body)
        .ok()
        .map(|namespace| namespace.metadata.uid.into()))
}

/// Reads the version of the API server, which is the cheapest request.
///
/// # Errors
///
/// If the API server refuses the credential, or does not answer within `limit`.
pub async fn alive(channel: &Channel, after: ProbeConnection, limit: Duration) -> Result<(), ConnectError> {
    ask(channel, Request::get("/version"), Body::empty(), after, limit)
        .await
        .map(|_| ())
}

/// Checks whether the API server accepts a credential, before the credential replaces one that works.
///
/// # Errors
///
/// If the API server refuses the credential, or does not answer within `limit`.
pub async fn try_credential(channel: &Channel, limit: Duration) -> Result<(), ConnectError> {
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(header::CONTENT_TYPE, "application/json");
    let body: &[u8] = br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let (status, _) = ask(
        channel,
        request,
        Body::from(body.to_vec()),
        ProbeConnection::Keep,
        limit,
    )
    .await?;
    // Some API servers lack this API or forbid it. They check the credential of any other request as well.
    if status == StatusCode::NOT_FOUND || status == StatusCode::FORBIDDEN {
        alive(channel, ProbeConnection::Keep, limit).await?;
    }
    Ok(())
}

async fn ask(
    channel: &Channel,
    request: http::request::Builder,
    body: Body,
    after: ProbeConnection,
    limit: Duration,
) -> Result<(StatusCode, bytes::Bytes), ConnectError> {
    let mut request = request
        .body(body)
        .map_err(|error| ConnectError::new(format!("the request can't be made: {error}")))?;
    if after == ProbeConnection::Close {
        request.extensions_mut().insert(LastRequest);
    }
    let answer = async {
        let response = channel
            .send(request)
            .await
            .map_err(|error| ConnectError::new(explain(&error)))?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(ConnectError::unauthorized());
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body
            .map_err(|error| ConnectError::new(explain(error.as_ref())))?
            .to_bytes();
        if status.is_server_error() {
            return Err(ConnectError::new(format!(
                "the API server answers {status}; it may be starting or overloaded"
            )));
        }
        Ok((status, body))
    };
    timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(ConnectError::new(format!(
            "no answer within {} s",
            limit.as_secs_f32()
        )))
    })
}
