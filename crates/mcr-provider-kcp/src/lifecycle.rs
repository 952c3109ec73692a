//! Initializers and terminators: their names and labels, and how a controller removes its own one.

use std::{sync::Arc, time::Duration};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use mcr_core::{TransportError, explain_error, internal::Backoff};
use serde_json::{Value, json};

use crate::{
    error::KcpError,
    logical_cluster::{LogicalCluster, LogicalClusterStatus},
    stage::Stage,
    url::is_cluster_id,
};

/// The name of the one LogicalCluster in each workspace.
const CLUSTER: &str = "cluster";

/// How often a removal is tried while others write the same object.
const ATTEMPTS: u32 = 10;

/// How often in a row the cluster is gone from the fleet until that counts.
const GONE: u32 = 3;

fn is_gone(error: &kube::Error) -> bool {
    let kube::Error::Service(error) = error else {
        return false;
    };
    error
        .downcast_ref::<TransportError>()
        .is_some_and(TransportError::is_gone)
}

/// The result of a removal. None of them is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Removal {
    /// The name was in the list and is removed.
    Removed,
    /// There was nothing to remove: the list lacks the name, or kcp no longer shows the workspace here.
    ///
    /// A workspace on its way to another shard is not shown for a moment. It comes back with the name, and the controller is
    /// called again.
    Absent,
    /// The cluster left the fleet before kcp answered. Usually it left because the name is removed. Otherwise the workspace
    /// becomes a cluster again later, and the controller is called again.
    Left,
}

/// Why an initializer or terminator could not be removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LifecycleError {
    /// kcp refuses it.
    #[error(
        "{name} can't be removed: forbidden: {message}. Use the client of the cluster, and grant the verb {verb} on \
         workspacetypes.tenancy.kcp.io with the name {of_type} in workspace {cluster} to the credentials in use"
    )]
    Forbidden {
        /// The initializer or terminator.
        name: Arc<str>,
        /// The verb that gives the right: `initialize` or `terminate`.
        verb: &'static str,
        /// The name of the WorkspaceType.
        of_type: String,
        /// The id of the WorkspaceType's workspace.
        cluster: String,
        /// The answer of kcp.
        message: String,
    },
    /// Others have changed the LogicalCluster during each attempt.
    #[error(
        "{name} is not removed yet: others changed the LogicalCluster during {attempts} attempts; try again later"
    )]
    Conflict {
        /// The initializer or terminator.
        name: Arc<str>,
        /// The number of attempts.
        attempts: u32,
    },
    /// Any other failure.
    #[error("{name} can't be removed: {}; try again later", explain_error(.error))]
    Failed {
        /// The initializer or terminator.
        name: Arc<str>,
        /// The failure of the request.
        #[source]
        error: Box<kube::Error>,
    },
}

/// An initializer or terminator.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hook {
    stage: Stage,
    name: Arc<str>,
}

impl Hook {
    fn new(stage: Stage, cluster: &str, of_type: &str) -> Result<Self, KcpError> {
        let name: Arc<str> = format!("{cluster}:{of_type}").into();
        if !is_cluster_id(cluster) || of_type.is_empty() || of_type.contains([':', '/']) {
            return Err(KcpError::Name(name.to_string()));
        }
        Ok(Self { stage, name })
    }

