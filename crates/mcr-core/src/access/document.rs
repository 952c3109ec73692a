//! The form of a kubeconfig.
//!
//! These types and not `kube::config::Kubeconfig`, because kube's keep unknown fields by flattening, through
//! which `token: 12345` and `name: 1.10` no longer parse (kubectl accepts both), and show `exec.env` in Debug.

use serde::{Deserialize, Serialize};

use super::error::{AccessError, Place};

/// A kubeconfig. No Debug: it holds secrets.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Document {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_context: Option<String>,
    #[serde(default)]
    pub(crate) contexts: Option<Vec<NamedContext>>,
    #[serde(default)]
    pub(crate) clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    pub(crate) users: Option<Vec<NamedUser>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedContext {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) context: Option<Context>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Context {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedCluster {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) cluster: Option<Cluster>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Cluster {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_server_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) insecure_skip_tls_verify: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority_data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disable_compression: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Extension {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) extension: serde_json::Value,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedUser {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) user: Option<User>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct User {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate_data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key_data: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "tokenFile")]
    pub(crate) token_file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) username: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "as")]
    pub(crate) as_user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) as_uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) as_groups: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) as_user_extra: Option<std::collections::BTreeMap<String, Vec<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) auth_provider: Option<AuthProvider>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exec: Option<Exec>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct AuthProvider {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Exec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) env: Option<Vec<ExecEnv>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) install_hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interactive_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) provide_cluster_info: Option<bool>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct ExecEnv {
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) value: Option<String>,
}

impl User {
    /// Whether all that there is to know about it stands here: it names no files and no programs.
    pub(crate) fn stays(&self) -> bool {
        self.client_certificate.is_none()
            && self.client_key.is_none()
            && self.token_file.is_none()
            && self.exec.is_none()
    }
}

impl Document {
    /// Parses a kubeconfig. What it says about broken ones holds no part of them.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, AccessError> {
        /// etcd does not hold Secrets of more than 1 MiB; files of hundreds of contexts do exist.
        const MOST: usize = 64 << 20;
        if bytes.len() > MOST {
            return Err(AccessError::Syntax {
                problem: "it is longer than 64 MiB",
                place: Place { line: 0, column: 0 },
            });
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let nowhere = Place { line: 0, column: 0 };
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            return Err(AccessError::Syntax {
                problem: "it is UTF-16 and must be saved as UTF-8",
                place: nowhere,
            });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| AccessError::Syntax {
            problem: "it is not UTF-8 text",
            place: nowhere,
        })?;
        let blank = |line: &str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        };
        if text.lines().all(blank) {
            return Err(AccessError::Empty);
        }
        // JSON is YAML, but not to the last key: those of YAML end at 1024 characters. What `to_bytes` wrote must come
        // back as it was.
        if text.starts_with('{')
            && let Ok(document) = serde_json::from_str(text)
        {
            return Ok(document);
        }
        // A short text can stand for a very long one: who repeats a user a thousand times is still below this.
        let mut options = serde_saphyr::options! { with_snippet: false };
        options.alias_limits.max_total_replayed_events = 10_000;
        // What is read may be as long as it likes otherwise: a file with the contexts of a large fleet has more parts than
        // the parser's defaults allow, and no more than it has characters.
        if let Some(budget) = &mut options.budget {
            budget.max_nodes = budget.max_nodes.max(text.len());
            budget.max_events = budget.max_events.max(2 * text.len());
            budget.max_total_scalar_bytes = budget.max_total_scalar_bytes.max(text.len());
        }
        let document: Option<Self> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| syntax(&error))?;
        document.ok_or(AccessError::Empty)
    }

    /// The kubeconfig as JSON, which is YAML.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Maps with string keys and strings only: this can't fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Says what is wrong without any text of the parser's: its messages quote the source.
fn syntax(error: &serde_saphyr::Error) -> AccessError {
    use serde_saphyr::Error;
    let place = error.location().map_or(Place { line: 0, column: 0 }, |at| Place {
        line: at.line(),
        column: at.column(),
    });
    let mut inner = error;
    while let Error::WithSnippet { error, .. } | Error::AliasError { error, .. } = inner {
        inner = error;
    }
    let problem = match inner {
        Error::Eof { .. } => "it ends too early",
        Error::MultipleDocuments { .. } => "it holds more than one YAML document",
        Error::DuplicateMappingKey { .. } => "a key is there twice",
        Error::UnknownAnchor { .. } => "an alias refers to an anchor that does not exist",
        Error::Unexpected { .. }
        | Error::SerdeInvalidType { .. }
        | Error::SerdeInvalidValue { .. }
        | Error::InvalidScalar { .. }
        | Error::InvalidBooleanStrict { .. }
        | Error::SerdeInvalidLength { .. } => "a value has the wrong form (text, list or mapping expected)",
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => "it is nested too deeply or expands to too much",
        _ => "it is not valid YAML",
    };
    AccessError::Syntax { problem, place }
}
