//! The input and the output of a plugin.

use base64::Engine;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::config::{ApiVersion, ClusterInfo, PluginConfig};
use crate::{
    credential::{ClientCertificate, Credential},
    pem,
    time::parse_rfc3339,
};

/// Returns `spec.cluster` of the input. As in client-go, empty fields are absent, and a missing configuration is `null`.
fn cluster(info: &ClusterInfo) -> Value {
    let (endpoint, mut cluster) = (&info.endpoint, Map::new());
    cluster.insert(
        "server".into(),
        endpoint.server.to_string().trim_end_matches('/').into(),
    );
    if let Some(name) = &endpoint.tls_server_name {
        cluster.insert("tls-server-name".into(), name.as_ref().into());
    }
    if endpoint.insecure_skip_tls_verify {
        cluster.insert("insecure-skip-tls-verify".into(), true.into());
    }
    if let Some(pem) = &endpoint.certificate_authority {
        let data = base64::engine::general_purpose::STANDARD.encode(pem);
        cluster.insert("certificate-authority-data".into(), data.into());
    }
    if let Some(proxy) = &endpoint.proxy {
        cluster.insert("proxy-url".into(), proxy.to_string().into());
    }
    if info.disable_compression {
        cluster.insert("disable-compression".into(), true.into());
    }
    let config = serde_json::from_str(&info.config).unwrap_or_default();
    cluster.insert("config".into(), config);
    Value::Object(cluster)
}

/// Returns the plugin's input: the value of `KUBERNETES_EXEC_INFO`.
pub(super) fn input(config: &PluginConfig) -> String {
    let mut spec = json!({ "interactive": false });
    if let Some(info) = &config.cluster {
        spec["cluster"] = cluster(info);
    }
    json!({ "kind": "ExecCredential", "apiVersion": config.version.as_str(), "spec": spec }).to_string()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    expiration_timestamp: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    client_certificate_data: Option<String>,
    #[serde(default)]
    client_key_data: Option<String>,
}

/// Parses the output of a plugin.
///
/// # Errors
/// The end of a sentence that begins with the name of the plugin. It quotes no part of the output.
pub fn output(bytes: &[u8], version: ApiVersion) -> Result<Credential, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("printed nothing instead of an ExecCredential".into());
    }
    let output: Output = serde_json::from_slice(bytes).map_err(|error| {
        format!(
            "printed something that is not an ExecCredential in JSON (line {}, column {})",
            error.line(),
            error.column()
        )
    })?;
    if output.kind.as_deref() != Some("ExecCredential") {
        return Err("printed an object whose kind is not ExecCredential".into());
    }
    if output.api_version.as_deref() != Some(version.as_str()) {
        return Err(format!(
            "printed an ExecCredential whose apiVersion is not {}, which its configuration asks for",
            version.as_str()
        ));
    }
    let status = output
        .status
        .ok_or("printed an ExecCredential without a status")?;
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let mut credential = Credential::default();
    match (
        filled(status.client_certificate_data),
        filled(status.client_key_data),
    ) {
        (Some(chain), Some(key)) => {
            let certificate = ClientCertificate::parse(chain.as_bytes(), &key);
            credential.certificate = Some(certificate.map_err(|(part, problem)| {
                let field = if part == pem::IdentityPart::Key {
                    "clientKeyData"
                } else {
                    "clientCertificateData"
                };
                format!("printed an ExecCredential whose {field} {problem}")
            })?);
        }
        (Some(_), None) => return Err("printed a clientCertificateData without a clientKeyData".into()),
        (None, Some(_)) => return Err("printed a clientKeyData without a clientCertificateData".into()),
        (None, None) => {}
    }
    if let Some(token) = filled(status.token) {
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("printed a token with characters that don't fit into a header".into());
        }
        credential.token = Some(token.into());
    }
    if credential.token.is_none() && credential.certificate.is_none() {
        return Err("printed an ExecCredential with neither a token nor a client certificate".into());
    }
    if let Some(at) = filled(status.expiration_timestamp) {
        let at = parse_rfc3339(&at)
            .ok_or("printed an ExecCredential whose expirationTimestamp is not an RFC 3339 time")?;
        // As in client-go, the zero time of Go means that there is no expiry.
        credential.expires_at = Some(at).filter(|at| Some(*at) != parse_rfc3339("0001-01-01T00:00:00Z"));
    }
    Ok(credential)
}
