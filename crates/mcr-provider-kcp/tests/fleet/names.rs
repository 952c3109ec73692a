//! The same namespace and name in many workspaces never meets in a store, a request, an event, a log line or a metric.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use kube::{
    core::DynamicObject,
    runtime::events::{Event, EventType},
};
use mcr::{Action, BoxError, Controller, Manager, Request, RequestObject, metrics::MetricsOptions};
use mcr_kcp_double::{Kcp, KcpWorkspace};
use mcr_testkit::{log::Log, waiting::Background};
use proptest::{prelude::*, test_runner::Config};
use serde_json::json;
use tracing::Level;

use crate::world::*;

const SHARDS: [&str; 2] = ["root", "shard-1"];
const WORKSPACES: usize = 4;
/// No cluster, no kind and no path contains these words.
const NAMES: [&str; 2] = ["shared-one", "shared-two"];

#[derive(Debug, Clone)]
enum Step {
    /// Of a workspace, by its number, and a name.
    Put(usize, usize),
    Delete(usize, usize),
    /// Takes its widgets along, and binds again.
    Rebind(usize),
    /// The watches of a shard end.
    EndWatches(usize),
    /// They end, and can't go on where they were.
    Compact(usize),
    /// Everything so far is seen before the next step.
    Converge,
}

fn step() -> impl Strategy<Value = Step> {
    let (of, name, shard) = (|| 0..WORKSPACES, || 0..NAMES.len(), || 0..SHARDS.len());
    prop_oneof![
        8 => (of(), name()).prop_map(|(at, name)| Step::Put(at, name)),
        4 => (of(), name()).prop_map(|(at, name)| Step::Delete(at, name)),
        1 => of().prop_map(Step::Rebind),
        1 => shard().prop_map(Step::EndWatches),
        1 => shard().prop_map(Step::Compact),
        2 => Just(Step::Converge),
    ]
}

/// What the reconciler has seen.
#[derive(Default)]
struct Seen {
    /// The clusters and objects of all requests.
    requests: BTreeSet<(String, String)>,
    /// What must never happen.
    wrong: Vec<String>,
}

/// Writes an event about each widget, and fails once for each of its states, so that the engine logs it.
async fn reconcile(request: Request<DynamicObject>, seen: Arc<Mutex<Seen>>) -> Result<Action, BoxError> {
    let cluster = request.cluster.name().to_string();
    let object = match &request.object {
        RequestObject::Live(object) => Some(object),
        other => other.last_known(),
    };
    {
        let mut seen = seen.lock().unwrap();
        seen.requests
            .insert((cluster.clone(), request.key.object.to_string()));
        if let Some(object) = object {
            let of = object
                .metadata
                .annotations
                .as_ref()
                .and_then(|all| all.get("kcp.io/cluster"));
            let owner = object.data["spec"]["owner"].as_str();
            if of != Some(&cluster) || owner != Some(&cluster) || request.key.cluster.as_str() != cluster {
                seen.wrong
                    .push(format!("{} has an object of {of:?} and {owner:?}", request.key));
            }
        }
    }
    if request.attempt == 0 {
        return Err(format!("of {cluster}").into());
    }
    if let RequestObject::Live(object) = &request.object {
        let event = Event {
            type_: EventType::Normal,
            reason: "Seen".into(),
            note: Some(format!("in {cluster}")),
            action: "See".into(),
            secondary: None,
        };
        let reference = kube::Resource::object_ref(&**object, &widgets());
        // The widget may have gone, and its workspace with it.
        _ = request.cluster.recorder().publish(&event, &reference).await;
    }
    Ok(Action::done())
}

fn consumer(world: &World, number: usize) -> KcpWorkspace {
    let path = format!("root:w{number}");
    let workspace = world
        .server
        .kcp()
        .create_workspace_on(&path, SHARDS[number % 2])
        .or_fail();
    bind_with_events(&workspace);
    workspace
}

fn bind_with_events(workspace: &KcpWorkspace) {
    workspace
        .create(json!({
            "apiVersion": "apis.kcp.io/v1alpha2", "kind": "APIBinding", "metadata": {"name": "widgets"},
            "spec": {
                "reference": {"export": {"path": "root:provider", "name": "widgets"}},
                "permissionClaims": [{
                    "group": "events.k8s.io", "resource": "events", "verbs": ["*"], "selector": {"matchAll": true},
                    "state": "Accepted",
                }],
            },
        }))
        .or_fail();
}

