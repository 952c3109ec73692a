//! The steps: each does something, waits until it has shown, and reports what happened.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use examples::{Backend, Done, Format, Step, Summary, print};
use mcr::{Access, Trust};
use mcr_kcp_double::KcpMove;
use mcr_testkit::faults::{Fault, FaultProxy};
use serde_json::{Value, json};

use crate::{
    operator::Mood,
    world::{
        World,
        home::Home,
        server::{BINDING, DATABASE, SECRET},
        service::Service,
    },
};

pub(crate) struct Script {
    pub(crate) format: Format,
    pub(crate) backend: Backend,
    pub(crate) steps: Vec<Step>,
}

impl Script {
    /// Runs all steps, until one fails.
    pub(crate) async fn run(mut self, home: Home, service: &str) -> Summary {
        let begun = Instant::now();
        let mut world = None;
        let mut ok = self.all(&mut world, home, service).await.is_some();
        if let Some(world) = world {
            ok = self
                .step("end", "removing what was made", end(world))
                .await
                .is_some()
                && ok;
        }
        Summary {
            backend: self.backend,
            ok,
            took: begun.elapsed(),
            steps: self.steps,
        }
    }

    async fn all(&mut self, place: &mut Option<World>, home: Home, service: &str) -> Option<()> {
        let started = self.valued(
            "start",
            "making workspaces, and preparing the service cluster",
            start(home, service),
        );
        let world = place.insert(started.await?);
        let proxy = self.valued(
            "proxy",
            "putting a proxy before the service cluster",
            proxy(world),
        );
        let proxy = &proxy.await?;
        self.step("publish", "publishing the API", publish(world)).await?;
        self.step("controller", "starting the controller", controller(world, proxy))
            .await?;
        self.step("bind", "binding the API in two workspaces", bind(world))
            .await?;
        self.step(
            "order",
            "ordering a database of the same name in both",
            order(world),
        )
        .await?;
        self.step(
            "connect",
            "waiting for the Secrets with the way to connect",
            connect(world),
        )
        .await?;
        self.step("event", "looking for an event in both workspaces", event(world))
            .await?;
        self.step(
            "change",
            "ordering another version and size in one",
            change(world),
        )
        .await?;
        self.step("password", "changing a password", password(world))
            .await?;
        self.step(
            "drift",
            "changing and deleting databases on the service cluster",
            drift(world),
        )
        .await?;
        self.step("failing", "letting the operator fail", failing(world))
            .await?;
        self.step("away", "cutting off the service cluster", away(world, proxy))
            .await?;
        if world.home.double().is_some() {
            self.step("move", "moving a workspace to another shard", moved(world))
                .await?;
        }
        self.step(
            "restart",
            "changing an order and deleting another while no controller runs",
            restart(world, proxy),
        )
        .await?;
        self.step(
            "unbind",
            "unbinding the API in one workspace, then in the other",
            unbind(world),
        )
        .await?;
        self.step("rebind", "binding and ordering again", rebind(world))
            .await
    }

    async fn step(
        &mut self,
        step: &'static str,
        doing: &str,
        run: impl Future<Output = Result<String>>,
    ) -> Option<()> {
        self.valued(step, doing, async { Ok(((), run.await?)) }).await
    }

    async fn valued<T>(
        &mut self,
        step: &'static str,
        doing: &str,
        run: impl Future<Output = Result<(T, String)>>,
    ) -> Option<T> {
        if self.format == Format::Text {
            print(&format!("…  {doing}\n"));
        }
        let begun = Instant::now();
        let done = async {
            let (value, what) = run.await?;
            let done = Done {
                what,
                took: begun.elapsed(),
                details: Value::Null,
            };
            Ok((value, done))
        };
        let (step, value) = Step::run(step, self.backend, done).await;
        print(&match self.format {
            Format::Text => step.text(),
            Format::Json => step.json(),
        });
        self.steps.push(step);
        value
    }
}

fn announced(what: &str) -> Result<String> {
    Ok(what.to_owned())
}

async fn start(home: Home, service: &str) -> Result<(World, String)> {
    let namespace = format!("mongodb-{}", std::process::id());
    let service = Service::prepare(service, namespace).await?;
    let mut world = World::new(home, service).await?;
    world.operate(Mood::Quick).await?;
    let what = "workspaces of a provider and two consumers; a service cluster with the operator";
    Ok((world, what.to_owned()))
}

/// The controller reaches the service cluster through it.
async fn proxy(world: &World) -> Result<(FaultProxy, String)> {
    let proxy = FaultProxy::start(world.service.upstream()?).await?;
    Ok((
        proxy,
        "the controller will reach the service cluster through a proxy".to_owned(),
    ))
}

async fn publish(world: &mut World) -> Result<String> {
    world.publish().await?;
    announced("schema, export, and a user with the least rights")
}

fn through(world: &World, proxy: &FaultProxy) -> Access {
    let kubeconfig = proxy.kubeconfig_with_token(world.service.token());
    Access::kubeconfig(kubeconfig, Trust::Trusted)
}

async fn controller(world: &mut World, proxy: &FaultProxy) -> Result<String> {
    world.start_at(through(world, proxy))?;
    world.knows_its_clusters().await?;
    ensure!(world.endpoints().await? == 0, "the export has an endpoint");
    announced("it runs without a consumer: the export has no endpoint")
}

async fn bind(world: &World) -> Result<String> {
    for workspace in [&world.shop, &world.bank] {
        world.bind(workspace).await?;
        world.is_in_fleet(workspace, true).await?;
    }
    let count = world.endpoints().await?;
    Ok(format!(
        "both workspaces are clusters of the fleet, at {count} endpoint(s)"
    ))
}

