//! The first objects of a kind that was withheld from a cluster.

use std::{collections::HashSet, sync::Arc, time::Duration};

use mcr_store::{ObjectKey, parse_list};
use tokio::time::{sleep, timeout};

use super::{api::list_page, env::DriverEnv};
use crate::{
    WatchError, WatchRequest,
    permit::Permit,
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
            let listed = timeout(env.settings.list_timeout, list_keys(watch.request(), &env)).await;
            complete = matches!(listed, Ok(Ok(keys)) if has_exactly(&watch, &keys));
            if complete {
                break;
            }
        }
        watch.finish_grant(&grant, complete);
    };
    tokio::select! {
        () = watch.stopped() => {}
        () = confirm => {}
    }
}

fn has_exactly(watch: &SharedWatch, keys: &HashSet<ObjectKey>) -> bool {
    let cache = watch.cache();
    let store = cache.store();
    store.len() == keys.len() && keys.iter().all(|key| store.get(key).is_some())
}

/// The keys of all objects that the watch selects. Those that can't be read are left out.
async fn list_keys(request: &WatchRequest, env: &DriverEnv) -> Result<HashSet<ObjectKey>, WatchError> {
    let request = request.clone().metadata_only();
    let mut keys = HashSet::new();
    let mut continue_token: Option<String> = None;
    loop {
        let mut permit = Permit::acquire(&env.list_permits).await;
        let body = list_page(env, &request, true, continue_token.as_deref(), &mut permit).await?;
        let page = parse_list(&body)?;
        for object in page.items.iter().flatten() {
            let metadata = object.metadata();
            let namespace = metadata.namespace().map(Into::into);
            let name = metadata.name().map(Into::into);
            keys.extend(name.map(|name| ObjectKey { namespace, name }));
        }
        match page.continue_token {
            Some(token) => continue_token = Some(token),
            None => return Ok(keys),
        }
    }
}
