//! The facts of an APIBinding that decide about its workspace. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcr_core::reason;
use serde::Deserialize;

use crate::{
    condition::{Condition, find, is_true},
    labels::{LabelKeys, Labels},
    readiness::Readiness,
    stage::RawLogicalCluster,
    url::Export,
};

/// The annotation with the path of a workspace.
const PATH: &str = "kcp.io/path";

/// The fields that are read of an APIBinding. Not the whole type: a field that a later kcp changes must not matter.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct RawBinding {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: Labels,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    reference: Reference,
    #[serde(default)]
    permission_claims: Vec<Claim>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Reference {
    export: Option<ExportName>,
}

#[derive(Debug, Clone, Deserialize)]
struct ExportName {
    path: Option<String>,
    name: String,
}

/// A permission claim, or a kind that is bound.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Claim {
    group: String,
    resource: String,
    identity_hash: Option<String>,
    state: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    api_export_cluster_name: Option<String>,
    phase: Option<String>,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    bound_resources: Vec<Claim>,
    #[serde(default)]
    applied_permission_claims: Vec<Claim>,
    #[serde(default)]
    export_permission_claims: Vec<Claim>,
}

/// The facts of a binding. A LogicalCluster that waits for an initializer or terminator has such facts, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The path of the workspace, if kcp shows it.
    pub(crate) path: Option<Arc<str>>,
    /// Whether the binding is being deleted, or the LogicalCluster does not wait, or no longer.
    pub(crate) deleting: bool,
    /// Why the binding is not ready yet.
    pub(crate) not_ready: Option<Arc<str>>,
    /// Whether the endpoint may still lack objects that the consumer has granted.
    pub(crate) claims_pending: bool,
    /// The kinds that the export claims and the binding does not grant, each with the reason.
    pub(crate) withheld: Withheld,
    /// The labels that become labels of the cluster.
    pub(crate) labels: Labels,
}

/// Kinds as `<plural>` or `<plural>.<group>`, and why each is withheld.
pub(crate) type Withheld = BTreeMap<String, String>;

impl Binding {
    /// The facts of a binding. None if it binds another export: an export that claims APIBindings sees those of others, too.
    pub(crate) fn of(
        raw: &RawBinding,
        export: &Export,
        readiness: Readiness,
        keys: &LabelKeys,
    ) -> Option<Self> {
        let bound = raw.spec.reference.export.as_ref()?;
        let cluster = raw.status.api_export_cluster_name.as_deref();
        let is_ours = match cluster.filter(|id| !id.is_empty()) {
            Some(id) => id == &*export.cluster,
            // kcp has not looked up the export, which may not even exist. kcp takes the id for a path, too.
            None => {
                let path = bound.path.as_deref();
                path.is_some_and(|path| path == &*export.cluster || Some(path) == export.path.as_deref())
            }
        };
        (is_ours && bound.name == *export.name).then(|| Self {
            path: raw
                .metadata
                .annotations
                .get(PATH)
                .map(|path| path.as_str().into()),
            deleting: raw.metadata.deletion_timestamp.is_some(),
            not_ready: raw.not_ready(readiness).map(Into::into),
            claims_pending: raw.claims_pending(),
            withheld: raw.withheld(bound),
            labels: keys.of(&raw.metadata.labels),
        })
    }

    /// The facts of a LogicalCluster. The workspace is a cluster as long as it waits, so it is always ready.
    pub(crate) fn of_logical_cluster(raw: &RawLogicalCluster, waits: bool, keys: &LabelKeys) -> Self {
        Self {
            path: raw
                .metadata
                .annotations
                .get(PATH)
                .map(|path| path.as_str().into()),
            deleting: !waits,
            not_ready: None,
            claims_pending: false,
            withheld: Withheld::new(),
            labels: keys.of(&raw.metadata.labels),
        }
    }
}

impl Claim {
    /// The identity of the kind. Empty for built-in kinds.
    fn identity(&self) -> &str {
        self.identity_hash.as_deref().unwrap_or_default()
    }

