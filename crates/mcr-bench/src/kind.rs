//! The kinds that subjects reconcile.

use kube::core::ApiResource;
use serde_json::Value;

use crate::objects;

/// A kind that subjects can reconcile, by the name of its resource.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
#[value(rename_all = "lower")]
pub enum Kind {
    /// ConfigMaps, the only kind in most suites.
    ConfigMaps,
    /// Secrets.
    Secrets,
    /// Services.
    Services,
    /// ServiceAccounts.
    ServiceAccounts,
    /// Pods.
    Pods,
    /// Deployments.
    Deployments,
    /// Roles.
    Roles,
    /// RoleBindings.
    RoleBindings,
    /// Events of the core group.
    Events,
    /// Namespaces, the only kind here whose objects are in no namespace.
    Namespaces,
}

/// Runs an expression with the type of a kind.
macro_rules! with_type {
    ($kind:expr, $type:ident => $body:expr) => {{
        use k8s_openapi::api::{apps::v1 as apps_v1, core::v1 as core_v1, rbac::v1 as rbac_v1};
        match $kind {
            $crate::kind::Kind::ConfigMaps => {
                type $type = core_v1::ConfigMap;
                $body
            }
            $crate::kind::Kind::Secrets => {
                type $type = core_v1::Secret;
                $body
            }
            $crate::kind::Kind::Services => {
                type $type = core_v1::Service;
                $body
            }
            $crate::kind::Kind::ServiceAccounts => {
                type $type = core_v1::ServiceAccount;
                $body
            }
            $crate::kind::Kind::Pods => {
                type $type = core_v1::Pod;
                $body
            }
            $crate::kind::Kind::Deployments => {
                type $type = apps_v1::Deployment;
                $body
            }
            $crate::kind::Kind::Roles => {
                type $type = rbac_v1::Role;
                $body
            }
            $crate::kind::Kind::RoleBindings => {
                type $type = rbac_v1::RoleBinding;
                $body
            }
            $crate::kind::Kind::Events => {
                type $type = core_v1::Event;
                $body
            }
            $crate::kind::Kind::Namespaces => {
                type $type = core_v1::Namespace;
                $body
            }
        }
    }};
}
pub(crate) use with_type;

impl Kind {
    /// The kinds of suite `kinds`.
    pub const ALL: [Self; 10] = [
        Self::ConfigMaps,
        Self::Secrets,
        Self::Services,
        Self::ServiceAccounts,
        Self::Pods,
        Self::Deployments,
        Self::Roles,
        Self::RoleBindings,
        Self::Events,
        Self::Namespaces,
    ];

    /// The name of the resource, as in URLs and arguments.
    pub fn plural(self) -> String {
        self.resource().plural
    }

    /// The resource.
    pub fn resource(self) -> ApiResource {
        with_type!(self, K => ApiResource::erase::<K>(&()))
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(self) -> bool {
        self != Self::Namespaces
    }

    /// An object that is similar to those of real clusters, and the same in every run.
    pub fn object(self, number: usize) -> Value {
        match self {
            Self::ConfigMaps => objects::config_map(number),
            Self::Secrets => objects::secret(number),
            Self::Services => objects::service(number),
            Self::ServiceAccounts => objects::service_account(number),
            Self::Pods => objects::pod(number),
            Self::Deployments => objects::deployment(number),
            Self::Roles => objects::role(number),
            Self::RoleBindings => objects::role_binding(number),
            Self::Events => objects::event(number),
            Self::Namespaces => objects::namespace(number),
        }
    }

    /// These kinds as one argument.
    pub fn list(kinds: &[Self]) -> String {
        let names: Vec<String> = kinds.iter().map(|kind| kind.plural()).collect();
        names.join(",")
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn kinds_are_named_by_their_resources_and_have_objects_of_their_type() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_str(&kind.plural(), false), Ok(kind));
            for number in 0..20 {
                let object = kind.object(number);
                assert_eq!(object["kind"], kind.resource().kind);
                assert_eq!(object["apiVersion"], kind.resource().api_version);
                assert_eq!(object["metadata"]["namespace"].is_string(), kind.is_namespaced());
                with_type!(kind, K => drop(serde_json::from_value::<K>(object).unwrap()));
            }
        }
    }
}
