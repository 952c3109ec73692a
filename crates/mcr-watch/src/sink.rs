//! Following a watch.

use mcr_store::ObjectChange;

use crate::WatchStatus;

/// Takes the changes of a watch.
///
/// Called from the watch's own task, one change after the other, with no lock of the store held. It must be
/// quick and must not block: everything else of this watch waits for it. In particular it must neither watch
/// the same kind of the same cluster nor drop a handle of it, which would wait for
/// the sink itself. A sink that panics misses that change and is told the next.
pub trait ChangeSink: Send + Sync + 'static {
    /// An object changed.
    fn changed(&self, change: &ObjectChange);

    /// The watch's status changed (synced, blocked, recovered).
    fn status_changed(&self, status: &WatchStatus) {
        let _ = status;
    }
}
