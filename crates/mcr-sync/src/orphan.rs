//! Targets whose source is gone although nobody saw its deletion.

use kube::core::DynamicObject;
use mcr::{BoxError, Request, RequestKey, TerminalError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    api::{Remote, value},
    desired,
    error::SyncError,
    link::Ownership,
    related::is_copy,
    relation::Relation,
};

/// Tells of a target whose source does not exist. `request` names a source that is not in the store.
///
/// Two servers confirm it: a source may be outside of the watch, and a target may be gone already.
pub(crate) async fn tell<S, T>(
    relation: &Relation<S, T>,
    request: &Request<DynamicObject>,
) -> Result<(), BoxError>
where
    S: DeserializeOwned,
    T: DeserializeOwned + Serialize,
{
    let Ok(target) = relation.target_key(&request.key) else {
        return Ok(());
    };
    let link = relation.link(&request.key);
    let is_ours = |found: &DynamicObject| {
        !is_copy(&found.metadata)
            && found.metadata.deletion_timestamp.is_none()
            && desired::ownership(&value(found), &link) != Ownership::Foreign
    };
    for cluster in request.fleet.clusters() {
        let store = cluster.store_of::<DynamicObject>(&relation.target_watch());
        let stored = store.and_then(|store| store.get_unsynced(&target));
        if !matches!(&stored, Ok(Some(stored)) if is_ours(stored)) {
            continue;
        }
        if let Some((annotation, name)) = link.impossible() {
            let key = RequestKey::new(cluster.name().clone(), target);
            let (annotation, name) = (annotation.to_owned(), name.to_owned());
            return Err(TerminalError::new(SyncError::Annotation {
                annotation,
                key,
                name,
            })
            .into());
        }
        let source = Remote::new(&request.cluster, &relation.source, &request.key.object)?;
        if source.get().await?.is_some() {
            return Ok(());
        }
        let remote = Remote::new(&cluster, &relation.target, &target)?;
        let remote = remote.bounded_by(relation.silent.of(cluster.name()));
        let found = remote.get().await?;
        if found.is_some_and(|found| is_ours(&found)) {
            let target = RequestKey::new(cluster.name().clone(), target);
            let source_key = request.key.clone();
            return Err(TerminalError::new(SyncError::Orphan { target, source_key }).into());
        }
    }
    Ok(())
}
