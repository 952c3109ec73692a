use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use super::ControlPlaneError;

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

/// One request, as the API server saw it.
///
/// A request is logged when its answer is complete (`ResponseComplete`). A watch is logged twice:
/// when it starts (`ResponseStarted`) and when it ends (`ResponseComplete`), so count watches with
/// [`is_start`](Self::is_start).
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(from = "Raw")]
#[non_exhaustive]
pub struct AuditEvent {
    /// `ResponseStarted`, `ResponseComplete` or `Panic`.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, …; for a non-resource request the HTTP method in lower case.
    pub verb: String,
    /// The path and query.
    pub uri: String,
    /// The user's name.
    pub user: String,
    /// The certificate or token that the user was recognised by: `X509SHA256=…` or `JTI=…`; or empty.
    pub credential: String,
    /// The `User-Agent` header.
    pub user_agent: String,
    /// The API group; empty for the core group and non-resource requests.
    pub group: String,
    /// The resource in plural, such as `configmaps`; empty for a non-resource request.
    pub resource: String,
    /// The subresource, such as `status`; or empty.
    pub subresource: String,
    /// The namespace; or empty.
    pub namespace: String,
    /// The object's name; or empty.
    pub name: String,
    /// The HTTP status of the answer; 0 if there was none.
    pub code: u16,
    /// When the request arrived (RFC 3339).
    pub received: String,
}

impl AuditEvent {
    /// Whether this is the one event that stands for its request: the start of a watch, the end of
    /// anything else.
    pub fn is_start(&self) -> bool {
        let watch = self.verb == "watch";
        self.stage
            == if watch {
                "ResponseStarted"
            } else {
                "ResponseComplete"
            }
    }

    /// Whether this is a LIST of a resource. One of a single object (`limit=1`) does not count: watches ask so for the newest
    /// resource version.
    pub fn is_list(&self, resource: &str) -> bool {
        let is_check = format!("{}&", self.uri).contains("?limit=1&");
        self.verb == "list" && !is_check && self.resource == resource && self.stage == "ResponseComplete"
    }

    /// Whether this is the start of a WATCH of a resource.
    pub fn is_watch_start(&self, resource: &str) -> bool {
        self.verb == "watch" && self.resource == resource && self.stage == "ResponseStarted"
    }
}

/// A position in the audit log. `audit_since(mark)` returns the events after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditMark(u64);

/// Events of the audit log, oldest first.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    events: Vec<(u64, AuditEvent)>,
    end: u64,
}

impl AuditLog {
    /// All events.
    pub fn events(&self) -> impl Iterator<Item = &AuditEvent> {
        self.events.iter().map(|(_, event)| event)
    }

    /// The number of events for which the predicate holds.
    pub fn count(&self, mut predicate: impl FnMut(&AuditEvent) -> bool) -> usize {
        self.events().filter(|event| predicate(event)).count()
    }

    /// The end of this log.
    pub fn mark(&self) -> AuditMark {
        AuditMark(self.end)
    }

    /// The events after a mark.
    #[must_use]
    pub fn since(&self, mark: AuditMark) -> Self {
        let events = self
            .events
            .iter()
            .filter(|(start, _)| *start >= mark.0)
            .cloned()
            .collect();
        Self {
            events,
            end: self.end,
        }
    }

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
            events: Vec::new(),
            end: from.0,
        };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if line.last() != Some(&b'\n') {
                break;
            }
            // Only a line that a kill of the server has cut off does not decode.
            if let Ok(event) = serde_json::from_slice(line) {
                log.events.push((log.end, event));
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
            stage: raw.stage,
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
