//! The kinds of a workspace: those that kcp serves in every workspace, and those of APIResourceSchemas.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use mcr_testkit::sim::SimError;
use mcr_testkit::sim::crd;
use mcr_testkit::sim::kinds::{Kind, Versions, builtins, resource_id};
use mcr_testkit::sim::object::text;

/// Groups of Kubernetes in which a workspace serves everything that the simulator supports.
const GROUPS: &str = "admissionregistration.k8s.io apiextensions.k8s.io authentication.k8s.io authorization.k8s.io \
                      certificates.k8s.io coordination.k8s.io events.k8s.io rbac.authorization.k8s.io";

/// The resources of the core group that an export may claim. All resources in `GROUPS` may be claimed.
const CLAIMABLE_CORE: &str = "configmaps events namespaces resourcequotas secrets serviceaccounts";

/// A further resource that every workspace serves.
const LIMIT_RANGES: &str = "limitranges";

fn has(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

pub(super) const BINDINGS: &str = "apibindings.apis.kcp.io";
pub(super) const EXPORTS: &str = "apiexports.apis.kcp.io";
pub(super) const SLICES: &str = "apiexportendpointslices.apis.kcp.io";
pub(super) const SCHEMAS: &str = "apiresourceschemas.apis.kcp.io";
pub(super) const WORKSPACES: &str = "workspaces.tenancy.kcp.io";
pub(super) const TYPES: &str = "workspacetypes.tenancy.kcp.io";
pub(super) const LOGICAL_CLUSTERS: &str = "logicalclusters.core.kcp.io";

/// kcp's own kinds: group, version, plural, kind, and whether they have a status. All are cluster-scoped.
const OWN: &str = "
    apis.kcp.io v1alpha2 apiexports APIExport true
    apis.kcp.io v1alpha2 apibindings APIBinding true
    apis.kcp.io v1alpha1 apiexportendpointslices APIExportEndpointSlice true
    apis.kcp.io v1alpha1 apiresourceschemas APIResourceSchema false
    tenancy.kcp.io v1alpha1 workspaces Workspace true
    tenancy.kcp.io v1alpha1 workspacetypes WorkspaceType true
    core.kcp.io v1alpha1 logicalclusters LogicalCluster true";

/// The kinds that every workspace serves. Created once.
pub(super) fn everywhere() -> &'static Versions {
    static KINDS: OnceLock<Versions> = OnceLock::new();
    KINDS.get_or_init(|| {
        let mut versions = Versions::new();
        for ((group, version), kinds) in builtins() {
            let served = |kind: &&Arc<Kind>| {
                has(GROUPS, group)
                    || group.is_empty() && (has(CLAIMABLE_CORE, &kind.plural) || *kind.plural == *LIMIT_RANGES)
            };
            let served: Vec<Arc<Kind>> = kinds.iter().filter(served).cloned().collect();
            if !served.is_empty() {
                versions.insert((group.clone(), version.clone()), served);
            }
        }
        for own in OWN.lines() {
            let [group, version, plural, kind, has_status] = own.split_whitespace().collect::<Vec<_>>()[..] else {
                continue;
            };
            let mut of_version = json!({ "name": version, "served": true, "storage": true });
            if has_status == "true" {
                of_version["subresources"] = json!({ "status": {} });
            }
            let names = json!({
                "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
                "categories": ["kcp"],
            });
            let own = json!({
                "metadata": { "name": resource_id(group, plural) },
                "spec": { "group": group, "names": names, "scope": "Cluster", "versions": [of_version] },
            });
            // This can't fail, because each has a group, a plural and one stored version.
            let own = crd::kinds(&own).unwrap_or_default();
            let at = (Cow::Borrowed(group), Cow::Borrowed(version));
            versions.entry(at).or_default().extend(own);
        }
        versions
    })
}

/// No kinds, for views that serve only selected kinds.
pub(super) fn nothing() -> &'static Versions {
    static NONE: Versions = Versions::new();
    &NONE
}

/// A kind that every workspace serves, in its stored version.
pub(super) fn well_known(table: &str) -> Option<Arc<Kind>> {
    let all = || everywhere().values().flatten();
    let stored = |kind: &&Arc<Kind>| kind.custom.as_ref().is_none_or(|custom| custom.storage);
    all().find(|kind| &*kind.table == table && stored(kind)).cloned()
}

/// All versions of a resource that an export may claim. It is built in, or belongs to one of kcp's groups.
pub(super) fn claimable(group: &str, resource: &str) -> Vec<Arc<Kind>> {
    let may = match group {
        "" => has(CLAIMABLE_CORE, resource),
        group => has(GROUPS, group) || group.ends_with(".kcp.io"),
    };
    let all = everywhere().values().flatten();
    all.filter(|kind| may && kind.group == group && kind.plural == resource)
        .cloned()
        .collect()
}

/// The table of an exported resource. It contains the identity, because exports with different identities may have
/// resources of the same name.
pub(super) fn bound_table(group: &str, plural: &str, identity: &str) -> Arc<str> {
    format!("{}:{identity}", resource_id(group, plural)).into()
}

/// The kinds of an APIResourceSchema in an export with this identity.
pub(super) fn of_schema(schema: &Value, identity: &str) -> Result<Vec<Arc<Kind>>, SimError> {
    let crd = as_crd(schema);
    let mut kinds = crd::kinds(&crd)?;
    for kind in &mut kinds {
        if let Some(kind) = Arc::get_mut(kind) {
            kind.table = bound_table(&kind.group, &kind.plural, identity);
        }
    }
    Ok(kinds)
}

/// Converts an APIResourceSchema into a CRD. Its JSON schema is one level higher than in a CRD.
fn as_crd(schema: &Value) -> Value {
    let spec = &schema["spec"];
    let versions = spec["versions"].as_array().into_iter().flatten();
    let versions: Vec<Value> = versions
        .map(|version| {
            let mut version = version.clone();
            version["schema"] = json!({ "openAPIV3Schema": version["schema"] });
            version
        })
        .collect();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (plural, group) = (word(&spec["names"]["plural"]), word(&spec["group"]));
    json!({
        "metadata": { "name": format!("{plural}.{group}"), "uid": text(schema, "uid") },
        "spec": { "group": group, "names": spec["names"], "scope": spec["scope"], "versions": versions },
    })
}
