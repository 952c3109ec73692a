use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::tls::SimCertificate;

pub fn with_token(name: &str, url: &str, ca: &str, token: &str) -> String {
    write(name, url, ca, &json!({ "token": token }))
}

pub fn with_certificate(name: &str, url: &str, ca: &str, certificate: &SimCertificate) -> String {
    let user = json!({
        "client-certificate-data": STANDARD.encode(&certificate.certificate),
        "client-key-data": STANDARD.encode(&certificate.key),
    });
    write(name, url, ca, &user)
}

fn write(name: &str, url: &str, ca: &str, user: &Value) -> String {
    let cluster = json!({ "server": url, "certificate-authority-data": STANDARD.encode(ca) });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": cluster }],
        "users": [{ "name": name, "user": user }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    // JSON is valid YAML, so there is a result even if the YAML writer fails.
    serde_saphyr::to_string(&config).unwrap_or_else(|_| config.to_string())
}
