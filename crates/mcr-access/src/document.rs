//! The schema of kubeconfigs, and their parser.
//!
//! `kube::config::Kubeconfig` does not serve here. It keeps unknown fields with `serde(flatten)`, so `token: 12345` and
//! `name: 1.10` fail to parse, although kubectl accepts both. Its Debug output contains `exec.env`.

use std::{borrow::Cow, ops::Deref};

use base64::Engine;
use serde::{Deserialize, Serialize};

use crate::error::{AccessError, Place};

/// A long value: a certificate, key or token. It borrows from the text of the kubeconfig unless it is escaped or folded
/// there, so a file with hundreds of contexts is not copied.
#[derive(Clone, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A parsed kubeconfig. It has no Debug output, since it contains secrets.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Document<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current_context: Option<String>,
    pub(crate) contexts: Option<Vec<NamedContext>>,
    #[serde(borrow)]
    pub(crate) clusters: Option<Vec<NamedCluster<'a>>>,
    #[serde(borrow)]
    pub(crate) users: Option<Vec<NamedUser<'a>>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedContext {
    pub(crate) name: Option<String>,
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
    /// Of any form, so that an unusual one breaks no other context. Holds labels, which are no part of the access.
    #[serde(default, skip_serializing)]
    pub(crate) extensions: Option<serde_json::Value>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedCluster<'a> {
    pub(crate) name: Option<String>,
    #[serde(borrow)]
    pub(crate) cluster: Option<Cluster<'a>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Cluster<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tls_server_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) insecure_skip_tls_verify: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority_data: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disable_compression: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) extensions: Option<Vec<Extension>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct Extension {
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) extension: serde_json::Value,
}

#[derive(Clone, Default, Deserialize, Serialize)]
pub(crate) struct NamedUser<'a> {
    pub(crate) name: Option<String>,
    #[serde(borrow)]
    pub(crate) user: Option<User<'a>>,
}

#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct User<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate_data: Option<Text<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<String>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key_data: Option<Text<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Text<'a>>,
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
    pub(crate) name: Option<String>,
    pub(crate) value: Option<String>,
}

/// An entry with a name.
pub(crate) trait Named {
    fn name(&self) -> Option<&str>;
}

impl Named for NamedContext {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Named for NamedCluster<'_> {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl Named for NamedUser<'_> {
    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl<'a> Document<'a> {
    /// Parses a kubeconfig.
    ///
    /// # Errors
    /// [`AccessError::Empty`] or [`AccessError::Syntax`]. The texts quote no part of the kubeconfig.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AccessError> {
        /// Enough for files with thousands of contexts. A Secret has at most 1 MiB.
        const MAX_BYTES: usize = 64 << 20;
        if bytes.len() > MAX_BYTES {
            return Err(AccessError::Syntax {
                problem: "it is longer than 64 MiB",
                place: Place::UNKNOWN,
            });
        }
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
            return Err(AccessError::Syntax {
                problem: "it is UTF-16 and must be saved as UTF-8",
                place: Place::UNKNOWN,
            });
        }
        let text = std::str::from_utf8(bytes).map_err(|_| AccessError::Syntax {
            problem: "it is not UTF-8 text",
            place: Place::UNKNOWN,
        })?;
        let blank = |line: &str| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#') || line == "---"
        };
        if text.lines().all(blank) {
            return Err(AccessError::Empty);
        }
        // JSON has its own parser, because a key in YAML has at most 1024 characters. The output of `to_bytes` must
        // parse to the same document.
        if text.starts_with('{')
            && let Ok(document) = serde_json::from_str(text)
        {
            return Ok(document);
        }
        // Aliases can expand a short text to a very long one. This limit is enough for a thousand repetitions of a user.
        let mut options = serde_saphyr::options! { with_snippet: false };
        options.alias_limits.max_total_replayed_events = 10_000;
        // The other limits grow with the text: a file with the contexts of a large fleet exceeds the defaults of the
        // parser. A text has at most as many nodes as bytes.
        if let Some(budget) = &mut options.budget {
            budget.max_nodes = budget.max_nodes.max(text.len());
            budget.max_events = budget.max_events.max(2 * text.len());
            budget.max_total_scalar_bytes = budget.max_total_scalar_bytes.max(text.len());
        }
        let document: Option<Self> =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| if is_base64(text) { AccessError::Syntax {
                problem: "it is base64 text, most likely because it was encoded twice: the field data takes it encoded once, and stringData \
                          as it is",
                place: Place::UNKNOWN,
            } } else { syntax(&error) })?;
        document.ok_or(AccessError::Empty)
    }

    /// Returns the kubeconfig as JSON, which is also YAML.
    pub fn to_bytes(&self) -> Vec<u8> {
        // This can't fail: all keys are strings.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Whether a text is base64 of a text.
fn is_base64(text: &str) -> bool {
    let packed: String = text.split_whitespace().collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(packed);
    bytes.is_ok_and(|bytes| std::str::from_utf8(&bytes).is_ok_and(|text| text.contains(':')))
}

/// Translates an error of the parser. The texts of the parser are not used, since they quote the kubeconfig.
fn syntax(error: &serde_saphyr::Error) -> AccessError {
    use serde_saphyr::Error;
    let place = error.location().map_or(Place::UNKNOWN, |at| Place {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_stay_where_they_stand() {
        let stays = |text: &str, expected: &str| {
            let document = Document::parse(text.as_bytes()).unwrap();
            let user = document.users.unwrap().remove(0).user.unwrap();
            let cluster = document.clusters.unwrap().remove(0).cluster.unwrap();
            let texts = [
                user.token,
                user.client_certificate_data,
                user.client_key_data,
                cluster.certificate_authority_data,
            ];
            let stay = texts.map(|found| {
                let found = found.unwrap();
                assert_eq!(&*found, expected, "{text}");
                matches!(found.0, Cow::Borrowed(_))
            });
            assert_eq!(stay, [stay[0]; 4], "{text}");
            stay[0]
        };
        let yaml = |text: &str| {
            format!(
                "users:\n- user:\n    token: &text {text}\n    client-certificate-data: {text}\n    client-key-data: {text}\n\
                 clusters:\n- cluster:\n    certificate-authority-data: {text}\n"
            )
        };
        let json = |text: &str| {
            format!(
                r#"{{"users": [{{"user": {{"token": {text}, "client-certificate-data": {text}, "client-key-data": {text}}}}}],
                    "clusters": [{{"cluster": {{"certificate-authority-data": {text}}}}}]}}"#
            )
        };
        assert!(stays(&yaml("LS0tLS1CRUdJTiB+/A=="), "LS0tLS1CRUdJTiB+/A=="));
        assert!(stays(&yaml("'LS0t'"), "LS0t"));
        assert!(stays(&yaml("007"), "007"));
        assert!(stays(&json(r#""LS0t""#), "LS0t"));
        // Values that differ from their text in the file are copied.
        assert!(!stays(&yaml(r#""LS\x30t""#), "LS0t"));
        assert!(!stays(&yaml(">-\n      LS\n      0t"), "LS 0t"));
        assert!(!stays(&yaml("|\n      LS\n      0t"), "LS\n0t\n"));
        assert!(!stays(&yaml("!!binary TFMwdA=="), "LS0t"));
        assert!(!stays(&json(r#""LS\u0030t""#), "LS0t"));
    }
}
