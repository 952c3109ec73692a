//! Asking a cluster whether it answers, who it is, and whether it takes a credential.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use mcr_client::{Channel, explain_error as explain, internal::LastRequest};
use serde::Deserialize;
use tokio::time::timeout;

/// Why a cluster can't be used, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeError {
    /// The API server answered 401.
    Unauthorized,
    /// It did not answer, or not as an API server does.
    Unreachable(String),
}

impl ProbeError {
    pub(crate) fn reason(&self) -> Arc<str> {
        match self {
            Self::Unauthorized => "the API server refuses the credentials (401 Unauthorized); they may have expired or been revoked".into(),
            Self::Unreachable(reason) => reason.as_str().into(),
        }
    }
}

/// What becomes of the connection a question was asked over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// Kept for the requests that are about to follow.
    Keep,
    /// Closed. A cluster that is well has its watches' connections and needs no other; one more for each would double what an idle
    /// fleet holds. TLS sessions are resumed, so making the next one is cheap.
    Close,
}

/// An answer to a probe is a few hundred bytes; a server that sends more is not worth listening to.
const MAX_ANSWER: usize = 256 << 10;

/// Asks for the `kube-system` namespace: proves that the server answers and takes the credential, and tells
/// its UID where it may be read.
pub(crate) async fn identify(
    channel: &Channel,
    afterwards: Afterwards,
    limit: Duration,
) -> Result<Option<Arc<str>>, ProbeError> {
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
    let (_, body) = ask(channel, request, Body::empty(), afterwards, limit).await?;
    Ok(serde_json::from_slice::<Namespace>(&body)
        .ok()
        .map(|namespace| namespace.metadata.uid.into()))
}

/// Asks for the version: the cheapest question there is.
pub(crate) async fn alive(
    channel: &Channel,
    afterwards: Afterwards,
    limit: Duration,
) -> Result<(), ProbeError> {
    ask(
        channel,
        Request::get("/version"),
        Body::empty(),
        afterwards,
        limit,
    )
    .await
    .map(|_| ())
}

/// Asks who we are, to find out whether a credential is taken before it replaces one that works.
pub(crate) async fn try_credential(channel: &Channel, limit: Duration) -> Result<(), ProbeError> {
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(header::CONTENT_TYPE, "application/json");
    let body: &[u8] = br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let (status, _) = ask(
        channel,
        request,
        Body::from(body.to_vec()),
        Afterwards::Keep,
        limit,
    )
    .await?;
    // Servers without the API, and those that forbid it, still check who asks on a cheap read.
    if status == StatusCode::NOT_FOUND || status == StatusCode::FORBIDDEN {
        alive(channel, Afterwards::Keep, limit).await?;
    }
    Ok(())
}

async fn ask(
    channel: &Channel,
    request: http::request::Builder,
    body: Body,
    afterwards: Afterwards,
    limit: Duration,
) -> Result<(StatusCode, bytes::Bytes), ProbeError> {
    let unreachable = |reason: String| ProbeError::Unreachable(reason);
    let mut request = request
        .body(body)
        .map_err(|error| unreachable(format!("the request can't be made: {error}")))?;
    if afterwards == Afterwards::Close {
        request.extensions_mut().insert(LastRequest);
    }
    let answer = async {
        let response = channel
            .send(request)
            .await
            .map_err(|error| unreachable(explain(&error)))?;
        let status = response.status();
        if status == StatusCode::UNAUTHORIZED {
            return Err(ProbeError::Unauthorized);
        }
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
        let body = body
            .map_err(|error| unreachable(explain(error.as_ref())))?
            .to_bytes();
        if status.is_server_error() {
            return Err(unreachable(format!(
                "the API server answers {status}; it may be starting or overloaded"
            )));
        }
        Ok((status, body))
    };
    timeout(limit, answer)
        .await
        .unwrap_or_else(|_| Err(unreachable(format!("no answer within {} s", limit.as_secs_f32()))))
}
