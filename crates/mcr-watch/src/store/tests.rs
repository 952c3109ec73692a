//! When a store can be read.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_store::{Encoder, Encoding, ParsedObject, TemplateRegistry};
use serde_json::{json, value::to_raw_value};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    error::WatchError,
    request::WatchRequest,
    shared::Feed,
    target::{LeftOut, TargetEvent, WatchTarget},
};

fn name() -> ClusterName {
    ClusterName::new("eu").unwrap()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("n", name)
}

/// A watch whose test is its driver, and its store.
struct Driven {
    watch: Arc<SharedWatch>,
    store: Store<ConfigMap>,
    encoder: Encoder,
}

impl Driven {
    fn new() -> Self {
        let request = WatchRequest::of::<ConfigMap>();
        let encoding = Encoding::new("v1", "ConfigMap");
        let watch = Arc::new(SharedWatch::new(request, CancellationToken::new()));
        Self {
            store: Store::new(name(), watch.clone()),
            watch,
            encoder: Encoder::with_templates(Arc::new(TemplateRegistry::new(encoding))),
        }
    }

    fn put(&mut self, name: &str) {
        let json = to_raw_value(&json!({"metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "1"
        }}));
        let json = json.unwrap();
        let object = ParsedObject::read(&json).unwrap();
        let object = self.watch.encode(Ok(object.object()), &mut self.encoder).unwrap();
        let (object, initial) = (&object.unwrap(), true);
        self.apply(TargetEvent::Put { object, initial });
    }

    fn apply(&self, event: TargetEvent<'_>) {
        self.watch.apply(event).unwrap();
    }

    fn finish(&self) {
        let (complete, left_out) = (true, &LeftOut::new());
        self.apply(TargetEvent::Listed { complete, left_out });
    }

    /// A page of a list arrives, which does not end the list.
    fn begin(&mut self) {
        self.apply(TargetEvent::ListBegins);
        self.put("a");
    }

    /// The errors of all reads that need a complete list.
    fn refusals(&self) -> Vec<String> {
        fn refusal<T>(read: Result<T, StoreError>) -> Option<String> {
            read.err().map(|error| error.to_string())
        }
        let (store, a) = (&self.store, key("a"));
        let reads = [
            refusal(store.get(&a)),
            refusal(store.get_in("n", "a")),
            refusal(store.raw(&a)),
            refusal(store.list()),
            refusal(store.keys()),
            refusal(store.len()),
            refusal(store.is_empty()),
            refusal(store.by_index("by", "a")),
        ];
        let all = reads.len();
        let refused = Vec::from_iter(reads.into_iter().flatten());
        assert!(refused.is_empty() || refused.len() == all, "{refused:#?}");
        refused
    }

    #[track_caller]
    fn is_readable(&self) {
        assert_eq!(self.refusals(), [""; 0]);
        assert!(self.store.is_synced());
        assert!(self.store.get(&key("a")).unwrap().is_some());
        assert!(self.store.get(&key("none")).unwrap().is_none());
    }
}

fn index(watch: &SharedWatch) {
    let by_name = |object: &Object| Some(vec![object.key().name.to_string()]);
    watch.cache().store().add_index("by".into(), Arc::new(by_name));
}

const NOT_LISTED: &str = "cluster eu: configmaps is not listed yet";
const REMEDY: &str = ". Return the error to try again, or wait with Store::wait_synced. For an optional kind, \
                      Store::get_unsynced reads what is there";

