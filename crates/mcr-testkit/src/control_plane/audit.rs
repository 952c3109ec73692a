use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::ControlPlaneError;
use crate::audit::{AuditEvent, AuditLog, AuditMark, COMPLETE, STARTED};

/// The audit policy: the metadata of requests, without bodies. Leaves out the requests that the API
/// server sends to itself and the health probes, because they would be most of the log.
pub(super) const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"#;

impl AuditLog {
    /// Reads the log from a mark on. A line that is still being written is left for the next time.
    pub(super) fn read(path: &Path, from: AuditMark) -> Result<Self, ControlPlaneError> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = std::fs::File::open(path)?;
            file.seek(SeekFrom::Start(from.0))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(ControlPlaneError::io(format!("reading {}", path.display())))?;
        let mut log = Self {
            end: from.0,
            ..Self::default()
        };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.last() != Some(&b'\n') {
                break;
            }
            // Only a line that a kill of the server has cut off does not decode.
            if let Ok(raw) = serde_json::from_slice::<Raw>(line) {
                log.events.push_back((log.end, raw.into()));
            }
            log.end += u64::try_from(line.len()).unwrap_or(0);
        }
        Ok(log)
    }
}

/// The fields of an `audit.k8s.io/v1` Event that this module reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    #[serde(default)]
    user: RawUser,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: RawObject,
    #[serde(default)]
    response_status: RawStatus,
    #[serde(default)]
    request_received_timestamp: String,
}

#[derive(Default, Deserialize)]
struct RawUser {
    #[serde(default)]
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

/// Where Kubernetes keeps the ID of a credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawObject {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct RawStatus {
    #[serde(default)]
    code: u16,
}

impl From<Raw> for AuditEvent {
    fn from(raw: Raw) -> Self {
        Self {
            stage: match &*raw.stage {
                STARTED => STARTED,
                COMPLETE => COMPLETE,
                _ => "",
            },
            verb: raw.verb,
            uri: raw.request_uri,
            credential: raw
                .user
                .extra
                .get(CREDENTIAL)
                .and_then(|ids| ids.first().cloned())
                .unwrap_or_default(),
            user: raw.user.username,
            user_agent: raw.user_agent,
            group: raw.object_ref.api_group,
            resource: raw.object_ref.resource,
            subresource: raw.object_ref.subresource,
            namespace: raw.object_ref.namespace,
            name: raw.object_ref.name,
            code: raw.response_status.code,
            received: raw.request_received_timestamp,
        }
    }
}
