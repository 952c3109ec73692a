use std::sync::Weak;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr_store::{parse_event, parse_list};
use serde_json::{Value, json};

use super::*;
use crate::request::WatchRequest;

/// What the tests keep of a ConfigMap: the value under `kept`. A value `panic` makes the projection panic, and a value
/// `incomparable` its comparison.
#[derive(Debug, Clone)]
struct Kept(String);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        assert!(other.0 != "incomparable", "incomparable");
        self.0 == other.0
    }
}

fn target() -> HubTarget<Kept> {
    HubTarget::new(Projection::of(|object| {
        let kept = object.decode::<ConfigMap>().unwrap().data?.remove("kept")?;
        assert!(kept != "panic", "a panic of the caller");
        Some(Kept(kept))
    }))
}

fn map(name: &str, version: u64, kept: &str) -> Value {
    let data = match kept {
        "" => json!({"other": "x"}),
        kept => json!({"kept": kept, "other": version.to_string()}),
    };
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}, "data": data})
}

fn encoder() -> Encoder {
    Encoder::plain(WatchRequest::of::<ConfigMap>().encoding())
}

fn put<T: Send + 'static>(target: &HubTarget<T>, item: Item<'_>) -> Result<(), UnreadableObject> {
    let object = target.encode(item, &mut encoder())?;
    object.map_or(Ok(()), |object| {
        let (object, initial) = (&object, false);
        target.apply(TargetEvent::Put { object, initial })
    })
}

fn begin<T: Send + 'static>(target: &HubTarget<T>) {
    target.apply(TargetEvent::ListBegins).unwrap();
}

fn finish<T: Send + 'static>(target: &HubTarget<T>, complete: bool) {
    let left_out = &LeftOut::new();
    target.apply(TargetEvent::Listed { complete, left_out }).unwrap();
}

fn put_all<T: Send + 'static>(target: &HubTarget<T>, maps: &[Value]) {
    let body = json!({"metadata": {"resourceVersion": "9"}, "items": maps}).to_string();
    for item in parse_list(body.as_bytes()).unwrap().items.iter() {
        let _ = put(target, item);
    }
}

fn list<T: Send + 'static>(target: &HubTarget<T>, maps: &[Value]) {
    begin(target);
    put_all(target, maps);
    finish(target, true);
}

/// Receives an event of a watch. Returns whether the object could be read.
fn receive<T: Send + 'static>(target: &HubTarget<T>, type_: &str, map: Value) -> bool {
    let line = json!({"type": type_, "object": map}).to_string();
    match parse_event(line.as_bytes()).unwrap() {
        mcr_store::WatchEvent::Put(event) => put(target, event.item()).is_ok(),
        mcr_store::WatchEvent::Deleted(event) => {
            let object = target.encode(event.item(), &mut encoder());
            object.is_ok_and(|object| {
                let mut deleted = object.iter().map(TargetEvent::Deleted);
                deleted.all(|deleted| target.apply(deleted).is_ok())
            })
        }
        _ => panic!("{line}"),
    }
}

fn events(target: &HubTarget<Kept>) -> Vec<String> {
    let shown = |event| match event {
        HubEvent::Applied(key, Kept(kept)) => format!("{key}: {kept}"),
        HubEvent::Deleted(key) => format!("-{key}"),
        HubEvent::Synced => "synced".to_owned(),
        HubEvent::Failing(problem) => problem.error.to_string(),
        HubEvent::Recovered => "recovered".into(),
    };
    std::iter::from_fn(|| target.try_next().map(shown)).collect()
}

#[test]
fn only_another_projection_brings_an_event_of_a_list_or_a_watch() {
    let target = target();
    list(&target, &[map("a", 1, "x"), map("b", 1, "x")]);
    assert_eq!(events(&target), ["a: x", "b: x", "synced"]);
    assert!(receive(&target, "MODIFIED", map("a", 2, "x")));
    list(&target, &[map("a", 3, "x"), map("b", 3, "y")]);
    assert_eq!(events(&target), ["b: y"]);
    assert_eq!(
        target.get(&ObjectKey::cluster_scoped("b")),
        Some(Kept("y".into()))
    );
    assert_eq!(target.status().lists, 2);
}

