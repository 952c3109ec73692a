//! The subscribers of a watch.

use mcr_store::ObjectChange;

use crate::status::WatchStatus;

/// A subscriber that receives the changes of a watch.
///
/// The task of the watch calls the sink, one change after the other, and holds no lock of the store. The sink must be
/// quick and must not block, because everything else of this watch waits for it. In particular it must neither watch the
/// same kind of the same cluster nor drop a handle of that watch: both would wait for the sink itself. A sink that panics
/// misses that change and receives the next.
pub trait ChangeSink: Send + Sync + 'static {
    /// An object changed.
    fn changed(&self, change: &ObjectChange);

    /// The status of the watch changed: it has listed, a problem came, or a problem is over.
    fn status_changed(&self, status: &WatchStatus) {
        let _ = status;
    }
}
