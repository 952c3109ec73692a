//! Asks the API server whether the object of a request was deleted.

use kube::{
    Resource,
    api::GetParams,
    core::{PartialObjectMeta, Status},
};
use mcr_core::{BoxError, ObjectPath, WatchRequest, explain_error};

use crate::request::{Request, RequestKey};

/// Why [`Request::confirm_deleted`] does not know whether the object exists.
///
/// Return the error from the reconciler: the request is retried with growing delays, and has the same object until a
/// reconcile has succeeded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    /// The credentials of the cluster may not read the object.
    #[error(
        "can't tell whether {key} was deleted: {}. Allow the verb get for {resource}; the request is retried", .source.message
    )]
    Forbidden {
        /// The object and its cluster.
        key: RequestKey,
        /// The plural name of the kind.
        resource: String,
        /// The response of the server.
        source: Box<Status>,
    },
    /// The kind is blocked in the cluster as a whole, for example because its claim was withdrawn. The request is retried as soon
    /// as the kind is watched again.
    #[error(
        "can't tell whether {key} was deleted: {resource} are blocked in this cluster: {reason}. The request is retried when they \
         are watched again"
    )]
    Blocked {
        /// The object and its cluster.
        key: RequestKey,
        /// The plural name of the kind.
        resource: String,
        /// Why the kind is blocked, as the fleet knows it.
        reason: String,
    },
    /// The response is a 404 that does not name the object. The server no longer serves the kind in this version, or the
    /// response comes from something in front of the server.
    #[error(
        "can't tell whether {key} was deleted: the server answered 404 for all {resource} of this version, not for the object. Check that the server serves the kind; the request is retried"
    )]
    NotServed {
        /// The object and its cluster.
        key: RequestKey,
        /// The plural name of the kind.
        resource: String,
        /// The response of the server.
        source: Box<Status>,
    },
    /// The server did not answer in time, or it answered with another error.
    #[error("can't tell whether {key} was deleted; the request is retried: {}", explain_error(.source))]
    NoAnswer {
        /// The object and its cluster.
        key: RequestKey,
        /// The error of the client.
        source: kube::Error,
    },
}

impl<K: Resource> Request<K> {
    /// Asks the API server whether the object of this request was deleted. Sends one GET for its metadata, which the server
    /// answers from its current state; the store of the watch is not used.
    ///
    /// `true` if the object does not exist, or if the object of this name has another UID than
    /// [the last known one](crate::RequestObject::last_known). `false` if the object exists. Without a last known UID, any
    /// object of this name counts as this one.
    ///
    /// Use it for [`LeftWatch`](crate::RequestObject::LeftWatch), which leaves open whether the object was deleted. The
    /// credentials of the cluster need the verb `get`, besides `list` and `watch`. The time limits are those of the
    /// [client](mcr_core::Cluster::client) of the cluster.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mcr::{BoxError, Request, RequestObject};
    ///
    /// async fn reconcile(request: Request<ConfigMap>, _: Arc<()>) -> Result<(), BoxError> {
    ///     match &request.object {
    ///         RequestObject::Live(map) => println!("{} has {:?}", request.key, map.data),
    ///         RequestObject::Deleted { .. } => println!("{} was deleted", request.key),
    ///         RequestObject::LeftWatch { .. } if request.confirm_deleted().await? => {
    ///             println!("{} was deleted", request.key)
    ///         }
    ///         RequestObject::LeftWatch { .. } => println!("{} no longer matches the selector", request.key),
    ///         _ => {}
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`ConfirmError`] if the answer leaves it open. Return it from the reconciler, and the request is retried.
    ///
    /// # Cancellation
    /// Dropping the future cancels the GET.
    ///
    /// # Panics
    /// As [`Cluster::client`](mcr_core::Cluster::client): never in a reconcile.
    pub async fn confirm_deleted(&self) -> Result<bool, ConfirmError>
    where
        K: Resource<DynamicType: Default>,
    {
        self.confirm_deleted_with(&K::DynamicType::default()).await
    }

    /// As [`confirm_deleted`](Self::confirm_deleted), for kinds that are known at run time.
    ///
    /// # Errors
    /// As [`confirm_deleted`](Self::confirm_deleted).
    pub async fn confirm_deleted_with(&self, dynamic: &K::DynamicType) -> Result<bool, ConfirmError> {
        let no_answer = |source| ConfirmError::NoAnswer {
            key: self.key.clone(),
            source,
        };
        let unclear = |error: BoxError| no_answer(kube::Error::Service(error));
        // Not with `kube::Api`: the name `editor?x` would ask for `editor`, whose absence shows nothing about this object.
        let path = ObjectPath {
            group: &K::group(dynamic),
            version: &K::version(dynamic),
            plural: &K::plural(dynamic),
            namespace: self.namespace(),
            name: self.name(),
        };
        let path = path.path().map_err(|error| unclear(error.into()))?;
        let (kind, encoded_name) = path.rsplit_once('/').unwrap_or_default();
        // Only the metadata: the object may be a Secret.
        let get = kube::core::Request::new(kind)
            .get_metadata(encoded_name, &GetParams::default())
            .map_err(|error| no_answer(kube::Error::BuildRequest(error)))?;
        match self.client().request::<PartialObjectMeta>(get).await {
            Ok(found) if found.metadata.name.as_deref() != Some(self.name()) => {
                Err(unclear("the answer is not the object that was asked for".into()))
            }
            Ok(found) => {
                let last_known = self
                    .object
                    .last_known()
                    .and_then(|object| object.meta().uid.as_ref());
                Ok(match (last_known, &found.metadata.uid) {
                    (Some(last_known), Some(found)) => last_known != found,
                    _ => false,
                })
            }
            Err(kube::Error::Api(status)) if names_object(&status, self.name()) => Ok(true),
            Err(kube::Error::Api(source)) => {
                let (key, resource) = (self.key.clone(), K::plural(dynamic).into_owned());
                Err(match self.blocked::<K>(dynamic) {
                    Some(reason) => ConfirmError::Blocked {
                        key,
                        resource,
                        reason,
                    },
                    None if source.is_forbidden() => ConfirmError::Forbidden {
                        key,
                        resource,
                        source,
                    },
                    None if source.is_not_found() => ConfirmError::NotServed {
                        key,
                        resource,
                        source,
                    },
                    None => no_answer(kube::Error::Api(source)),
                })
            }
            Err(error) => Err(no_answer(error)),
        }
    }

    /// Why the kind is blocked in the cluster; `None` if it is not, or is not watched.
    fn blocked<O: Resource>(&self, dynamic: &O::DynamicType) -> Option<String> {
        let kind = WatchRequest::with::<O>(dynamic).resource_name();
        let kinds = self.cluster.kinds().into_iter();
        kinds
            .filter(|known| known.blocked && known.kind == kind)
            .find_map(|known| known.problem)
    }
}

/// Whether the response is a 404 about this object. A 404 also comes from a path that is not served, and from proxies.
fn names_object(status: &Status, name: &str) -> bool {
    status.is_not_found()
        && status
            .details
            .as_ref()
            .is_some_and(|details| details.name == name)
}