    fn names<'s>(&self, status: &'s LogicalClusterStatus) -> &'s [String] {
        match self.stage {
            Stage::Initializing => &status.initializers,
            Stage::Terminating => &status.terminators,
        }
    }

    fn is_on(&self, cluster: &LogicalCluster) -> bool {
        let status = cluster.status.as_ref();
        status.is_some_and(|status| self.names(status).iter().any(|name| **name == *self.name))
    }

    /// The patch that removes the name from the list, and fails if the object has changed meanwhile.
    fn patch(&self, cluster: &LogicalCluster) -> Value {
        let status = cluster.status.as_ref();
        let names = status.map(|status| self.names(status)).unwrap_or_default();
        let rest: Vec<&String> = names.iter().filter(|name| ***name != *self.name).collect();
        json!({
            "metadata": {"resourceVersion": cluster.metadata.resource_version},
            "status": {self.stage.list(): rest},
        })
    }

    async fn remove(&self, client: &Client) -> Result<Removal, LifecycleError> {
        let api: Api<LogicalCluster> = Api::all(client.clone());
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));
        let (mut attempts, mut gone) = (0, 0);
        loop {
            let error = match self.attempt(&api).await {
                Ok(removal) => return Ok(removal),
                Err(error) => error,
            };
            match &error {
                kube::Error::Api(status) if status.code == 404 => return Ok(Removal::Absent),
                // kcp compares the lists before the versions: a list that others have changed is invalid.
                kube::Error::Api(status) if matches!(status.code, 409 | 422) => gone = 0,
                // Also a cluster that moves to another shard ends its requests so. It answers again.
                error if is_gone(error) => gone += 1,
                _ => return Err(self.error(error)),
            }
            if gone == GONE {
                return Ok(Removal::Left);
            }
            attempts += 1;
            if attempts == ATTEMPTS {
                return Err(self.error(error));
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    async fn attempt(&self, api: &Api<LogicalCluster>) -> Result<Removal, kube::Error> {
        let cluster = api.get(CLUSTER).await?;
        if !self.is_on(&cluster) {
            return Ok(Removal::Absent);
        }
        let patch = Patch::Merge(self.patch(&cluster));
        api.patch_status(CLUSTER, &PatchParams::default(), &patch).await?;
        Ok(Removal::Removed)
    }

    fn error(&self, error: kube::Error) -> LifecycleError {
        let name = self.name.clone();
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                // `new` has checked that there is a colon. An id may have one itself.
                let (cluster, of_type) = name.rsplit_once(':').unwrap_or_default();
                LifecycleError::Forbidden {
                    verb: self.stage.verb(),
                    of_type: of_type.to_owned(),
                    cluster: cluster.to_owned(),
                    message: mcr_core::reason(&status.message),
                    name,
                }
            }
            kube::Error::Api(status) if status.code == 409 => LifecycleError::Conflict {
                name,
                attempts: ATTEMPTS,
            },
            error => LifecycleError::Failed {
                name,
                error: Box::new(error),
            },
        }
    }
}