#[test]
fn an_object_without_a_projection_counts_as_not_there() {
    let target = target();
    list(&target, &[map("a", 1, ""), map("b", 1, "x")]);
    assert_eq!(events(&target), ["b: x", "synced"]);
    assert_eq!(target.len(), 1);
    assert!(receive(&target, "MODIFIED", map("a", 2, "")));
    assert!(receive(&target, "DELETED", map("a", 3, "")));
    assert_eq!(events(&target), [""; 0], "a never counted as there");
    receive(&target, "ADDED", map("a", 4, "x"));
    receive(&target, "MODIFIED", map("b", 4, ""));
    assert_eq!(events(&target), ["a: x", "-b"]);
    list(&target, &[map("a", 5, ""), map("b", 5, "x")]);
    assert_eq!(events(&target), ["-a", "b: x"]);
    receive(&target, "DELETED", map("b", 6, "x"));
    assert_eq!(events(&target), ["-b"]);
    assert_eq!(target.len(), 0);
}

#[test]
fn only_a_complete_list_deletes_an_object_that_it_lacks() {
    let target = target();
    let two = [map("a", 1, "x"), map("b", 1, "x")];
    list(&target, &two);
    events(&target);
    begin(&target);
    put_all(&target, &two[..1]);
    target.apply(TargetEvent::ListFailed).unwrap();
    begin(&target);
    put_all(&target, &two[..1]);
    finish(&target, false);
    assert_eq!(events(&target), [""; 0]);
    list(&target, &two[..1]);
    assert_eq!(events(&target), ["-b"]);
}

#[test]
fn a_panic_of_the_projection_leaves_the_object_as_it_is() {
    let target = target();
    list(&target, &[map("a", 1, "x"), map("b", 1, "x")]);
    events(&target);
    assert!(!receive(&target, "MODIFIED", map("a", 2, "panic")));
    // The object is listed, and a panic of its comparison is one of the projection.
    list(
        &target,
        &[
            map("a", 3, "panic"),
            map("b", 3, "incomparable"),
            map("c", 3, "panic"),
        ],
    );
    assert_eq!(events(&target), [""; 0]);
    assert_eq!((target.len(), target.status().skipped), (2, 4));
    list(&target, &[map("a", 4, "y"), map("b", 4, "x"), map("c", 4, "x")]);
    assert_eq!(events(&target), ["a: y", "c: x"]);
}

#[test]
fn the_projection_is_called_without_a_lock() {
    let target = Arc::new_cyclic(|target: &Weak<HubTarget<bool>>| {
        let target = target.clone();
        HubTarget::new(Projection::of(move |_| {
            target.upgrade().map(|target| target.state.try_lock().is_some())
        }))
    });
    list(&target, &[map("a", 1, "x")]);
    assert_eq!(target.get(&ObjectKey::cluster_scoped("a")), Some(true));
}

#[test]
fn objects_of_the_same_name_in_two_clusters_differ_and_one_without_a_cluster_is_left_out() {
    let kept = |object: &Object| {
        let map: ConfigMap = object.decode().unwrap();
        Some(Kept(map.metadata.namespace? + &map.data?["kept"]))
    };
    let target = HubTarget::new(Projection::of(kept).by_cluster(|metadata| {
        let cluster = metadata.annotation("cluster");
        assert!(cluster.as_deref() != Some("panic"), "a panic of the caller");
        cluster
    }));
    let of = |cluster: &str, version: u64| {
        let mut map = map("a", version, "1");
        map["metadata"]["annotations"] = json!({"cluster": cluster});
        map
    };
    let of_none = map("a", 1, "1");
    list(&target, &[of("x", 1), of("y", 1), of_none.clone()]);
    assert_eq!(events(&target), ["x/a: x1", "y/a: y1", "synced"]);
    assert!(receive(&target, "DELETED", of_none));
    assert!(receive(&target, "DELETED", of("y", 2)));
    assert_eq!(events(&target), ["-y/a"]);
    // It exists, but nobody knows where: the list deletes nothing.
    assert!(!receive(&target, "MODIFIED", of("panic", 3)));
    begin(&target);
    let body = json!({"metadata": {"resourceVersion": "9"}, "items": [of("panic", 3)]}).to_string();
    for item in parse_list(body.as_bytes()).unwrap().items.iter() {
        assert!(put(&target, item).is_err_and(|error| error.error.key.is_none()));
    }
}
