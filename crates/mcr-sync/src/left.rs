//! Sources that have left the watch of the sync, which its user has limited, and exist.

use kube::core::DynamicObject;
use mcr::{BoxError, Request, TerminalError};
use serde::{Serialize, de::DeserializeOwned};

use crate::{api::Remote, error::SyncError, record, relation::Relation};

/// Tells of a source that still has the finalizer of the sync. Its targets stay, and nothing leads to it any more.
pub(crate) async fn tell<S, T>(
    relation: &Relation<S, T>,
    request: &Request<DynamicObject>,
) -> Result<(), BoxError>
where
    S: DeserializeOwned,
    T: DeserializeOwned + Serialize,
{
    let remote = Remote::new(&request.cluster, &relation.source, &request.key.object)?;
    let source = remote.get().await?;
    let known = request.object.last_known().map(|last| &last.metadata.uid);
    let holds = |source: &DynamicObject| {
        Some(&source.metadata.uid) == known && record::has_finalizer(&relation.name, &source.metadata)
    };
    if !source.is_some_and(|source| holds(&source)) {
        return Ok(());
    }
    let error = SyncError::LeftWatch {
        key: request.key.clone(),
        finalizer: record::finalizer(&relation.name),
    };
    Err(TerminalError::new(error).into())
}
