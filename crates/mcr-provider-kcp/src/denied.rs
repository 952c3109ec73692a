//! The possible reasons for which kcp denies access to the content of a workspace.

use http::{Response, header};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use mcr_core::{AnswerBody, BoxError};
use serde_json::Value;

/// A longer answer is not one of these.
const LIMIT: u64 = 16 * 1024;

/// kcp answers 403 for a kind that is not served, where other API servers answer 404.
const DENIED: &str = "access denied";

/// What the API server says of an object that it does not create because the namespace is being deleted.
const CLOSED: &str = "because it is being terminated";

/// Adds to the message of an answer what `explained` makes of it. No message: the answer stays as it is.
pub(crate) async fn explain(
    response: Response<AnswerBody>,
    explained: impl FnOnce(&str) -> Option<String>,
) -> Result<Response<AnswerBody>, BoxError> {
    if response
        .body()
        .size_hint()
        .upper()
        .is_none_or(|length| length > LIMIT)
    {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let answer = body.collect().await?.to_bytes();
    let answer = with_message(&answer, explained).map_or(answer, |text| {
        parts.headers.remove(header::CONTENT_LENGTH);
        text.into()
    });
    Ok(Response::from_parts(parts, AnswerBody::new(Full::new(answer))))
}

fn with_message(answer: &[u8], explained: impl FnOnce(&str) -> Option<String>) -> Option<String> {
    let mut status: Value = serde_json::from_slice(answer).ok()?;
    status["message"] = explained(status["message"].as_str()?)?.into();
    Some(status.to_string())
}

/// The possible reasons if a message says no more than that access is denied.
pub(crate) fn of_export(message: &str, export: &str) -> Option<String> {
    message.ends_with(DENIED).then(|| {
        format!(
            "{message}. Possible reasons: APIExport{export} neither exports nor claims the kind; the APIBinding of \
             the workspace does not accept the claim; the right to this verb on apiexports/content is missing. Add the kind to \
             spec.resources or to spec.permissionClaims of the export, accept the claim in the binding, or grant the right"
        )
    })
}

/// The reason if a namespace of a deleted workspace is gone or on its way.
pub(crate) fn while_terminating(message: &str) -> Option<String> {
    let is_gone = message.starts_with("namespaces \"") && message.ends_with("\" not found");
    (is_gone || message.ends_with(CLOSED)).then(|| {
        format!(
            "{message}. The workspace is being deleted: kcp deletes its namespaces at once and creates no objects in them, so \
             no Kubernetes events either. Write to the log, or into another workspace"
        )
    })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    const MISSING: &str = "namespaces \"default\" not found";

    async fn message(body: String, explained: impl FnOnce(&str) -> Option<String>) -> String {
        let mut response = Response::new(AnswerBody::new(Full::from(body.clone())));
        *response.status_mut() = StatusCode::FORBIDDEN;
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, body.len().into());
        let answer = explain(response, explained).await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        let length = answer.headers().get(header::CONTENT_LENGTH).cloned();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(length.is_none_or(|length| length == bytes.len().to_string()));
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn status(message: &str) -> String {
        serde_json::json!({"kind": "Status", "message": message}).to_string()
    }

    async fn explained(text: &str, explained: impl FnOnce(&str) -> Option<String>) -> String {
        let answer: Value = serde_json::from_str(&message(status(text), explained).await).unwrap();
        answer["message"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn only_an_answer_that_says_no_more_is_explained() {
        for denied in [
            "access denied",
            "nodes is forbidden: User \"c\" cannot list resource \"nodes\": access denied",
        ] {
            let explained = explained(denied, |message| of_export(message, " sites")).await;
            for part in [
                denied,
                "APIExport sites neither exports nor claims the kind;",
                "spec.permissionClaims",
            ] {
                assert!(explained.contains(part), "{explained}");
            }
        }
        let long = status(&format!("{} access denied", "x".repeat(16 * 1024)));
        for body in [
            status("no rule allows list on core/secrets"),
            status(MISSING),
            "access denied".to_owned(),
            long,
        ] {
            let answer = message(body.clone(), |message| of_export(message, " sites")).await;
            assert_eq!(answer, body);
        }
    }

    #[tokio::test]
    async fn a_namespace_that_takes_no_objects_is_explained_while_its_workspace_is_deleted() {
        let closed = "events \"a\" is forbidden: unable to create new content in namespace default because it is being terminated";
        for refused in [closed, MISSING] {
            let explained = explained(refused, while_terminating).await;
            assert!(
                explained.starts_with(refused)
                    && explained.contains("no Kubernetes events either. Write to the log"),
                "{explained}"
            );
        }
        for other in ["events \"a\" not found", "access denied"] {
            assert_eq!(explained(other, while_terminating).await, other);
        }
    }
}
