use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

use super::ControlPlaneError;
use crate::audit::{AuditEvent, AuditLog, AuditMark, COMPLETE, STARTED};

/// The audit policy: the metadata of requests, without bodies. Leaves out health probes and the API server's requests
/// to itself, because they would fill most of the log.
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
    /// Reads the log after a mark. Leaves out a last line that is still being written.
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
            // If a line can't be decoded, the server was killed while it wrote the line.
            if let Ok(raw) = serde_json::from_slice(line) {
                log.events.push_back((log.end, event(&raw)));
            }
            log.end += u64::try_from(line.len()).unwrap_or(0);
        }
        Ok(log)
    }
}

/// The JSON pointer to the ID of the credential.
const CREDENTIAL: &str = "/user/extra/authentication.kubernetes.io~1credential-id/0";

/// Reads an `audit.k8s.io/v1` Event.
fn event(raw: &Value) -> AuditEvent {
    let word = |at: &str| {
        let word = raw.pointer(at).and_then(Value::as_str);
        word.unwrap_or_default().to_owned()
    };
    let code = raw["responseStatus"]["code"].as_u64();
    AuditEvent {
        stage: match &*word("/stage") {
            STARTED => STARTED,
            COMPLETE => COMPLETE,
            _ => "",
        },
        verb: word("/verb"),
        uri: word("/requestURI"),
        user: word("/user/username"),
        credential: word(CREDENTIAL),
        user_agent: word("/userAgent"),
        group: word("/objectRef/apiGroup"),
        resource: word("/objectRef/resource"),
        subresource: word("/objectRef/subresource"),
        namespace: word("/objectRef/namespace"),
        name: word("/objectRef/name"),
        code: code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
        received: word("/requestReceivedTimestamp"),
    }
}