#[test]
fn nothing_is_read_before_the_first_complete_list() {
    let mut driven = Driven::new();
    let unknown = vec![format!("{NOT_LISTED}{REMEDY}"); 8];
    assert_eq!(driven.refusals(), unknown);
    driven.begin();
    assert_eq!(driven.refusals(), unknown, "a part of the list is not the list");
    // What an optional kind has so far.
    assert!(driven.store.get_unsynced(&key("a")).unwrap().is_some());
    assert!(driven.store.get_unsynced(&key("b")).unwrap().is_none());
    assert_eq!(driven.store.list_unsynced().unwrap().len(), 1);

    let error = WatchError::Forbidden {
        message: "no".to_owned(),
    };
    let reason = error.to_string();
    driven.apply(TargetEvent::ListFailed);
    driven.apply(TargetEvent::Failed(error));
    assert_eq!(
        driven.refusals(),
        vec![format!("{NOT_LISTED}: {reason}{REMEDY}"); 8]
    );
    let refused = driven.store.get(&key("a"));
    assert!(
        matches!(refused, Err(StoreError::NotListed { problem: Some(problem), .. }) if problem == reason)
    );
}

#[test]
fn after_the_first_complete_list_a_store_is_readable_until_its_cluster_is_gone() {
    let mut driven = Driven::new();
    index(&driven.watch);
    driven.begin();
    driven.finish();
    driven.is_readable();
    assert_eq!(driven.store.by_index("by", "a").unwrap().len(), 1);
    // The version was too old, the cluster does not answer, and the next list has begun, and is broken off.
    driven.apply(TargetEvent::Failed(WatchError::Expired));
    driven.is_readable();
    let refused = WatchError::Transport("connection refused".to_owned());
    driven.apply(TargetEvent::Failed(refused));
    driven.apply(TargetEvent::ListBegins);
    driven.is_readable();
    driven.apply(TargetEvent::ListFailed);
    driven.is_readable();
    // The watch ends, but the cluster stays.
    driven.watch.stop();
    driven.is_readable();

    driven.watch.mark_gone();
    let gone = vec!["cluster eu is gone, and its stores with it"; 8];
    assert_eq!(driven.refusals(), gone);
    assert!(matches!(
        driven.store.get_unsynced(&key("a")),
        Err(StoreError::Gone { .. })
    ));
    // That of a cluster that was never listed has the same error.
    let never = Driven::new();
    never.watch.mark_gone();
    assert_eq!(never.refusals(), gone);
}

/// A place in a scope that was listed before any watch of a cluster came.
#[derive(Default)]
struct Listed(Mutex<bool>);

impl Feed for Listed {
    fn status(&self) -> WatchStatus {
        let mut status = WatchStatus::default();
        if *self.0.lock().unwrap() {
            status.listed();
        }
        status
    }
    fn leave(&self, _: &SharedWatch) {}
    fn await_list(&self, _: &SharedWatch) {}
}

/// It reads a copy of what it had until the other endpoint is listed again. That copy was never complete.
#[test]
fn a_watch_that_moves_before_its_first_list_is_readable_once_it_has_arrived() {
    let mut driven = Driven::new();
    index(&driven.watch);
    driven.put("a");
    let objects = driven.watch.cache();
    let (unlisted, listed) = (Arc::new(Listed::default()), Arc::new(Listed(Mutex::new(true))));
    let watch = driven.watch.clone();
    watch.join_with(|| watch.join(unlisted.clone(), Arc::default()));
    assert_eq!(driven.refusals().len(), 8);
    watch.join_with(|| watch.join(listed.clone(), objects.clone()));
    watch.update_status(&*listed);
    assert!(driven.refusals()[0].starts_with(NOT_LISTED));
    assert!(!driven.store.is_synced());
    watch.arrive(|| Some(objects));
    watch.update_status(&*listed);
    driven.is_readable();

    // It moves back, to an endpoint that is not listed: what it has is old, not incomplete.
    let watch = driven.watch.clone();
    watch.join_with(|| watch.join(unlisted.clone(), Arc::default()));
    watch.update_status(&*unlisted);
    driven.is_readable();
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_store_ends_with_its_list_or_its_cluster() {
    let mut driven = Driven::new();
    let limit = Duration::from_secs(5);
    let late = driven.store.wait_synced(limit).await.unwrap_err();
    assert_eq!(
        late.to_string(),
        "cluster eu: configmaps was not listed within 5 s"
    );
    driven.begin();
    driven.finish();
    driven.store.wait_synced(Duration::ZERO).await.unwrap();
}
