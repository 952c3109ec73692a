//! The Projects that namespaces belong to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use http_body_util::BodyExt;
use kube::{Client, Config, client::Body};
use mcr_core::WatchSettings;
use mcr_garden_double::Garden;
use mcr_provider_gardener::GardenerProvider;
use mcr_testkit::sim::{SimCluster, SimRule, SimUser};
use support::{PATIENCE, Received, World, hour, kubeconfig};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep},
};

const SECOND: Duration = Duration::from_secs(1);

/// What a user may do who may not read namespaces and Projects.
fn shoots() -> SimUser {
    SimUser::new("reader")
        .rule(SimRule::new(
            ["core.gardener.cloud"],
            ["shoots"],
            ["list", "watch"],
        ))
        .rule(SimRule::new(
            ["core.gardener.cloud"],
            ["shoots/adminkubeconfig"],
            ["create"],
        ))
}

fn all() -> SimUser {
    shoots()
        .rule(SimRule::new([""], ["namespaces"], ["get"]))
        .rule(SimRule::new(["core.gardener.cloud"], ["projects"], ["get"]))
}

/// A garden with one Shoot, and a provider that may not read its Project.
fn forbidden() -> (World, GardenerProvider) {
    let world = World::new();
    world.answers("one", hour(&kubeconfig("one")));
    world.server.create(Garden::shoot("garden-dev", "one")).unwrap();
    world.server.set_user("reader", shoots());
    let client = world.garden.client(world.server.client_with_token("reader"));
    let provider = world
        .builder()
        .client(client)
        .times(
            WatchSettings::default(),
            10 * SECOND,
            (PATIENCE, PATIENCE),
            SECOND,
        )
        .build()
        .unwrap();
    (world, provider)
}

fn asked(world: &World) -> usize {
    world
        .server
        .audit()
        .count(|event| event.verb == "get" && event.resource == "namespaces" && event.is_start())
}

/// The roles may be bound a moment after the start, and an API server that has just started forbids everything.
#[tokio::test(start_paused = true)]
async fn a_project_that_is_forbidden_at_first_is_asked_for_again() {
    let (world, provider) = forbidden();
    let mut received = Received::of(&provider);
    let twice = async {
        while asked(&world) < 2 {
            sleep(SECOND / 10).await;
        }
    };
    tokio::select! {
        reported = received.line() => panic!("{reported}"),
        () = twice => {}
    }
    world.server.set_user("reader", all());
    assert_eq!(received.until("synced").await, ["+dev/one", "synced"]);
}

#[tokio::test(start_paused = true)]
async fn the_namespace_stands_for_a_project_that_stays_forbidden_until_the_next_discovery() {
    let (world, provider) = forbidden();
    let began = Instant::now();
    let reported = Received::of(&provider).until("synced").await;
    assert_eq!(reported, ["+garden-dev/one", "synced"]);
    let took = began.elapsed();
    assert!((10 * SECOND..=11 * SECOND).contains(&took), "{took:?}");
    world.server.set_user("reader", all());
    let reported = Received::of(&provider).until("synced").await;
    assert_eq!(reported, ["+dev/one", "synced"]);
}

/// How many GETs of namespaces run, and ran at most.
#[derive(Default)]
struct Gets {
    running: AtomicUsize,
    most: AtomicUsize,
}

/// A client of a simulated API server, over sockets. It takes 20 ms for each namespace.
async fn slow(server: &SimCluster, gets: Arc<Gets>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = server.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, server.clone(), gets.clone()));
        }
    });
    Client::try_from(Config::new(url.parse().unwrap())).unwrap()
}

/// Answers the GETs of a connection.
async fn answer(stream: TcpStream, server: SimCluster, gets: Arc<Gets>) -> Option<()> {
    let service = server.service().with_token(&server.admin_token());
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut request = http::Request::get(&path);
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).await.ok()?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            request = request.header(name, value);
        }
        let of_namespace = path.starts_with("/api/v1/namespaces/");
        if of_namespace {
            let running = gets.running.fetch_add(1, SeqCst) + 1;
            gets.most.fetch_max(running, SeqCst);
            sleep(Duration::from_millis(20)).await;
            gets.running.fetch_sub(1, SeqCst);
        }
        let answer = service.answer(request.body(Body::empty()).ok()?).await;
        let head = format!(
            "HTTP/1.1 {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            answer.status()
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.ok()?.into_data() {
                stream
                    .write_all(format!("{:x}\r\n", data.len()).as_bytes())
                    .await
                    .ok()?;
                stream.write_all(&data).await.ok()?;
                stream.write_all(b"\r\n").await.ok()?;
            }
        }
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    }
}

#[tokio::test]
async fn the_garden_is_asked_for_a_few_projects_at_once() {
    const MANY: usize = 100;
    let world = World::new();
    for n in 0..MANY {
        let (namespace, project) = (format!("garden-{n:03}"), format!("project-{n:03}"));
        world.namespace(&namespace, Some(&project));
        let mut shoot = Garden::shoot(&namespace, "one");
        shoot["status"].take();
        world.server.create(shoot).unwrap();
    }
    let gets = Arc::<Gets>::default();
    let client = slow(&world.server, gets.clone()).await;
    let provider = world.builder().client(client).all_namespaces().build().unwrap();
    let mut reported = Received::of(&provider).until("synced").await;
    reported.pop();
    reported.sort();
    let expected: Vec<String> = (0..MANY)
        .map(|n| format!("~project-{n:03}/one: its creation has not begun"))
        .collect();
    assert_eq!(reported, expected);
    assert_eq!(gets.most.load(SeqCst), 10);
}
