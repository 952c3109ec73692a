//! The controller is killed when it wants to make a write, for each write of the life of a database, in kcp and on the service
//! cluster. A new one then ends in the same states.

use std::{net::SocketAddr, pin::pin, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::config::Kubeconfig;
use mcr_testkit::{
    faults::{Fault, FaultProxy, Match, Upstream},
    waiting::Background,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::{
    FINALIZER, new_world,
    world::{
        World,
        server::{SECRET, until},
    },
};
use crate::program::Program;

/// The program, with a proxy before kcp and one before the service cluster.
struct Place {
    world: World,
    kcp: FaultProxy,
    service: FaultProxy,
    _tunnel: Background<()>,
    folder: tempfile::TempDir,
}

impl Place {
    /// `None` on a real kcp, which is behind no proxy.
    async fn new() -> Result<Option<Self>> {
        let world = new_world(1).await?;
        let Some(double) = world.home.double() else {
            return Ok(None);
        };
        let shard = double.kcp().shards()[0].url().to_owned();
        let kcp = FaultProxy::start(Upstream::new(shard.clone()).ca_pem(double.ca_pem())).await?;
        let service = FaultProxy::start(world.service.upstream()?).await?;
        // The endpoint slice has the address of the shard, so the way there leads through a tunnel.
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let tunnel = format!("http://{}", listener.local_addr()?);
        let (shard, to) = (shard.trim_start_matches("https://").to_owned(), kcp.address());
        let _tunnel = Background::start(|stop| async move {
            stop.run_until_cancelled(tunnels(listener, shard, to)).await;
        });
        let mut kubeconfig = Kubeconfig::from_yaml(&world.kcp_kubeconfig()?)?;
        let cluster = kubeconfig.clusters[0].cluster.as_mut().context("no cluster")?;
        let authorities = ByteString(format!("{}{}", double.ca_pem(), kcp.ca_pem()).into_bytes());
        cluster.certificate_authority_data = serde_json::from_value(json!(authorities))?;
        cluster.proxy_url = Some(tunnel);
        let folder = tempfile::tempdir()?;
        let of_kcp = serde_json::to_string(&kubeconfig)?;
        std::fs::write(folder.path().join("kcp"), of_kcp)?;
        let of_service = service.kubeconfig_with_token(world.service.token());
        std::fs::write(folder.path().join("service"), of_service)?;
        Ok(Some(Self {
            world,
            kcp,
            service,
            _tunnel,
            folder,
        }))
    }

    fn start(&self) -> Program {
        let file = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        Program::start(
            "kcp-mongodb",
            [
                "--kcp-kubeconfig",
                &file("kcp"),
                "--hub-kubeconfig",
                &file("service"),
                "--namespace",
                &self.world.service.namespace,
            ],
        )
    }
}

/// A proxy for CONNECT. What is meant for `shard` goes to another address.
async fn tunnels(listener: TcpListener, shard: String, to: SocketAddr) {
    while let Ok((stream, _)) = listener.accept().await {
        let shard = shard.clone();
        // It ends with its connection.
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let mut first = String::new();
            stream.read_line(&mut first).await?;
            let mut line = String::new();
            while stream.read_line(&mut line).await? > 2 {
                line.clear();
            }
            let wanted = first.split(' ').nth(1).unwrap_or_default();
            let mut server = match wanted == shard {
                true => TcpStream::connect(to).await?,
                false => TcpStream::connect(wanted).await?,
            };
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            copy_bidirectional(&mut stream, &mut server).await
        });
    }
}

/// What matters of the clusters.
async fn state(world: &World) -> Result<Value> {
    let (name, namespace) = (world.name(&world.shop), &world.service.namespace);
    let named = |object: &Value| {
        object["metadata"]["name"]
            .as_str()
            .unwrap()
            .replace(&name, "NAME")
    };
    let databases = world.databases().await?.into_iter().map(|object| {
        let spec = &object["spec"];
        json!([named(&object), spec["version"], spec["members"]])
    });
    // The operator's own ones go with the garbage collector, which nobody runs here.
    let copies = world.service.server.list(SECRET, namespace).await?;
    let is_copy = |object: &&Value| object["metadata"]["labels"].to_string().contains("sync.mcr.dev/");
    let copies = copies.iter().filter(is_copy);
    let secret = |object: &Value| json!([named(object), object["data"]["password"]]);
    let orders = world
        .shop
        .server
        .list(super::DATABASE, "default")
        .await?
        .into_iter()
        .map(|object| {
            let status = &object["status"];
            let conditions = status["conditions"].as_array();
            let synced =
                conditions.map(|list| list.iter().map(|one| one["reason"].clone()).collect::<Value>());
            json!([
                named(&object),
                object["metadata"]["finalizers"],
                status["phase"],
                status["version"],
                status["members"],
                status["message"],
                status["connectionSecret"],
                synced,
            ])
        });
    let secrets = world.shop.server.list(SECRET, "default").await?;
    let is_password = |object: &&Value| object["data"]["password"].is_string();
    Ok(json!({
        "databases": databases.collect::<Value>(),
        "copies": copies.map(secret).collect::<Value>(),
        "orders": orders.collect::<Value>(),
        "secrets": secrets.iter().filter(is_password).map(secret).collect::<Value>(),
    }))
}

