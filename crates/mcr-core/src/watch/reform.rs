//! Packs what a store has held since before there was a dictionary.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::Mirror;
use crate::store::{Holding, Packer};

/// So many objects are packed before others have their turn.
const SLICE: usize = 16;

/// Runs in the task of the driver, so that what it packs is not being put in meanwhile. Never ends by itself. In a box,
/// which takes no room where nothing is packed.
pub(super) fn reform(watch: &Arc<dyn Mirror>, holding: &Holding) -> BoxFuture<'static, ()> {
    match holding {
        Holding::Packed(packer) => Box::pin(pack(watch.clone(), packer.clone())),
        Holding::Shaped(_) => Box::pin(std::future::pending()),
    }
}

async fn pack(watch: Arc<dyn Mirror>, packer: Arc<Packer>) {
    let form = packer.packed().await;
    for contents in watch.everything() {
        let store = contents.store();
        for (done, old) in store.of_other_form(&form).into_iter().enumerate() {
            if let Some(new) = old.in_form(&form) {
                store.reform(&old, Arc::new(new));
            }
            drop(old);
            if done % SLICE == SLICE - 1 {
                tokio::task::yield_now().await;
            }
        }
    }
    std::future::pending().await
}
