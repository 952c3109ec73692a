//! Probes: whether a cluster answers, the UID that identifies it, and whether it accepts a credential.

use std::{sync::Arc, time::Duration};

use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use kube::client::Body;
use tokio::time::timeout;

use crate::{
    agent::Sender,
    channel::{Channel, LastRequest},
    connect_error::ConnectError,
    explain::explain,
    proof::{Asked, Proof, proof},
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

const UNAUTHORIZED: &str =
    "the API server refuses the credentials (401 Unauthorized); they may have expired or been revoked";

const ANONYMOUS_USER: &str = "the API server takes the user for system:anonymous; add credentials, or set FleetSettings::allow_anonymous";

/// The size limit of an answer, in bytes. API servers answer a probe with a few hundred bytes.
const MAX_ANSWER: usize = 256 << 10;

/// Reads the UID of the `kube-system` namespace. Returns `None` if the user of the credential may not read it.
///
/// Success proves that an API server answers. It also proves that the server knows the user, except with a server that
/// shows nothing but its version.
///
/// # Errors
///
/// If the API server refuses the credential or takes its user for anonymous, if something else answers, or if nothing answers
/// within `limit`.
pub async fn identify(
    channel: &Channel,
    after: ProbeConnection,
    limit: Duration,
) -> Result<Option<Arc<str>>, ConnectError> {
    let uid = prove(channel, &[Asked::KubeSystem, Asked::Groups], true, after, limit).await?;
    if channel.lacks_credential() {
        // Anonymous users may have the right to read the namespace, so the UID proves nothing about the user. The
        // server may know a user all the same, because a proxy may add a credential. Only the review names that user.
        prove(channel, &[Asked::Review, Asked::Groups], true, after, limit).await?;
    }
    Ok(uid)
}

/// Checks that an API server answers. It requests the version, which costs the server least.
///
/// # Errors
///
/// If the API server refuses the credential, if something else answers, or if nothing answers within `limit`.
pub async fn alive(channel: &Channel, after: ProbeConnection, limit: Duration) -> Result<(), ConnectError> {
    let requests = [Asked::Version, Asked::Groups];
    prove(channel, &requests, true, after, limit).await.map(|_| ())
}

/// Checks whether the API server knows the user of a credential, before the credential replaces one that works.
///
/// # Errors
///
/// If no answer proves that the API server knows the user, or if no answer comes within `limit`.
pub async fn try_credential(channel: &Channel, limit: Duration) -> Result<(), ConnectError> {
    // Some API servers don't serve SelfSubjectReviews, so other requests follow.
    let requests = [Asked::Review, Asked::KubeSystem, Asked::Groups];
    prove(channel, &requests, false, ProbeConnection::Keep, limit)
        .await
        .map(|_| ())
}

/// Sends one request after the other until an answer decides.
///
/// With `server_suffices`, an answer decides if it comes from an API server. Otherwise the answer must also prove that
/// the server knows the user.
async fn prove(
    channel: &Channel,
    requests: &[Asked],
    server_suffices: bool,
    after: ProbeConnection,
    limit: Duration,
) -> Result<Option<Arc<str>>, ConnectError> {
    let mut why = "the API server does not show whether it knows the user of the credentials".to_owned();
    for asked in requests {
        match ask(channel, *asked, after, limit).await? {
            Proof::User(uid) => return Ok(uid),
            Proof::Server if server_suffices => return Ok(None),
            Proof::Anonymous if channel.may_be_anonymous() => return Ok(None),
            Proof::Server => {}
            Proof::NotServed(reason) => why = reason,
            Proof::Anonymous => return Err(ConnectError::refused(ANONYMOUS_USER)),
            Proof::Unauthorized => return Err(ConnectError::refused(UNAUTHORIZED)),
            Proof::Busy => return Err(ConnectError::busy()),
            Proof::Nothing(reason) => return Err(ConnectError::new(reason)),
        }
    }
    Err(ConnectError::new(why))
}

async fn ask(
    channel: &Channel,
    asked: Asked,
    after: ProbeConnection,
    limit: Duration,
) -> Result<Proof, ConnectError> {
    const REVIEW: &[u8] = br#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#;
    let json = "application/json";
    let (request, body) = match asked {
        Asked::KubeSystem => (
            Request::get("/api/v1/namespaces/kube-system?resourceVersion=0").header(
                header::ACCEPT,
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            ),
            Body::empty(),
        ),
        Asked::Groups => (Request::get("/apis").header(header::ACCEPT, json), Body::empty()),
        Asked::Version => (Request::get("/version"), Body::empty()),
        Asked::Review => (
            Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
                .header(header::CONTENT_TYPE, json),
            Body::from(REVIEW.to_vec()),
        ),
    };
    let mut request = request
        .body(body)
        .map_err(|error| ConnectError::new(format!("the request can't be made: {error}")))?;
    request.extensions_mut().insert(Sender::Fleet);
    if after == ProbeConnection::Close {
        request.extensions_mut().insert(LastRequest);
    }
    let answer = async {
        let response = channel
            .send(request)
            .await
            .map_err(|error| ConnectError::new(explain(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await;
        let body = match body {
            Ok(body) => body.to_bytes(),
            // A 401 needs no body to decide.
            Err(_) if head.status == StatusCode::UNAUTHORIZED => return Ok(Proof::Unauthorized),
            Err(error) => return Err(ConnectError::new(explain(error.as_ref()))),
        };
        Ok(proof(asked, head.status, &head.headers, &body))
    };
    timeout(limit, answer).await.unwrap_or_else(|_| {
        Err(ConnectError::new(format!(
            "no answer within {} s",
            limit.as_secs_f32()
        )))
    })
}
