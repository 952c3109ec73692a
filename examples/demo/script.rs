//! The steps: each does something to the clusters, waits until the controller has seen it, and reports how long that
//! took. A step that takes longer than its bound has failed, and ends the script.

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{bail, ensure};
use examples::{Backend, Done, Step, Summary, duration, in_millis};
use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{Cluster, ClusterState, Fleet};
use mcr_testkit::faults::Fault;
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    backend::{NAMESPACE, servers},
    measure::{Latencies, round},
    seen::{Seen, short_name},
    show::Show,
    world::{Folder, World, change, delete},
};

const FIRST: [&str; 3] = ["amsterdam", "berlin", "chicago"];
const LATER: &str = "dakar";
/// How many objects are written into each cluster.
const OBJECTS: usize = 30;

/// Runs all steps. Returns what was started, if it was, for it to go on.
pub(crate) async fn run(
    backend: Backend,
    url: Option<&str>,
    folder: &Folder,
    fleet: &Fleet,
    seen: &Seen,
    show: &dyn Show,
) -> (Option<World>, Summary) {
    let mut script = Script {
        backend,
        url,
        folder,
        fleet,
        seen,
        show,
        steps: Vec::new(),
    };
    let started = Instant::now();
    let mut world = None;
    let ok = script.all(&mut world).await.is_some();
    (
        world,
        Summary {
            backend,
            ok,
            took: started.elapsed(),
            steps: script.steps,
        },
    )
}

struct Script<'a> {
    backend: Backend,
    /// Where the manager serves its report.
    url: Option<&'a str>,
    folder: &'a Folder,
    fleet: &'a Fleet,
    seen: &'a Seen,
    show: &'a dyn Show,
    steps: Vec<Step>,
}

impl<'a> Script<'a> {
    /// None if a step failed.
    async fn all(&mut self, place: &mut Option<World>) -> Option<()> {
        let (folder, fleet, seen) = (self.folder, self.fleet, self.seen);
        let (backend, url) = (self.backend, self.url);
        let starting = format!("starting {}", servers(backend));
        let started = self.step("start", &starting, async {
            let begun = Instant::now();
            let world = World::start(backend, &FIRST).await?;
            let done = Done {
                what: servers(backend).to_owned(),
                took: begun.elapsed(),
                details: json!({"clusters": FIRST, "url": url}),
            };
            Ok((world, done))
        });
        let world = place.insert(started.await?);
        self.step(
            "discover",
            "writing three kubeconfig files",
            discover(world, folder, seen),
        )
        .await?;
        self.step(
            "write",
            "writing ConfigMaps into three clusters",
            write(world, seen),
        )
        .await?;
        self.step("join", "starting a fourth API server", join(world, folder, seen))
            .await?;
        // Its end is seen further down: other things go on meanwhile.
        let rotated = self
            .step(
                "rotate",
                "replacing the token of amsterdam",
                rotate(world, folder, seen),
            )
            .await?;
        // So is the end of this.
        let dark = self
            .step(
                "blackhole",
                "letting the network of dakar swallow everything",
                blackhole(world, fleet, seen),
            )
            .await?;
        self.step(
            "outage",
            "stopping the API server of berlin",
            outage(world, fleet, seen),
        )
        .await?;
        self.step(
            "isolation",
            "writing into the clusters that are left",
            isolation(world, seen),
        )
        .await?;
        self.step(
            "missed",
            "deleting and changing objects in berlin unseen",
            missed(world, seen),
        )
        .await?;
        self.step(
            "recover",
            "starting the API server of berlin again",
            recover(world, seen),
        )
        .await?;
        self.step(
            "silence",
            "waiting for dakar's silence to be noticed",
            silence(world, seen, dark),
        )
        .await?;
        self.step(
            "heal",
            "letting the network of dakar work again",
            heal(world, seen),
        )
        .await?;
        self.step(
            "rotated",
            "waiting for amsterdam's watch to change to the new token",
            converged(world, seen, rotated),
        )
        .await?;
        self.step(
            "leave",
            "removing the kubeconfig of chicago",
            leave(world, folder, fleet, seen),
        )
        .await?;
        Some(())
    }

