//! The possible reasons for which kcp denies access to the content of a workspace.

use http::{Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use mcr_core::{AnswerBody, BoxError};
use serde_json::Value;

/// A longer answer is not one of these.
const LIMIT: u64 = 16 * 1024;

/// kcp answers 403 for a kind that is not served, where other API servers answer 404.
const DENIED: &str = "access denied";

/// Adds the possible reasons to an answer in which kcp says no more than that access is denied.
pub(crate) async fn explain(
    response: Response<AnswerBody>,
    export: &str,
) -> Result<Response<AnswerBody>, BoxError> {
    let short = response.body().size_hint().upper();
    if response.status() != StatusCode::FORBIDDEN || short.is_none_or(|length| length > LIMIT) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let answer = body.collect().await?.to_bytes();
    let explained = explained(&answer, export);
    let answer = explained.map_or(answer, |text| {
        parts.headers.remove(header::CONTENT_LENGTH);
        text.into()
    });
    Ok(Response::from_parts(parts, AnswerBody::new(Full::new(answer))))
}

fn explained(answer: &[u8], export: &str) -> Option<String> {
    let mut status: Value = serde_json::from_slice(answer).ok()?;
    let message = status["message"].as_str()?;
    if !message.ends_with(DENIED) {
        return None;
    }
    status["message"] = format!(
        "{message}. Possible reasons: APIExport{export} neither exports nor claims the kind; the APIBinding of \
         the workspace does not accept the claim; the right to this verb on apiexports/content is missing. Add the kind to \
         spec.resources or to spec.permissionClaims of the export, accept the claim in the binding, or grant the right"
    )
    .into();
    Some(status.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn message(code: StatusCode, body: String) -> String {
        let mut response = Response::new(AnswerBody::new(Full::from(body.clone())));
        *response.status_mut() = code;
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, body.len().into());
        let answer = explain(response, " sites").await.unwrap();
        assert_eq!(answer.status(), code);
        let length = answer.headers().get(header::CONTENT_LENGTH).cloned();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(length.is_none_or(|length| length == bytes.len().to_string()));
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_an_answer_that_says_no_more_is_explained() {
        let status = |message: &str| serde_json::json!({"kind": "Status", "message": message}).to_string();
        for denied in [
            "access denied",
            "nodes is forbidden: User \"c\" cannot list resource \"nodes\": access denied",
        ] {
            let text = message(StatusCode::FORBIDDEN, status(denied)).await;
            let explained: Value = serde_json::from_str(&text).unwrap();
            let explained = explained["message"].as_str().unwrap();
            for part in [
                denied,
                "APIExport sites neither exports nor claims the kind;",
                "spec.permissionClaims",
            ] {
                assert!(explained.contains(part), "{explained}");
            }
        }
        let long = status(&format!("{} access denied", "x".repeat(16 * 1024)));
        for (code, body) in [
            (
                StatusCode::FORBIDDEN,
                status("no rule allows list on core/secrets"),
            ),
            (StatusCode::FORBIDDEN, "access denied".to_owned()),
            (StatusCode::FORBIDDEN, long),
            (StatusCode::NOT_FOUND, status("access denied")),
        ] {
            assert_eq!(message(code, body.clone()).await, body);
        }
    }
}