async fn order(world: &World) -> Result<String> {
    for workspace in [&world.shop, &world.bank] {
        world.order(workspace).await?;
    }
    for workspace in [&world.shop, &world.bank] {
        workspace.phase("Ready").await?;
    }
    let count = world.databases().await?.len();
    ensure!(count == 2, "{count} databases on the service cluster");
    announced("orders → two databases on the service cluster → both consumers see Ready")
}

async fn connect(world: &World) -> Result<String> {
    for workspace in [&world.shop, &world.bank] {
        let secret = workspace.secret("orders-connection", "change-me").await?;
        ensure!(
            secret["data"]["connectionString.standard"].is_string(),
            "no address"
        );
    }
    announced("each consumer has the Secret orders-connection")
}

async fn event(world: &World) -> Result<String> {
    for workspace in [&world.shop, &world.bank] {
        workspace.event("Ready", "the database runs").await?;
    }
    announced("each consumer has an event Ready")
}

async fn change(world: &World) -> Result<String> {
    let spec = json!({"version": "7.0.1", "size": "Large"});
    world.shop.change(spec).await?;
    let wanted = |orders: &Value| {
        let status = &orders["status"];
        status["phase"] == "Ready" && status["version"] == "7.0.1" && status["members"] == 3
    };
    world.shop.orders("updated", wanted).await?;
    let other = world.placed(&world.bank).await?.context("bank has no database")?;
    ensure!(other["spec"]["version"] == "6.0.5", "bank's database has changed");
    announced("shop sees 7.0.1 with three members; the database of bank is as it was")
}

async fn password(world: &World) -> Result<String> {
    world.shop.password("another").await?;
    world.shop.secret("orders-connection", "another").await?;
    world.bank.secret("orders-connection", "change-me").await?;
    announced("the password of shop reached its database and came back")
}

async fn drift(world: &World) -> Result<String> {
    let before = world.placed(&world.shop).await?.context("shop has no database")?;
    world
        .interfere(&world.shop, json!({"spec": {"members": 7}}))
        .await?;
    let generation = |object: &Value| object["metadata"]["generation"].as_i64();
    let repaired =
        |now: &Value| generation(now) > generation(&before).map(|n| n + 1) && now["spec"]["members"] == 3;
    world.runs(&world.shop, "repaired", repaired).await?;
    world.destroy(&world.shop).await?;
    let another = |now: &Value| now["metadata"]["uid"] != before["metadata"]["uid"];
    world.runs(&world.shop, "made again", another).await?;
    world.shop.phase("Ready").await?;
    announced("what was changed is as ordered, and what was deleted is there again")
}

async fn failing(world: &mut World) -> Result<String> {
    world.operate(Mood::Failing).await?;
    let orders = world.shop.phase("Failed").await?;
    let message = orders["status"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    world.shop.event("Failed", &message).await?;
    world.operate(Mood::Quick).await?;
    world.shop.phase("Ready").await?;
    Ok(format!(
        "shop read \"{message}\" in its status and in an event; the operator works again"
    ))
}

async fn away(world: &World, proxy: &FaultProxy) -> Result<String> {
    proxy.set(Fault::Refuse).await;
    world.shop.change(json!({"version": "7.0.2"})).await?;
    let message = world.shop.reported("ClusterAway").await?;
    proxy.clear().await;
    world.shop.runs_version("7.0.2").await?;
    world.shop.reported("Synced").await?;
    Ok(format!(
        "shop read \"{message}\"; the order was carried out when it was back"
    ))
}

async fn moved(world: &World) -> Result<String> {
    let double = world.home.double().context("no double")?;
    let before = world.placed(&world.shop).await?.context("shop has no database")?;
    double
        .kcp()
        .move_workspace(&world.shop.path, "shard-1", KcpMove::NewFirst)?;
    world.shop.change(json!({"version": "7.0.3"})).await?;
    world.shop.runs_version("7.0.3").await?;
    let after = world.placed(&world.shop).await?.context("shop has no database")?;
    ensure!(
        before["metadata"]["uid"] == after["metadata"]["uid"],
        "the database is another one"
    );
    announced("shop is on another shard and has the same database")
}

async fn restart(world: &mut World, proxy: &FaultProxy) -> Result<String> {
    world.stop().await?;
    world.shop.change(json!({"version": "7.0.4"})).await?;
    world.bank.delete_orders().await?;
    world.start_at(through(world, proxy))?;
    world.shop.runs_version("7.0.4").await?;
    world.bank.gone(DATABASE, "default/orders").await?;
    world.bank.gone(SECRET, "default/orders-connection").await?;
    let count = world.databases().await?.len();
    ensure!(count == 1, "{count} databases on the service cluster");
    announced("the new controller carried out both; one database is left")
}

async fn unbind(world: &World) -> Result<String> {
    for workspace in [&world.shop, &world.bank] {
        workspace.unbind().await?;
        world.ended(workspace).await?;
        workspace.gone(BINDING, "mongodb").await?;
        world.is_in_fleet(workspace, false).await?;
    }
    world.has_endpoints(0).await?;
    announced("the database is gone, both workspaces have left, and the export has no endpoint")
}

async fn rebind(world: &World) -> Result<String> {
    world.bind(&world.shop).await?;
    world.order(&world.shop).await?;
    world.shop.phase("Ready").await?;
    world.shop.unbind().await?;
    world.shop.gone(BINDING, "mongodb").await?;
    announced("shop had a database again, and left")
}

async fn end(world: World) -> Result<String> {
    world.end().await?;
    announced("programs, workspaces and namespaces")
}