macro_rules! hook {
    ($(#[$doc:meta])* $name:ident, $stage:ident, $list:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name(Hook);

        impl $name {
            /// Makes it from the id of the workspace that has the WorkspaceType, and from the name of the type.
            ///
            /// # Errors
            /// [`KcpError::Name`] if `cluster` can't be an id, or `of_type` can't be the name of a type. A path such as
            /// `root:org` is no id; `root` is both.
            pub fn new(cluster: &str, of_type: &str) -> Result<Self, KcpError> {
                Hook::new(Stage::$stage, cluster, of_type).map(Self)
            }

            /// The name: `<id of the type's workspace>:<name of the type>`.
            pub fn name(&self) -> &str {
                &self.0.name
            }

            /// Key and value of the label that kcp puts on the LogicalClusters that wait for it.
            pub fn label(&self) -> (String, String) {
                self.0.stage.label(&self.0.name)
            }

            #[doc = concat!("Whether the workspace waits for it: the name is in `status.", $list, "`.")]
            pub fn is_on(&self, cluster: &LogicalCluster) -> bool {
                self.0.is_on(cluster)
            }

            #[doc = concat!("Removes its name from `status.", $list, "`, and no other name.")]
            ///
            /// `client` is the client of the cluster. Several controllers may remove their names at the same time: if another
            /// one changes the object after it was read, the method reads it again and makes up to ten attempts.
            ///
            /// # Cancellation
            /// If the future is dropped, the name may be removed or not. Call it again.
            ///
            /// # Errors
            /// See [`LifecycleError`].
            pub async fn remove(&self, client: &Client) -> Result<Removal, LifecycleError> {
                self.0.remove(client).await
            }

            /// From the whole name, which the URL of an endpoint has.
            pub(crate) fn of_name(name: &str) -> Option<Self> {
                let (cluster, of_type) = name.rsplit_once(':')?;
                Self::new(cluster, of_type).ok()
            }
        }
    };
}

hook! {
    /// The initializer of a WorkspaceType. kcp opens a new workspace when all its initializers are removed.
    ///
    /// ```no_run
    /// use mcr_core::Cluster;
    /// use mcr_provider_kcp::{Initializer, LifecycleError};
    ///
    /// async fn finish(initializer: &Initializer, workspace: &Cluster) -> Result<(), LifecycleError> {
    ///     initializer.remove(&workspace.client()).await?;
    ///     Ok(())
    /// }
    /// ```
    Initializer, Initializing, "initializers"
}

hook! {
    /// The terminator of a WorkspaceType. kcp keeps a deleted workspace until all its terminators are removed. It deletes the
    /// content of the workspace at once, except for objects with finalizers.
    ///
    /// ```
    /// use mcr_provider_kcp::Terminator;
    ///
    /// # fn main() -> Result<(), mcr_provider_kcp::KcpError> {
    /// let terminator = Terminator::new("root", "example")?;
    /// assert_eq!(terminator.name(), "root:example");
    /// # Ok(()) }
    /// ```
    Terminator, Terminating, "terminators"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(initializers: &[&str]) -> LogicalCluster {
        let value = json!({
            "apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster",
            "metadata": {"name": "cluster", "resourceVersion": "7"}, "spec": {},
            "status": {"initializers": initializers, "terminators": ["root:other"]},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_name_is_made_of_an_id_and_a_type() {
        let initializer = Initializer::new("1rlzadlzb44i0g5n", "managed").unwrap();
        assert_eq!(initializer.name(), "1rlzadlzb44i0g5n:managed");
        assert_eq!(Initializer::of_name(initializer.name()), Some(initializer));
        let system = Terminator::new("system:admin", "managed").unwrap();
        assert_eq!(Terminator::of_name(system.name()), Some(system));
        for (cluster, of_type) in [
            ("root:org", "a"),
            ("*", "a"),
            ("root", ""),
            ("root", "a:b"),
            ("", "a"),
        ] {
            let bad = KcpError::Name(format!("{cluster}:{of_type}"));
            assert_eq!(Initializer::new(cluster, of_type), Err(bad));
        }
    }

    #[test]
    fn a_patch_removes_one_name_from_one_list_of_one_version() {
        let initializer = Initializer::new("root", "b").unwrap();
        let two = cluster(&["root:a", "root:b"]);
        assert!(initializer.is_on(&two) && !initializer.is_on(&cluster(&["root:a"])));
        assert!(!Terminator::new("root", "b").unwrap().is_on(&two));
        assert_eq!(
            initializer.0.patch(&two),
            json!({"metadata": {"resourceVersion": "7"}, "status": {"initializers": ["root:a"]}})
        );
        let mut new = two;
        new.status = None;
        assert!(!initializer.is_on(&new));
    }

    #[test]
    fn a_failure_reports_what_to_do_and_blames_others_for_a_conflict_only() {
        let hook = Terminator::new("system:admin", "managed").unwrap().0;
        for (code, expected) in [
            (
                403,
                "the verb terminate on workspacetypes.tenancy.kcp.io with the name managed in workspace system:admin",
            ),
            (409, "others changed the LogicalCluster during 10 attempts"),
            (422, "can't be removed: the words of kcp"),
        ] {
            let status = kube::core::Status::failure("the words of kcp", "Reason").with_code(code);
            let error = hook.error(kube::Error::Api(status.boxed())).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
