use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{ControlPlane, ControlPlaneError};
use crate::request::send;

/// How long the authorizer may take to notice a change. It reads from its own caches.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

const RBAC: &str = "rbac.authorization.k8s.io";

/// A rule: these verbs on these resources of these API groups (`""` is the core group).
pub fn policy_rule<G, R, V>(
    groups: impl IntoIterator<Item = G>,
    resources: impl IntoIterator<Item = R>,
    verbs: impl IntoIterator<Item = V>,
) -> PolicyRule
where
    G: Into<String>,
    R: Into<String>,
    V: Into<String>,
{
    PolicyRule {
        api_groups: Some(groups.into_iter().map(Into::into).collect()),
        resources: Some(resources.into_iter().map(Into::into).collect()),
        verbs: verbs.into_iter().map(Into::into).collect(),
        ..PolicyRule::default()
    }
}

/// Rules in one namespace, or in all.
pub(super) type Grant = (Option<String>, Vec<PolicyRule>);

/// The rights of one subject: for each scope, a role and a binding with the name of the subject.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) plane: ControlPlane,
    subject: Subject,
    /// The user name that the authorizer sees.
    pub(super) user: String,
    groups: Vec<String>,
    /// The name of the roles and bindings.
    role: String,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    scopes: BTreeSet<Option<String>>,
    probes: Vec<Value>,
}

impl Access {
    /// Creates a subject with these rules, and waits until they work.
    pub(super) async fn with(
        plane: ControlPlane,
        subject: Subject,
        user: String,
        groups: Vec<String>,
        grants: Vec<Grant>,
    ) -> Result<Arc<Self>, ControlPlaneError> {
        let role = format!("mcr-testkit:{user}");
        let access = Self {
            plane,
            subject,
            user,
            groups,
            role,
            given: Mutex::default(),
        };
        for grant in grants {
            access.allow(grant).await?;
        }
        Ok(Arc::new(access))
    }

    /// Sets the rules of a scope, and waits until they work.
    pub(super) async fn allow(&self, (scope, rules): Grant) -> Result<(), ControlPlaneError> {
        let probes = rules.iter().filter_map(|rule| self.probe(scope.as_deref(), rule));
        let probes: Vec<Value> = probes.collect();
        {
            let mut given = self.given.lock();
            given.scopes.insert(scope.clone());
            given.probes.extend(probes.iter().cloned());
        }
        let [role, binding] = kinds(scope.as_deref());
        let role_ref = json!({ "apiGroup": RBAC, "kind": role, "name": self.role });
        let bound = json!({ "roleRef": role_ref, "subjects": [self.subject] });
        for (kind, mut object) in [(role, json!({ "rules": rules })), (binding, bound)] {
            object["apiVersion"] = format!("{RBAC}/v1").into();
            object["kind"] = kind.into();
            object["metadata"] = json!({ "name": self.role });
            let path = self.path(scope.as_deref(), kind) + "?fieldManager=mcr-testkit&force=true";
            let applied = send(&self.plane.client(), "PATCH", &path, &object).await;
            applied.map_err(ControlPlaneError::api(format!("granting rules to {}", self.user)))?;
        }
        self.wait(&probes, true).await
    }

    /// Removes all rules, and waits until none works any more.
    pub(super) async fn revoke(&self) -> Result<(), ControlPlaneError> {
        let Given { scopes, probes } = std::mem::take(&mut *self.given.lock());
        for scope in scopes {
            let [_, binding] = kinds(scope.as_deref());
            let path = self.path(scope.as_deref(), binding);
            match send(&self.plane.client(), "DELETE", &path, &json!({})).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => {
                    result.map_err(ControlPlaneError::api(format!("revoking rules of {}", self.user)))?;
                }
            }
        }
        self.wait(&probes, false).await
    }

    fn path(&self, namespace: Option<&str>, kind: &str) -> String {
        let place = namespace.map_or_else(String::new, |namespace| format!("/namespaces/{namespace}"));
        format!("/apis/{RBAC}/v1{place}/{}s/{}", kind.to_lowercase(), self.role)
    }

    /// A `SubjectAccessReview` whose answer depends on the rule. One review for each rule suffices, because the
    /// authorizer reads a role as a whole.
    fn probe(&self, namespace: Option<&str>, rule: &PolicyRule) -> Option<Value> {
        let first = |values: &Option<Vec<String>>| values.as_ref()?.first().cloned();
        let verb = rule.verbs.first();
        let mut spec = json!({ "user": self.user, "groups": self.groups });
        if let Some(resource) = first(&rule.resources) {
            let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
            spec["resourceAttributes"] = json!({
                "namespace": namespace, "group": first(&rule.api_groups), "resource": resource,
                "subresource": subresource, "name": first(&rule.resource_names), "verb": verb,
            });
        } else {
            let path = first(&rule.non_resource_urls)?;
            spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb });
        }
        let version = "authorization.k8s.io/v1";
        Some(json!({ "apiVersion": version, "kind": "SubjectAccessReview", "spec": spec }))
    }

    async fn wait(&self, probes: &[Value], allowed: bool) -> Result<(), ControlPlaneError> {
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (client, started) = (self.plane.client(), Instant::now());
        for probe in probes {
            loop {
                let doing = format!("asking what {} may do", self.user);
                let review = send(&client, "POST", REVIEWS, probe).await;
                let review = review.map_err(ControlPlaneError::api(doing))?;
                if review["status"]["allowed"] == allowed {
                    break;
                }
                if started.elapsed() > NOTICED_WITHIN {
                    let hint = if allowed {
                        ""
                    } else {
                        ": does another binding grant the same?"
                    };
                    return Err(ControlPlaneError::NoEffect {
                        what: format!("the change of what {} may do", self.user),
                        after: NOTICED_WITHIN,
                        hint: hint.to_owned(),
                    });
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }
}

/// The kinds of a role and its binding.
fn kinds(namespace: Option<&str>) -> [&'static str; 2] {
    if namespace.is_some() {
        ["Role", "RoleBinding"]
    } else {
        ["ClusterRole", "ClusterRoleBinding"]
    }
}