async fn run(steps: Vec<Step>) {
    let log = Log::of_this_thread(Level::DEBUG);
    let world = World::start(Kcp::builder().shards(2)).await;
    let mut export = world.provider.get("apiexports.apis.kcp.io", "widgets").unwrap();
    export["spec"]["permissionClaims"] =
        json!([{"group": "events.k8s.io", "resource": "events", "verbs": ["*"]}]);
    world.provider.update(export).or_fail();
    let workspaces: Vec<KcpWorkspace> = (0..WORKSPACES).map(|number| consumer(&world, number)).collect();
    let ids: BTreeSet<String> = workspaces
        .iter()
        .map(|workspace| workspace.id().to_owned())
        .collect();

    let seen = Arc::<Mutex<Seen>>::default();
    let controller = Controller::<DynamicObject>::with("widgets", &widgets()).build(reconcile, seen.clone());
    let manager = Manager::builder()
        .provider(world.builder().build().or_fail())
        .controller(controller)
        .build()
        .or_fail();
    let fleet = manager.fleet().clone();
    let metrics = manager.metrics(MetricsOptions::default());
    let running = Background::start(|stop| manager.run_until(stop));

    // What each workspace has, and everything that was ever there.
    let mut model = vec![BTreeMap::<&str, usize>::new(); WORKSPACES];
    let mut ever = BTreeSet::new();
    let converged = async |model: &[BTreeMap<&str, usize>]| {
        for (workspace, wanted) in workspaces.iter().zip(model) {
            let wanted: Vec<String> = wanted
                .iter()
                .map(|(name, color)| format!("default/{name} {color}"))
                .collect();
            eventually(PATIENCE, format!("{} holds {wanted:?}", workspace.path()), || {
                (store(&fleet, workspace.id())? == wanted).then_some(())
            })
            .await;
        }
    };
    let steps = steps.into_iter().chain([Step::Converge]);
    for (number, step) in steps.enumerate() {
        match step {
            Step::Put(at, name) => {
                let (workspace, name) = (&workspaces[at], NAMES[name]);
                workspace
                    .apply(json!({
                        "apiVersion": "example.io/v1", "kind": "Widget",
                        "metadata": {"name": name, "namespace": "default"},
                        "spec": {"color": number.to_string(), "owner": workspace.id()},
                    }))
                    .or_fail();
                model[at].insert(name, number);
                ever.insert((workspace.id().to_owned(), format!("default/{name}")));
            }
            Step::Delete(at, name) => {
                if model[at].remove(NAMES[name]).is_some() {
                    workspaces[at]
                        .delete(WIDGETS, &format!("default/{}", NAMES[name]))
                        .or_fail();
                }
            }
            Step::Rebind(at) => {
                unbind(&workspaces[at]);
                bind_with_events(&workspaces[at]);
                model[at].clear();
            }
            Step::EndWatches(shard) => world.server.kcp().shard(SHARDS[shard]).unwrap().end_watches(),
            Step::Compact(shard) => {
                let shard = world.server.kcp().shard(SHARDS[shard]).unwrap();
                shard.end_watches();
                shard.compact(shard.resource_version());
            }
            Step::Converge => converged(&model).await,
        }
    }

    // Each live widget has been reconciled in its last state, with an event in its own workspace.
    for (workspace, wanted) in workspaces.iter().zip(&model) {
        for name in wanted.keys() {
            let key = (workspace.id().to_owned(), format!("default/{name}"));
            eventually(PATIENCE, format!("{key:?} is reconciled"), || {
                let events = workspace.list("events.events.k8s.io", "");
                let reported = events.iter().any(|event| event["regarding"]["name"] == **name);
                (reported && seen.lock().unwrap().requests.contains(&key)).then_some(())
            })
            .await;
        }
    }
    for workspace in &workspaces {
        for event in workspace.list("events.events.k8s.io", "") {
            assert_eq!(event["note"], format!("in {}", workspace.id()));
        }
    }
    {
        let seen = seen.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{:?}", seen.wrong);
        assert!(seen.requests.is_subset(&ever), "{:?} of {ever:?}", seen.requests);
    }
    check_metrics(|| metrics.text(), &workspaces, &model).await;
    check_log(&log.text(), &ids);
    running.stop().await.or_fail();
}

/// The widgets in the store of a workspace, if it is in the fleet and has been listed.
fn store(fleet: &mcr::Fleet, id: &str) -> Option<Vec<String>> {
    let store = fleet.get(id).ok()?.store_with::<DynamicObject>(&widgets()).ok()?;
    let mut objects = Vec::new();
    for object in store.list().ok()? {
        assert_eq!(
            object.data["spec"]["owner"], *id,
            "an object of another workspace"
        );
        let metadata = &object.metadata;
        objects.push(format!(
            "{}/{} {}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
            object.data["spec"]["color"].as_str().unwrap_or_default()
        ));
    }
    objects.sort();
    Some(objects)
}

/// No series names an object, and the series of each workspace count its own objects.
///
/// A store is like the model also before it has seen a widget that was deleted at once. The widget comes later then, and stays
/// for the delay of an uncertain deletion. So the counts are waited for.
async fn check_metrics(
    text: impl Fn() -> String,
    workspaces: &[KcpWorkspace],
    model: &[BTreeMap<&str, usize>],
) {
    for (workspace, widgets) in workspaces.iter().zip(model) {
        let series = format!("mcr_cluster_objects{{cluster=\"{}\"", workspace.id());
        let count = format!(" {}", widgets.len());
        eventually(PATIENCE, format!("{series} ends with{count}"), || {
            let text = text();
            let is_its = |line: &str| line.starts_with(&series) && line.ends_with(&count);
            text.lines().any(is_its)
        })
        .await;
    }
    let text = text();
    assert!(!NAMES.iter().any(|name| text.contains(name)), "{text}");
}

/// A line that names an object names one workspace.
fn check_log(text: &str, ids: &BTreeSet<String>) {
    let mut named = 0;
    for line in text
        .lines()
        .filter(|line| NAMES.iter().any(|name| line.contains(name)))
    {
        named += 1;
        let of = ids.iter().filter(|id| line.contains(id.as_str())).count();
        assert_eq!(of, 1, "{line}");
    }
    // Nothing was reconciled in a run without a widget.
    assert!(named > 0 || !text.contains("reconcile failed"), "{text}");
}

proptest! {
    #![proptest_config(Config { cases: 4, failure_persistence: None, ..Config::default() })]

    #[test]
    fn kcp_the_same_name_in_two_workspaces_never_meets(steps in proptest::collection::vec(step(), 12..30)) {
        // One thread, so that the log has all lines.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(steps));
    }
}
