use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ControlPlaneError;

/// The limit for the authorizer, which reads from its own caches, to notice a change.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

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

/// The rights of one subject: a role and a binding for each scope, all named after the subject.
#[derive(Debug)]
pub(super) struct Access {
    subject: Subject,
    /// The user name that the authorizer sees.
    user: String,
    groups: Vec<String>,
    name: String,
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    scopes: BTreeSet<Option<String>>,
    probes: Vec<SubjectAccessReview>,
}

impl Access {
    pub(super) fn new(subject: Subject, user: String, groups: Vec<String>) -> Self {
        let name = format!("mcr-testkit:{user}");
        Self {
            subject,
            user,
            groups,
            name,
            given: Mutex::default(),
        }
    }

    /// Sets the rules of a scope and waits until they work.
    pub(super) async fn allow(
        &self,
        client: &Client,
        (scope, rules): Grant,
    ) -> Result<(), ControlPlaneError> {
        let probes: Vec<_> = rules
            .iter()
            .filter_map(|rule| self.probe(scope.as_deref(), rule))
            .collect();
        {
            let mut given = self.given.lock();
            given.scopes.insert(scope.clone());
            given.probes.extend(probes.iter().cloned());
        }
        let result = match &scope {
            None => self.bind_everywhere(client, rules).await,
            Some(namespace) => self.bind_in(client, namespace, rules).await,
        };
        result.map_err(ControlPlaneError::api(format!("granting rules to {}", self.user)))?;
        self.wait(client, &probes, true).await
    }

    /// Removes all rules and waits until none works.
    pub(super) async fn revoke(&self, client: &Client) -> Result<(), ControlPlaneError> {
        let Given { scopes, probes } = std::mem::take(&mut *self.given.lock());
        for scope in scopes {
            let delete = DeleteParams::default();
            let result = match &scope {
                None => Api::<ClusterRoleBinding>::all(client.clone())
                    .delete(&self.name, &delete)
                    .await
                    .map(drop),
                Some(namespace) => Api::<RoleBinding>::namespaced(client.clone(), namespace)
                    .delete(&self.name, &delete)
                    .await
                    .map(drop),
            };
            match result {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                result => {
                    result.map_err(ControlPlaneError::api(format!("revoking rules of {}", self.user)))?
                }
            }
        }
        self.wait(client, &probes, false).await
    }

    async fn bind_everywhere(&self, client: &Client, rules: Vec<PolicyRule>) -> Result<(), kube::Error> {
        let roles = Api::<ClusterRole>::all(client.clone());
        apply(
            &roles,
            &self.name,
            self.object("ClusterRole", json!({ "rules": rules })),
        )
        .await?;
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        apply(
            &bindings,
            &self.name,
            self.object("ClusterRoleBinding", self.binding("ClusterRole")),
        )
        .await
    }

    async fn bind_in(
        &self,
        client: &Client,
        namespace: &str,
        rules: Vec<PolicyRule>,
    ) -> Result<(), kube::Error> {
        let roles = Api::<Role>::namespaced(client.clone(), namespace);
        apply(&roles, &self.name, self.object("Role", json!({ "rules": rules }))).await?;
        let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
        apply(
            &bindings,
            &self.name,
            self.object("RoleBinding", self.binding("Role")),
        )
        .await
    }

    fn object(&self, kind: &str, mut content: Value) -> Value {
        content["apiVersion"] = "rbac.authorization.k8s.io/v1".into();
        content["kind"] = kind.into();
        content["metadata"] = json!({ "name": self.name });
        content
    }

    fn binding(&self, role: &str) -> Value {
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": self.name });
        json!({ "roleRef": role, "subjects": [self.subject] })
    }

    /// A `SubjectAccessReview` whose answer depends on the rule. One for each rule is enough,
    /// because the authorizer reads a role as a whole.
    fn probe(&self, namespace: Option<&str>, rule: &PolicyRule) -> Option<SubjectAccessReview> {
        let first = |values: &Option<Vec<String>>| values.as_ref().and_then(|values| values.first().cloned());
        let mut spec = SubjectAccessReviewSpec {
            user: Some(self.user.clone()),
            groups: Some(self.groups.clone()),
            ..SubjectAccessReviewSpec::default()
        };
        let verb = rule.verbs.first().cloned();
        if let Some(resource) = first(&rule.resources) {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
                None => (resource, None),
            };
            spec.resource_attributes = Some(ResourceAttributes {
                namespace: namespace.map(str::to_owned),
                group: first(&rule.api_groups),
                resource: Some(resource),
                subresource,
                name: first(&rule.resource_names),
                verb,
                ..ResourceAttributes::default()
            });
        } else {
            let path = first(&rule.non_resource_urls)?;
            spec.non_resource_attributes = Some(NonResourceAttributes {
                path: Some(path),
                verb,
            });
        }
        Some(SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        })
    }

    async fn wait(
        &self,
        client: &Client,
        probes: &[SubjectAccessReview],
        allowed: bool,
    ) -> Result<(), ControlPlaneError> {
        let reviews = Api::<SubjectAccessReview>::all(client.clone());
        let started = Instant::now();
        for probe in probes {
            loop {
                let review =
                    reviews
                        .create(&PostParams::default(), probe)
                        .await
                        .map_err(ControlPlaneError::api(format!(
                            "asking what {} may do",
                            self.user
                        )))?;
                if review.status.is_some_and(|status| status.allowed) == allowed {
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

/// Applies an object given as JSON: k8s-openapi's types differ between its version features, and
/// this crate must compile with each.
async fn apply<K>(api: &Api<K>, name: &str, object: Value) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    api.patch(
        name,
        &PatchParams::apply("mcr-testkit").force(),
        &Patch::Apply(&object),
    )
    .await
    .map(drop)
}