    /// The kind as `<plural>` or `<plural>.<group>`.
    fn kind(&self, group: &str) -> String {
        match group {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    /// The kinds that the claim serves: kcp takes the two groups of events as one.
    fn kinds(&self) -> Vec<String> {
        const EVENTS: [&str; 2] = ["", "events.k8s.io"];
        if self.resource == "events" && EVENTS.contains(&&*self.group) {
            EVENTS.map(|group| self.kind(group)).into()
        } else {
            vec![self.kind(&self.group)]
        }
    }

    fn is_about(&self, other: &Self) -> bool {
        self.kinds() == other.kinds() && self.identity() == other.identity()
    }

    fn is_accepted(&self) -> bool {
        self.state.as_deref() == Some("Accepted")
    }
}

impl RawBinding {
    /// The kinds that the export claims, and whether the binding accepts each.
    pub(crate) fn claims(&self) -> Vec<(String, bool)> {
        let asked = &self.spec.permission_claims;
        let accepted = |claim: &Claim| {
            asked
                .iter()
                .any(|asked| asked.is_accepted() && asked.is_about(claim))
        };
        let claims = self.status.export_permission_claims.iter();
        claims
            .map(|claim| (claim.kind(&claim.group), accepted(claim)))
            .collect()
    }

    /// The claims of the export that are not applied. kcp notes those of the export when it begins to bind.
    fn withheld(&self, export: &ExportName) -> Withheld {
        let Status {
            bound_resources: bound,
            applied_permission_claims: applied,
            export_permission_claims: exported,
            ..
        } = &self.status;
        let asked = &self.spec.permission_claims;
        // An own kind of the export hides a claim on it. Bindings to the export can be read without a claim.
        let mut served: BTreeSet<String> = bound.iter().flat_map(Claim::kinds).collect();
        served.insert("apibindings.apis.kcp.io".to_owned());
        let mut withheld = Withheld::new();
        for claim in exported {
            if applied.iter().any(|applied| applied.is_about(claim)) {
                served.extend(claim.kinds());
                continue;
            }
            let binding = &self.metadata.name;
            let decided = asked.iter().find(|asked| asked.is_about(claim));
            let missing = match decided {
                Some(decided) if decided.is_accepted() => format!(
                    "is accepted in APIBinding {binding}, but kcp has not applied it yet; if this lasts, see the condition \
                     {CLAIMS_APPLIED} of the binding"
                ),
                Some(_) => format!("is not accepted in APIBinding {binding}; set its state to Accepted"),
                None => {
                    format!("is not accepted in APIBinding {binding}; add it there with the state Accepted")
                }
            };
            let path = export.path.as_deref().map(|path| format!("{}:", reason(path)));
            let of_export = format!("APIExport {}{}", path.unwrap_or_default(), export.name);
            let identity = match claim.identity() {
                "" => String::new(),
                identity => format!(" with the identityHash {}", reason(identity)),
            };
            let name = claim.kind(&claim.group);
            let reason = format!("permission claim {name}{identity} of {of_export} {missing}");
            withheld.extend(claim.kinds().into_iter().map(|kind| (kind, reason.clone())));
        }
        withheld.retain(|kind, _| !served.contains(kind));
        withheld
    }

    fn claims_pending(&self) -> bool {
        match find(&self.status.conditions, CLAIMS_APPLIED) {
            Some(condition) => condition.status != "True",
            // Without a claim kcp may leave the condition out.
            None => self.spec.permission_claims.iter().any(Claim::is_accepted),
        }
    }

    fn not_ready(&self, readiness: Readiness) -> Option<String> {
        let name = &self.metadata.name;
        let conditions = &self.status.conditions;
        let phase = self.status.phase.as_deref().unwrap_or_default();
        if phase != "Bound" {
            let cause = conditions
                .iter()
                .find(|condition| condition.status == "False" && condition.type_ != READY);
            let cause = cause
                .map(|condition| format!("; {}", lacking(condition)))
                .unwrap_or_default();
            return Some(format!(
                "APIBinding {name} is not bound yet: its phase is {phase:?}{cause}"
            ));
        }
        if readiness >= Readiness::Ready && !is_true(conditions, READY) {
            return Some(not_true(name, conditions, READY));
        }
        let waits = readiness >= Readiness::PermissionClaimsApplied && self.claims_pending();
        waits.then(|| not_true(name, conditions, CLAIMS_APPLIED))
    }
}

const READY: &str = "Ready";
pub(crate) const CLAIMS_APPLIED: &str = "PermissionClaimsApplied";

fn not_true(name: &str, conditions: &[Condition], type_: &str) -> String {
    match find(conditions, type_) {
        Some(condition) => format!("APIBinding {name}: {}", lacking(condition)),
        None => format!("APIBinding {name} has no condition {type_} yet"),
    }
}

/// A condition that is not true, in words.
fn lacking(condition: &Condition) -> String {
    let Condition { type_, status, .. } = condition;
    let mut words = format!("condition {type_} is {status}");
    for more in [&condition.reason, &condition.message].into_iter().flatten() {
        words = format!("{words}: {more}");
    }
    reason(&words)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn binding(of: impl FnOnce(&mut Value)) -> RawBinding {
        let mut value: Value =
            serde_json::from_str(include_str!("../tests/fixtures/apibinding-v1alpha2.json")).unwrap();
        of(&mut value);
        serde_json::from_value(value).unwrap()
    }

    fn export() -> Export {
        Export {
            cluster: "1rlzadlzb44i0g5n".into(),
            name: "mongodb".into(),
            path: Some("root:mongodb".into()),
        }
    }

    fn facts(raw: &RawBinding, readiness: Readiness) -> Binding {
        Binding::of(raw, &export(), readiness, &LabelKeys::default()).unwrap()
    }

    /// Why it is not ready, by each readiness.
    fn reasons(raw: &RawBinding) -> [Option<String>; 3] {
        [
            Readiness::Bound,
            Readiness::Ready,
            Readiness::PermissionClaimsApplied,
        ]
        .map(|readiness| facts(raw, readiness).not_ready.map(|reason| reason.to_string()))
    }

    #[test]
    fn a_binding_becomes_ready_in_steps() {
        let claims = "APIBinding mongodb: condition PermissionClaimsApplied is False: InternalError: Permission claims are \
                      not applied yet";
        let unready = binding(|_| ());
        assert_eq!(reasons(&unready), [None, None, Some(claims.to_owned())]);
        let facts = facts(&unready, Readiness::Ready);
        assert_eq!(
            facts,
            Binding {
                path: Some("root:consumer-a".into()),
                deleting: false,
                not_ready: None,
                claims_pending: true,
                withheld: Withheld::new(),
                labels: Labels::new(),
            }
        );
        let new = binding(|value| value["status"] = json!({}));
        let reason = Some("APIBinding mongodb is not bound yet: its phase is \"\"".to_owned());
        assert_eq!(reasons(&new), [reason.clone(), reason.clone(), reason]);
        let ready = binding(|value| {
            value["status"]["conditions"][5] = json!({"type": "PermissionClaimsApplied", "status": "True"})
        });
        assert_eq!(reasons(&ready), [None, None, None]);
        let not_ready = binding(|value| value["status"]["conditions"] = json!([]));
        assert_eq!(
            reasons(&not_ready)[..2],
            [
                None,
                Some("APIBinding mongodb has no condition Ready yet".to_owned())
            ]
        );
        let broken = binding(|value| {
            value["status"]["phase"] = "Binding".into();
            value["status"]["conditions"][1] =
                json!({"type": "APIExportValid", "status": "False", "reason": "NotFound"});
        });
        assert_eq!(
            reasons(&broken)[0].as_deref(),
            Some(
                "APIBinding mongodb is not bound yet: its phase is \"Binding\"; condition APIExportValid is False: NotFound"
            )
        );
    }

    #[test]
    fn the_labels_that_are_named_are_those_of_the_binding_or_of_the_logical_cluster() {
        let keys = LabelKeys::new(["internal.apis.kcp.io/export", "tenancy.kcp.io/phase"]);
        let of_binding = Binding::of(&binding(|_| ()), &export(), Readiness::Ready, &keys).unwrap();
        let label = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
        assert_eq!(
            of_binding.labels,
            label("internal.apis.kcp.io/export", "2zq8vxk3m0")
        );
        let raw = serde_json::from_str(include_str!("../tests/fixtures/logicalcluster.json")).unwrap();
        let waiting = Binding::of_logical_cluster(&raw, true, &keys);
        assert_eq!(waiting.labels, label("tenancy.kcp.io/phase", "Ready"));
    }

    #[test]
    fn a_binding_without_granted_claims_need_not_report_that_they_are_applied() {
        let without = |claims: Value| {
            binding(|value| {
                value["spec"]["permissionClaims"] = claims;
                value["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
            })
        };
        let rejected = json!([{"resource": "secrets", "state": "Rejected"}]);
        let accepted = json!([{"resource": "secrets", "state": "Accepted"}]);
        assert!(!without(json!([])).claims_pending() && !without(rejected).claims_pending());
        assert!(without(accepted).claims_pending());
    }

    #[test]
    fn claims_that_are_not_applied_are_withheld_and_report_what_to_do() {
        let withheld =
            |of: &dyn Fn(&mut Value)| facts(&binding(|value| of(value)), Readiness::Bound).withheld;
        let maps = json!({"resource": "configmaps", "verbs": ["*"]});
        let foreign = json!({"group": "other.io", "resource": "sheets", "identityHash": "h2\n"});
        let with = |claim: &Value, state: &str| {
            let mut claim = claim.clone();
            claim["state"] = state.into();
            claim
        };
        let exported = |value: &mut Value, claims: Value| value["status"]["exportPermissionClaims"] = claims;
        let text = |kind: &str, rest: &str| {
            let name = "permission claim";
            Withheld::from([(kind.to_owned(), format!("{name} {kind}{rest}"))])
        };

        let missing = withheld(&|value| exported(value, json!([maps])));
        let of = " of APIExport root:mongodb:mongodb is";
        let expected =
            format!("{of} not accepted in APIBinding mongodb; add it there with the state Accepted");
        assert_eq!(missing, text("configmaps", &expected));
        let rejected = withheld(&|value| {
            exported(value, json!([maps]));
            value["spec"]["permissionClaims"] = json!([with(&maps, "Rejected")]);
        });
        let expected = format!("{of} not accepted in APIBinding mongodb; set its state to Accepted");
        assert_eq!(rejected, text("configmaps", &expected));
        let pending = withheld(&|value| {
            exported(value, json!([maps]));
            value["spec"]["permissionClaims"] = json!([with(&maps, "Accepted")]);
        });
        let pending = &pending["configmaps"];
        assert!(
            pending.contains("is accepted in APIBinding mongodb, but kcp has not applied it yet"),
            "{pending}"
        );

        // The binding accepts the kind of another export.
        let other = withheld(&|value| {
            exported(value, json!([foreign]));
            let mut old = with(&foreign, "Accepted");
            old["identityHash"] = "h1".into();
            value["spec"]["permissionClaims"] = json!([old]);
            value["status"]["appliedPermissionClaims"] = json!([old]);
        });
        let other = &other["sheets.other.io"];
        assert!(
            other.contains("with the identityHash h2 of APIExport") && other.contains("add it there"),
            "{other}"
        );

        // Both groups of events are one claim.
        let events = |applied: Value| {
            withheld(&|value| {
                exported(value, json!([{"group": "events.k8s.io", "resource": "events"}]));
                value["status"]["appliedPermissionClaims"] = applied.clone();
            })
        };
        let kinds: Vec<String> = events(json!([])).into_keys().collect();
        assert_eq!(kinds, ["events", "events.events.k8s.io"]);
        assert_eq!(
            events(json!([{"group": "", "resource": "events"}])),
            Withheld::new()
        );
        // Kinds that are served all the same.
        let served = withheld(&|value| {
            exported(
                value,
                json!([
                    {"group": "apis.kcp.io", "resource": "apibindings"},
                    {"group": "mongodbcommunity.mongodb.com", "resource": "mongodbcommunity"},
                ]),
            );
        });
        assert_eq!(served, Withheld::new());
    }

    #[test]
    fn bindings_of_other_exports_are_left_out() {
        let of =
            |raw: &RawBinding| Binding::of(raw, &export(), Readiness::Ready, &LabelKeys::default()).is_some();
        assert!(of(&binding(|_| ())));
        assert!(of(&binding(|value| value["status"] = json!({}))));
        assert!(of(&binding(
            |value| value["status"]["apiExportClusterName"] = "".into()
        )));
        assert!(!of(&binding(
            |value| value["spec"]["reference"]["export"]["name"] = "other".into()
        )));
        assert!(!of(&binding(
            |value| value["status"]["apiExportClusterName"] = "344qdshnqz45fjlp".into()
        )));
        assert!(!of(&binding(|value| value["spec"] = json!({}))));
        for (path, is_ours) in [
            (json!("root:mongodb"), true),
            (json!("1rlzadlzb44i0g5n"), true),
            (json!("root:other"), false),
            (json!("root"), false),
            // An export of the same name in the workspace of the binding.
            (json!(""), false),
            (json!(null), false),
        ] {
            let unresolved = binding(|value| {
                value["status"] = json!({});
                value["spec"]["reference"]["export"]["path"] = path.clone();
            });
            assert_eq!(of(&unresolved), is_ours, "{path}");
        }
    }
}