    async fn step<T>(
        &mut self,
        step: &'static str,
        doing: &str,
        run: impl Future<Output = anyhow::Result<(T, Done)>>,
    ) -> Option<T> {
        self.show.begin(doing);
        let (step, value) = Step::run(step, self.backend, run).await;
        self.show.step(&step);
        self.steps.push(step);
        value
    }
}

/// Kubeconfigs are written: their clusters join, and what is in them is reconciled.
async fn discover(world: &mut World, folder: &Folder, seen: &Seen) -> anyhow::Result<((), Done)> {
    for member in &world.members {
        member.create("hello").await?;
    }
    let begun = Instant::now();
    for member in &mut world.members {
        member.write_kubeconfig(folder).await?;
    }
    seen.until(
        Duration::from_secs(20),
        "not all clusters were reconciled",
        |seen| {
            FIRST
                .iter()
                .all(|cluster| seen.object(cluster, "hello").live.is_some())
                .then_some(())
        },
    )
    .await?;
    let what = "kubeconfigs written → all three clusters reconciled";
    Ok((
        (),
        Done {
            what: what.to_owned(),
            took: begun.elapsed(),
            details: json!({"clusters": FIRST}),
        },
    ))
}

/// Objects are written: how long until each is reconciled?
async fn write(world: &World, seen: &Seen) -> anyhow::Result<((), Done)> {
    let begun = Instant::now();
    let writes = world.members.iter().map(async |member| {
        let mut written = Vec::new();
        for number in 0..OBJECTS {
            let name = format!("object-{number}");
            written.push((member.name().to_owned(), member.create(&name).await?, name));
        }
        anyhow::Ok(written)
    });
    let written: Vec<_> = futures::future::try_join_all(writes)
        .await?
        .into_iter()
        .flatten()
        .collect();
    let latencies = seen
        .until(
            Duration::from_secs(10),
            "not all objects were reconciled",
            |seen| {
                let latency = |(cluster, at, name): &(String, Instant, String)| {
                    Some(seen.object(cluster, name).live?.saturating_duration_since(*at))
                };
                written.iter().map(latency).collect::<Option<Vec<_>>>()
            },
        )
        .await?;
    let took = begun.elapsed();
    let latencies = Latencies::from(latencies);
    let what = format!(
        "{} objects written → reconciled: p50 {}, max {}",
        latencies.count(),
        duration(latencies.p50()),
        duration(latencies.max())
    );
    let details = json!(latencies);
    Ok(((), Done { what, took, details }))
}

/// A cluster is added while the controller runs.
async fn join(world: &mut World, folder: &Folder, seen: &Seen) -> anyhow::Result<((), Done)> {
    let begun = Instant::now();
    world.add_behind_proxy(LATER).await?;
    let server = begun.elapsed();
    let member = world.member(LATER)?;
    member.create("hello").await?;
    let written = member.write_kubeconfig(folder).await?;
    let at = seen
        .until(
            Duration::from_secs(15),
            "the new cluster was not reconciled",
            |seen| seen.object(LATER, "hello").live,
        )
        .await?;
    let what = format!("kubeconfig of {LATER} added → reconciled");
    let details = json!({"cluster": LATER, "serverStartMs": in_millis(server)});
    Ok((
        (),
        Done {
            what,
            took: at.saturating_duration_since(written),
            details,
        },
    ))
}