/// What it should be: nothing but the password, or a database in this version.
fn wanted(password: &str, database: Option<(&str, i64)>) -> Value {
    let password = json!(ByteString(password.into()));
    let own = json!(["orders-password", password]);
    let Some((version, members)) = database else {
        return json!({"databases": [], "copies": [], "orders": [], "secrets": [own]});
    };
    json!({
        "databases": [["NAME", version, members]],
        "copies": [["NAME-password", password]],
        "orders": [["orders", [FINALIZER], "Ready", version, members, null, "orders-connection", ["Synced"]]],
        "secrets": [["orders-connection", password], own],
    })
}

async fn becomes(world: &World, what: &str, wanted: Value) -> Result<()> {
    let mut last = Value::Null;
    let end = until(what, async || {
        // Many lives run at once, and a look at all of it costs more than what is looked at.
        sleep(Duration::from_millis(50)).await;
        last = state(world).await?;
        Ok((last == wanted).then_some(()))
    });
    end.await.with_context(|| format!("{last:#} and not {wanted:#}"))
}

/// The whole life of a database. Each of its states is the one that it should be.
async fn life(world: &World) -> Result<()> {
    let shop = &world.shop;
    world.bind(shop).await?;
    world.order(shop).await?;
    becomes(world, "ordered", wanted("change-me", Some(("6.0.5", 1)))).await?;
    shop.change(json!({"version": "7.0.1", "size": "Large"})).await?;
    becomes(world, "changed", wanted("change-me", Some(("7.0.1", 3)))).await?;
    shop.password("another").await?;
    becomes(
        world,
        "with another password",
        wanted("another", Some(("7.0.1", 3))),
    )
    .await?;
    shop.delete_orders().await?;
    becomes(world, "deleted", wanted("another", None)).await
}

/// A life in which the program is killed when it wants to make its `n`-th write of a verb, so after all before it and without it.
/// Returns whether there was such a write.
async fn killed(kcp: bool, verb: &str, n: u64) -> Result<bool> {
    let Some(place) = Place::new().await? else {
        return Ok(false);
    };
    let proxy = if kcp { &place.kcp } else { &place.service };
    // It gets as far as the proxy, and stays there.
    let held = Fault::Slow {
        first_byte: Duration::from_secs(3600),
        bytes_per_second: None,
    };
    proxy.set(held.on(writes(kcp, verb).skip(n - 1).times(1))).await;
    let program = place.start();
    let mut life = pin!(life(&place.world));
    let hit = until("a write", async || Ok((proxy.stats().hits > 0).then_some(())));
    tokio::select! {
        biased;
        hit = hit => hit?,
        end = &mut life => return end.map(|()| false),
    }
    // SIGKILL.
    drop(program);
    proxy.clear().await;
    let _program = place.start();
    let what = format!(
        "killed before {verb} {n} in {}",
        if kcp { "kcp" } else { "the service cluster" }
    );
    life.await.context(what)?;
    Ok(true)
}

/// The writes of a verb. A path in kcp does not begin as that of a cluster does, so the proxy knows its method only.
fn writes(kcp: bool, verb: &str) -> Match {
    match (kcp, verb) {
        (true, "delete") => Match::any().verb("deletecollection").path("/clusters/"),
        (true, verb) => Match::any().verb(verb).path("/clusters/"),
        (false, verb) => Match::any().verb(verb).path("/namespaces/"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_a_controller_killed_before_any_of_its_writes_leads_to_the_same_states() {
    // The finalizer with the record, some statuses, and the release; an event and the Secret with the way to connect; that Secret. The
    // password and the database; the change of both; both. With the least number of each.
    let places = [
        (true, "patch", 5),
        (true, "create", 2),
        (true, "delete", 1),
        (false, "create", 2),
        (false, "patch", 2),
        (false, "delete", 2),
    ];
    let kills = futures::future::join_all(places.map(async |(kcp, verb, _)| {
        let mut kills = 0;
        while killed(kcp, verb, kills + 1).await.unwrap() {
            kills += 1;
            assert!(kills < 40, "it writes without end");
        }
        kills
    }))
    .await;
    println!("killed before each write: {places:?} {kills:?}");
    if std::env::var_os(super::home::REAL).is_none() {
        for ((_, _, least), kills) in places.into_iter().zip(&kills) {
            assert!(*kills >= least, "{kills:?}");
        }
    }
}
