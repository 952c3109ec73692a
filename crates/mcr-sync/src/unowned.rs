//! Reports sources that are not in the store although objects name them. Nothing is written to them.

use kube::core::DynamicObject;
use mcr::{BoxError, Request, RequestKey, TerminalError};

use crate::{
    api::Remote,
    error::SyncError,
    record,
    related::is_copy,
    relation::{Relation, SourceKind, TargetKind},
};

/// Reports a source that has left the watch which the user has limited, and that still has the finalizer of the sync.
/// Its targets stay, and no later event leads to it.
pub(crate) async fn report_left_watch<S, T>(
    relation: &Relation<S, T>,
    request: &Request<DynamicObject>,
) -> Result<(), BoxError> {
    let remote = Remote::new(&request.cluster, &relation.source, &request.key.object)?;
    let known = request.object.last_known().map(|last| &last.metadata.uid);
    let holds = |source: &DynamicObject| {
        Some(&source.metadata.uid) == known && record::has_finalizer(&relation.name, &source.metadata)
    };
    if remote.get().await?.is_some_and(|source| holds(&source)) {
        let (key, finalizer) = (request.key.clone(), record::finalizer(&relation.name));
        return Err(TerminalError::new(SyncError::LeftWatch { key, finalizer }).into());
    }
    Ok(())
}

/// Reports a target whose source is gone although nobody has observed the deletion. `request` names a source that is
/// not in the store.
///
/// The servers of the source and of the target are asked first: the source may exist outside of the watch, and the
/// target may be gone already.
pub(crate) async fn report_orphan<S: SourceKind, T: TargetKind>(
    relation: &Relation<S, T>,
    request: &Request<DynamicObject>,
) -> Result<(), BoxError> {
    let Ok(target) = relation.target_key(&request.key) else {
        return Ok(());
    };
    let link = relation.link(&request.key);
    let is_ours = |found: &DynamicObject| {
        let is_target = !is_copy(&found.metadata) && found.metadata.deletion_timestamp.is_none();
        is_target && link.owns(&found.metadata)
    };
    for cluster in request.fleet.clusters() {
        let store = cluster.store_of::<DynamicObject>(&relation.target_watch());
        let stored = store.and_then(|store| store.get_unsynced(&target));
        if !matches!(&stored, Ok(Some(stored)) if is_ours(stored)) {
            continue;
        }
        let at = RequestKey::new(cluster.name().clone(), target.clone());
        if let Some((annotation, name)) = link.impossible() {
            return Err(TerminalError::new(SyncError::annotation(annotation, at, name)).into());
        }
        let source = Remote::new(&request.cluster, &relation.source, &request.key.object)?;
        if source.get().await?.is_some() {
            return Ok(());
        }
        let remote = Remote::new(&cluster, &relation.target, &target)?;
        let found = remote
            .bounded_by(relation.silent.of(cluster.name()))
            .get()
            .await?;
        if found.is_some_and(|found| is_ours(&found)) {
            let source_key = request.key.clone();
            return Err(TerminalError::new(SyncError::Orphan {
                target: at,
                source_key,
            })
            .into());
        }
    }
    Ok(())
}