/// A token is replaced: the new one is tried before it takes over.
async fn rotate(world: &mut World, folder: &Folder, seen: &Seen) -> anyhow::Result<(SystemTime, Done)> {
    let limit = seen.limit(Duration::from_secs(10));
    let member = world.member(FIRST[0])?;
    let written = member.write_kubeconfig(folder).await?;
    let by_the_clock = SystemTime::now();
    let tried = async {
        while !member.server.asked().await?.tried {
            sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    match timeout(limit, tried).await {
        Ok(tried) => tried?,
        Err(_) => bail!("the new token was not tried within {} s", limit.as_secs()),
    }
    let what = format!("token of {} replaced → the new one is tried", FIRST[0]);
    Ok((
        by_the_clock,
        Done {
            what,
            took: written.elapsed(),
            details: json!({"cluster": FIRST[0]}),
        },
    ))
}

/// When the network of a cluster was cut off, and when and why the controller reported it.
struct Dark {
    since: Instant,
    noticed: JoinHandle<(Instant, ClusterState)>,
}

/// Nothing gets through to a cluster or back, and nothing reports it: the others must not notice.
async fn blackhole(world: &mut World, fleet: &Fleet, seen: &Seen) -> anyhow::Result<(Dark, Done)> {
    const ROUNDS: usize = 20;
    const PAUSE: Duration = Duration::from_millis(50);

    let measure = async |world: &World, prefix: &str| {
        let mut latencies = Latencies::default();
        for number in 0..ROUNDS {
            let name = format!("{prefix}-{number}");
            latencies.extend(round(world.others(&[LATER]), seen, &name).await?);
            sleep(PAUSE).await;
        }
        anyhow::Ok(latencies)
    };
    let before = measure(world, "before-the-black-hole").await?;

    let cluster = cluster(fleet, LATER)?;
    let member = world.member(LATER)?;
    let since = Instant::now();
    member.proxy()?.set(Fault::BlackHole).await;
    // Steps go on before it is noticed, so it is noted by the side.
    let noticed = tokio::spawn(async move {
        let unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
        // Work for the cluster: a request that waits. Without work, the silence would be noticed after more than a minute.
        let maps = cluster.namespaced::<ConfigMap>(NAMESPACE);
        let noticed = async {
            let state = cluster.wait_for(unreachable).await;
            (Instant::now(), state)
        };
        tokio::join!(noticed, maps.get("hello")).0
    });
    member.create("missed").await?;
    delete(member.server.client(), "hello").await?;
    let during = measure(world, "during-the-black-hole").await?;

    let p50 = (before.p50(), during.p50());
    ensure!(
        p50.1 < seen.limit(Duration::from_secs(1)),
        "the other clusters noticed: reconciles took {} instead of {}",
        duration(p50.1),
        duration(p50.0)
    );
    let what = format!(
        "{LATER} cut off; others: p50 {} before, {} during",
        duration(p50.0),
        duration(p50.1)
    );
    let details = json!({
        "cluster": LATER,
        "others": world.others(&[LATER]).count(),
        "before": before,
        "during": during,
    });
    let done = Done {
        what,
        took: since.elapsed(),
        details,
    };
    Ok((Dark { since, noticed }, done))
}

/// The silence is noticed; until then and at that moment the others go on.
async fn silence(world: &World, seen: &Seen, dark: Dark) -> anyhow::Result<((), Done)> {
    // Noticed within 30 s, and some time for a busy machine.
    let limit = seen.limit(Duration::from_secs(35));
    let Dark { since, mut noticed } = dark;

    let mut during = Latencies::default();
    let mut number = 0;
    let (at, state) = loop {
        let name = format!("during-the-silence-{number}");
        during.extend(round(world.others(&[LATER]), seen, &name).await?);
        number += 1;
        match timeout(Duration::from_millis(250), &mut noticed).await {
            Ok(found) => break found?,
            Err(_) => ensure!(
                since.elapsed() < limit,
                "{LATER} was not seen as unreachable within {} s",
                limit.as_secs()
            ),
        }
    };
    ensure!(
        matches!(state, ClusterState::Unreachable { .. }),
        "{LATER} became {} instead of Unreachable",
        state.as_str()
    );
    let missed = seen.state().object(LATER, "missed").live;
    ensure!(missed.is_none(), "something got through the black hole");
    let reason = state.reason().map(examples::printable);
    let what = format!("{LATER} → Unreachable: {}", reason.as_deref().unwrap_or("?"));
    let details = json!({"cluster": LATER, "reason": reason, "others": during});
    Ok((
        (),
        Done {
            what,
            took: at.saturating_duration_since(since),
            details,
        },
    ))
}

/// The network works again: what was missed is made up for.
async fn heal(world: &mut World, seen: &Seen) -> anyhow::Result<((), Done)> {
    let begun = Instant::now();
    world.member(LATER)?.proxy()?.clear().await;
    seen.until(
        Duration::from_secs(35),
        "what was missed was not made up for",
        |seen| {
            let (missed, hello) = (seen.object(LATER, "missed"), seen.object(LATER, "hello"));
            (missed.live.is_some() && hello.deleted.is_some()).then_some(())
        },
    )
    .await?;
    let what = format!("{LATER}'s network works again → what was missed is reconciled");
    Ok((
        (),
        Done {
            what,
            took: begun.elapsed(),
            details: json!({"cluster": LATER}),
        },
    ))
}

/// An API server stops.
async fn outage(world: &mut World, fleet: &Fleet, seen: &Seen) -> anyhow::Result<((), Done)> {
    let limit = seen.limit(Duration::from_secs(30));
    let member = world.member(FIRST[1])?;
    let cluster = cluster(fleet, FIRST[1])?;
    let begun = Instant::now();
    member.server.stop().await?;
    let unreachable = |state: &ClusterState| matches!(state, ClusterState::Unreachable { .. });
    let Ok(state) = timeout(limit, cluster.wait_for(unreachable)).await else {
        bail!(
            "{} was not seen as unreachable within {} s",
            FIRST[1],
            limit.as_secs()
        );
    };
    let took = begun.elapsed();
    let what = format!("API server of {} stopped → Unreachable", FIRST[1]);
    let details = json!({"cluster": FIRST[1], "reason": state.reason()});
    Ok(((), Done { what, took, details }))
}

/// The others must not notice.
async fn isolation(world: &World, seen: &Seen) -> anyhow::Result<((), Done)> {
    let mut slowest = Duration::ZERO;
    let others = || world.others(&[FIRST[1], LATER]);
    for member in others() {
        let written = member.create("during-the-outage").await?;
        let at = seen
            .until(
                Duration::from_secs(10),
                "a healthy cluster was not reconciled",
                |seen| seen.object(member.name(), "during-the-outage").live,
            )
            .await?;
        slowest = slowest.max(at.saturating_duration_since(written));
    }
    let what = format!(
        "meanwhile a write in each of the {} others → reconciled",
        others().count()
    );
    Ok((
        (),
        Done {
            what,
            took: slowest,
            details: json!({"clusters": others().count()}),
        },
    ))
}

/// What the controller can't see: the cluster goes on without the API server that it knows.
async fn missed(world: &mut World, seen: &Seen) -> anyhow::Result<((), Done)> {
    let member = world.member(FIRST[1])?;
    let begun = Instant::now();
    let door = member.server.back_door().await?;
    delete(door.client.clone(), "object-0").await?;
    change(door.client.clone(), "object-1", "2").await?;
    ensure!(
        seen.state().object(FIRST[1], "object-0").deleted.is_none(),
        "the deletion was seen too early"
    );
    let what = format!("{}: one object deleted, one changed, unseen", FIRST[1]);
    Ok((
        (),
        Done {
            what,
            took: begun.elapsed(),
            details: json!({"cluster": FIRST[1]}),
        },
    ))
}

/// The API server is back: what was missed is made up for.
async fn recover(world: &mut World, seen: &Seen) -> anyhow::Result<((), Done)> {
    let member = world.member(FIRST[1])?;
    let begun = Instant::now();
    member.server.start_again().await?;
    let ready = begun.elapsed();
    // Most often the controller is there before the server reports that it is ready.
    seen.until(
        Duration::from_secs(35),
        "what was missed was not made up for",
        |seen| {
            let changed = seen.object(FIRST[1], "object-1").value.as_deref() == Some("2");
            (seen.object(FIRST[1], "object-0").deleted.is_some() && changed).then_some(())
        },
    )
    .await?;
    let deletions = seen
        .state()
        .clusters
        .get(FIRST[1])
        .map_or(0, |cluster| cluster.deletions);
    ensure!(
        deletions == 1,
        "one object was deleted in {}, but {deletions} were seen to be",
        FIRST[1]
    );
    let what = format!("{} started again → what was missed is reconciled", FIRST[1]);
    let details = json!({"cluster": FIRST[1], "serverReadyMs": in_millis(ready)});
    Ok((
        (),
        Done {
            what,
            took: begun.elapsed(),
            details,
        },
    ))
}

/// The rotation has ended when the watch has begun again with the new token; nothing was listed for it.
async fn converged(world: &mut World, seen: &Seen, written: SystemTime) -> anyhow::Result<((), Done)> {
    let member = world.member(FIRST[0])?;
    let limit = seen.limit(Duration::from_secs(35));
    let moved = async {
        loop {
            // When it began, which may be a while ago: other steps went on meanwhile.
            if let Some(began) = member.server.asked().await?.watch {
                return anyhow::Ok(began.duration_since(written).unwrap_or_default());
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    let took = match timeout(limit, moved).await {
        Ok(took) => took?,
        Err(_) => bail!("no watch began with the new token within {} s", limit.as_secs()),
    };
    member.create("after-the-rotation").await?;
    seen.until(
        Duration::from_secs(10),
        "nothing was reconciled after the rotation",
        |seen| seen.object(FIRST[0], "after-the-rotation").live,
    )
    .await?;
    let lists = member.server.asked().await?.lists;
    ensure!(lists == 0, "the rotation made the controller list {lists} times");
    let what = format!("{}'s watch goes on with the new token, {lists} LISTs", FIRST[0]);
    Ok((
        (),
        Done {
            what,
            took,
            details: json!({"cluster": FIRST[0], "lists": lists}),
        },
    ))
}

/// A cluster is removed: it goes, and nothing in it counts as deleted.
async fn leave(world: &mut World, folder: &Folder, fleet: &Fleet, seen: &Seen) -> anyhow::Result<((), Done)> {
    let member = world.member(FIRST[2])?;
    let cluster = cluster(fleet, FIRST[2])?;
    let limit = seen.limit(Duration::from_secs(15));
    let removed = member.remove_kubeconfig(folder)?;
    let gone = cluster.wait_for(|state| matches!(state, ClusterState::Gone));
    if timeout(limit, gone).await.is_err() {
        bail!("{} was not gone within {} s", FIRST[2], limit.as_secs());
    }
    let took = removed.elapsed();
    let deletions = seen
        .state()
        .clusters
        .get(FIRST[2])
        .map_or(0, |cluster| cluster.deletions);
    ensure!(deletions == 0, "{deletions} objects were taken for deleted");
    let what = format!(
        "kubeconfig of {} removed → gone, {deletions} deletions seen",
        FIRST[2]
    );
    Ok((
        (),
        Done {
            what,
            took,
            details: json!({"cluster": FIRST[2], "deletions": deletions}),
        },
    ))
}

fn cluster(fleet: &Fleet, name: &str) -> anyhow::Result<Cluster> {
    let found = fleet
        .clusters()
        .into_iter()
        .find(|cluster| short_name(cluster) == name);
    found.ok_or_else(|| anyhow::anyhow!("cluster {name} is not in the fleet"))
}
