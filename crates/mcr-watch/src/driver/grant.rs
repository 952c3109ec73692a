//! The first objects of a kind that was withheld from a cluster.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use mcr_store::ObjectKey;
use tokio::time::{sleep, timeout};

use super::{api::PageRequest, env::DriverEnv, listing::Source, page::Page, staged::Staged};
use crate::{
    error::WatchError,
    request::WatchRequest,
    shared::{Grant, SharedWatch},
};

/// How often the store is compared before all clusters of the feed are listed for this one.
const ATTEMPTS: u32 = 3;

/// The pause before the second attempt. The later ones are longer.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends a grant when the store has the objects of the cluster.
///
/// The permission may be seen before the objects arrive on the watch that serves all clusters. A store that counted as listed
/// then would look empty. So this lists the keys of the one cluster until the store has them. It changes nothing in the store,
/// because its list and the watch come in no particular order. If the store does not get the objects, the feed lists again.
///
/// `ready` resolves when the cluster can be asked. Ends early if the watch is stopped, or if the kind is withheld again.
pub async fn confirm_grant(
    watch: Arc<SharedWatch>,
    grant: Grant,
    ready: impl Future<Output = ()>,
    env: DriverEnv,
) {
    let confirm = async {
        ready.await;
        let mut complete = false;
        for attempt in 0..ATTEMPTS {
            sleep(PAUSE * attempt).await;
            if !watch.is_granted(&grant) {
                return;
            }
            let listed = timeout(
                env.settings.list_timeout,
                list_keys(watch.request(), &env, attempt == 0),
            )
            .await;
            complete = matches!(listed, Ok(Ok(keys)) if has_exactly(&watch, &keys));
            if complete {
                break;
            }
        }
        watch.finish_grant(&grant, complete);
    };
    tokio::select! {
        () = watch.stopped().cancelled() => {}
        () = confirm => {}
    }
}

fn has_exactly(watch: &SharedWatch, keys: &HashSet<ObjectKey>) -> bool {
    let cache = watch.cache();
    let store = cache.store();
    store.len() == keys.len() && keys.iter().all(|key| store.get(key).is_some())
}

/// The keys of all objects that the watch selects. Those that can't be read are left out. `may_compress`: compressed lists may be
/// unusable each time.
async fn list_keys(
    request: &WatchRequest,
    env: &DriverEnv,
    may_compress: bool,
) -> Result<HashSet<ObjectKey>, WatchError> {
    let request = request.clone().metadata_only();
    let mut keys = HashSet::new();
    let mut continue_token = None::<String>;
    let mut reservation = env.list_budget.begin(env.cluster.clone()).await;
    let mut staged = Staged::new(reservation.limit(), None, BTreeSet::new());
    loop {
        let request = PageRequest {
            kind: &request,
            source: Source::Pages,
            size: env.settings.page_size,
            continue_token: continue_token.as_deref(),
            may_compress,
        };
        let mut page = Page::request(env, request, &mut reservation).await?;
        while let Some(objects) = page.read(&mut reservation, &mut staged).await? {
            for object in objects.iter().flatten() {
                let metadata = object.metadata();
                let namespace = metadata.namespace().map(Into::into);
                let name = metadata.name().map(Into::into);
                let Some(name) = name else { continue };
                let key = ObjectKey { namespace, name };
                staged.bytes += size_of_val(&key) + key.to_string().len();
                keys.insert(key);
            }
        }
        match page.finish()?.continue_token {
            Some(token) => continue_token = Some(token),
            None => return Ok(keys),
        }
    }
}
