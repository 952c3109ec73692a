//! Requests to a real API server.

use kube::Client;
use serde_json::Value;

/// Sends an object as JSON, because k8s-openapi's types differ between its version features, and this crate must
/// compile with all of them.
pub(crate) async fn send(
    client: &Client,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<Value, kube::Error> {
    let media = if method == "PATCH" {
        "application/apply-patch+yaml"
    } else {
        "application/json"
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", media).body(body.to_string());
    let request = request.map_err(kube::Error::HttpError)?;
    client.request(request.map(String::into_bytes)).await
}

/// Creates an object, or does nothing if it exists already.
pub(crate) async fn create(client: &Client, path: &str, object: &Value) -> Result<(), kube::Error> {
    match send(client, "POST", path, object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => result.map(drop),
    }
}
