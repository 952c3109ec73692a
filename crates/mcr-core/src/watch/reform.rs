//! Packs what a store has held since before there was a dictionary.

use std::sync::Arc;

use super::Mirror;
use crate::store::Holding;

/// So many objects are packed before others have their turn.
const SLICE: usize = 16;

/// Runs in the task of the driver, so that what it packs is not being put in meanwhile. Never ends by itself.
pub(super) async fn reform(watch: &dyn Mirror, holding: &Holding) {
    if let Holding::Packed(packer) = holding {
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
    }
    std::future::pending().await
}
