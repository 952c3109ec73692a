//! The custom resource `Rollout`, which lives in the hub.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A Deployment for many clusters, which get each new version in waves. It has the name and the namespace of the Rollout.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[kube(group = "fleet.example.com", version = "v1", kind = "Rollout")]
#[kube(namespaced, status = "RolloutStatus")]
#[kube(printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#)]
#[kube(printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.conditions[0].message"}"#)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutSpec {
    /// The Deployment. A change of it is a new version.
    pub(crate) template: Template,
    /// The waves, in their order. A cluster belongs to the first wave that selects it, and to none if no wave does.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub(crate) waves: Vec<Wave>,
    /// While true, no cluster gets a version.
    #[serde(default)]
    pub(crate) paused: bool,
    /// What unreachable and suspended clusters mean for their wave, and for the deletion of the Rollout.
    #[serde(default)]
    pub(crate) unreachable: Unreachable,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
pub(crate) struct Template {
    #[serde(default)]
    pub(crate) metadata: TemplateMeta,
    /// The spec of the Deployment.
    #[schemars(schema_with = "any_object")]
    pub(crate) spec: Value,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, JsonSchema)]
pub(crate) struct TemplateMeta {
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wave {
    pub(crate) name: String,
    /// The labels of its clusters. An empty selector selects all clusters that are in no earlier wave. A wave without
    /// clusters is complete.
    #[schemars(schema_with = "label_selector")]
    pub(crate) selector: LabelSelector,
    /// How many of its clusters may have the new version without being healthy.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub(crate) max_parallel: i32,
    /// How many seconds all its clusters are healthy before the next wave begins.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub(crate) soak_seconds: i32,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub(crate) enum Unreachable {
    /// A wave is complete without them if at least one of its clusters is healthy. Deletion leaves their Deployments.
    #[default]
    Skip,
    /// Their wave and the deletion wait for them, until they are reachable or leave the fleet.
    Wait,
}

#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutStatus {
    /// The generation of the spec that this status is about.
    pub(crate) observed_generation: i64,
    pub(crate) phase: Phase,
    /// A hash of the template: the version. Each Deployment has it as an annotation.
    pub(crate) revision: String,
    /// `Ready`: all clusters are healthy with the version. `Stalled`: a cluster has failed.
    #[schemars(schema_with = "conditions")]
    pub(crate) conditions: Vec<Condition>,
    pub(crate) waves: Vec<WaveStatus>,
    /// The clusters that need attention. Healthy clusters and those whose turn has not come are not named.
    pub(crate) clusters: Vec<ClusterStatus>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub(crate) enum Phase {
    #[default]
    Progressing,
    Paused,
    /// A cluster has failed, and no other one gets the version. A change of the spec goes on.
    Failed,
    Complete,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaveStatus {
    pub(crate) name: String,
    pub(crate) state: WaveState,
    pub(crate) clusters: i32,
    /// How many of its clusters have the version.
    pub(crate) updated: i32,
    pub(crate) healthy: i32,
    /// Since when all its clusters are healthy with the version. It stays once the wave has soaked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub(crate) healthy_since: Option<Time>,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub(crate) enum WaveState {
    Pending,
    Progressing,
    Soaking,
    Complete,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub(crate) struct ClusterStatus {
    pub(crate) name: String,
    pub(crate) wave: String,
    pub(crate) state: ClusterState,
    /// The version that it has or is given, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<String>,
    pub(crate) message: String,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub(crate) enum ClusterState {
    /// It has the version or is given it, and is not healthy.
    Updating,
    Failed,
    /// It connects, or its Deployments are not listed yet.
    Connecting,
    Unreachable,
}

impl RolloutSpec {
    /// The version: FNV-1a over the template, whose keys `serde_json` sorts. The same template is the same version again.
    pub(crate) fn revision(&self) -> String {
        let text = serde_json::json!(self.template).to_string();
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

fn one() -> i32 {
    1
}

// The schemas of Kubernetes' own types, which have none without a feature of k8s-openapi.

fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {"type": "array", "items": {
            "type": "object", "required": ["key", "operator"], "properties": {
                "key": {"type": "string"},
                "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                "values": {"type": "array", "items": {"type": "string"}},
            },
        }},
    }})
}

fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": {
            "type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"], "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string"},
                "observedGeneration": {"type": "integer", "format": "int64"},
                "reason": {"type": "string"},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string"},
            },
        },
    })
}
