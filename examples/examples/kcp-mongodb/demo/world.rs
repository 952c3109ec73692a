//! A kcp with a provider and two consumers, a service cluster, the controller, and the simulated operator.

use anyhow::{Context, Result};
use mcr::{Access, Fleet, HUB, Manager, ManagerBuilder, ManagerError, Trust};
use mcr_provider_single::SingleProvider;
use mcr_testkit::waiting::Background;
use serde_json::Value;

#[path = "home.rs"]
pub(crate) mod home;
#[path = "server.rs"]
pub(crate) mod server;
#[path = "service.rs"]
pub(crate) mod service;

use super::{controller, operator};
use home::Home;
use server::{BINDING, MONGODB, SLICE, Workspace, objects, until};
use service::Service;

type Running = Background<Result<(), ManagerError>>;

pub(crate) struct World {
    pub(crate) home: Home,
    pub(crate) mongodb: Workspace,
    pub(crate) shop: Workspace,
    pub(crate) bank: Workspace,
    pub(crate) service: Service,
    /// Of the controller's user in kcp.
    token: String,
    controller: Option<(Fleet, Running)>,
    operator: Option<Running>,
}

impl World {
    /// The workspaces of the provider and of two consumers. The service cluster is prepared already.
    pub(crate) async fn new(home: Home, service: Service) -> Result<Self> {
        let mut made = Vec::new();
        for (number, object) in objects(include_str!("../workspaces.yaml"))?
            .into_iter()
            .enumerate()
        {
            // The consumers are on different shards, if there are two.
            made.push(home.workspace(object, number.saturating_sub(1)).await?);
        }
        let [mongodb, shop, bank] = made.try_into().ok().context("workspaces.yaml has three")?;
        Ok(Self {
            home,
            mongodb,
            shop,
            bank,
            service,
            token: String::new(),
            controller: None,
            operator: None,
        })
    }

    /// The API in the workspace of the provider, and the user of the controller.
    pub(crate) async fn publish(&mut self) -> Result<()> {
        for manifest in [include_str!("../export.yaml"), include_str!("../rbac.yaml")] {
            for object in objects(manifest)? {
                self.mongodb.server.apply(object).await?;
            }
        }
        self.token = self.home.token(&self.mongodb).await?;
        Ok(())
    }

    pub(crate) fn kcp_kubeconfig(&self) -> Result<String> {
        let least = self.home.kubeconfig(&self.mongodb.path, Some(&self.token))?;
        Ok(serde_json::to_string(&least)?)
    }

    /// Starts the controller, with the rights of the manifests.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.start_at(self.service.access()?)
    }

    /// As [`start`](Self::start), with this way to the service cluster.
    pub(crate) fn start_at(&mut self, service: Access) -> Result<()> {
        let manager = self.program(Manager::builder(), service)?.build()?;
        let fleet = manager.fleet().clone();
        self.controller = Some((fleet, Background::start(|stop| manager.run_until(stop))));
        Ok(())
    }

    /// The program that main.rs runs.
    pub(crate) fn program(&self, manager: ManagerBuilder, service: Access) -> Result<ManagerBuilder> {
        let kcp = Access::kubeconfig(self.kcp_kubeconfig()?, Trust::Trusted);
        let consumers = controller::consumers(kcp, "mongodb".into())?;
        let service = SingleProvider::named(HUB, service)?;
        controller::manager(manager, consumers, service, self.service.namespace.clone())
    }

    pub(crate) async fn stop(&mut self) -> Result<()> {
        let (_, running) = self.controller.take().context("no controller runs")?;
        Ok(running.stop().await?)
    }

    pub(crate) fn fleet(&self) -> Result<&Fleet> {
        Ok(&self.controller.as_ref().context("no controller runs")?.0)
    }

    /// The service cluster is connected.
    pub(crate) async fn knows_its_clusters(&self) -> Result<()> {
        let fleet = self.fleet()?;
        until("the fleet knows its clusters", async || {
            let hub = fleet.get(HUB).is_ok_and(|hub| hub.state().is_ready());
            Ok(hub.then_some(()))
        })
        .await
    }

    /// A workspace is in the fleet, or no longer.
    pub(crate) async fn is_in_fleet(&self, workspace: &Workspace, wanted: bool) -> Result<()> {
        let (fleet, id) = (self.fleet()?, &*workspace.id);
        until(
            &format!("{} in the fleet: {wanted}", workspace.path),
            async || Ok((fleet.get(id).is_ok() == wanted).then_some(())),
        )
        .await
    }

    /// Starts the operator, or replaces it by one that behaves like this.
    pub(crate) async fn operate(&mut self, mood: operator::Mood) -> Result<()> {
        self.rest().await?;
        let cluster = SingleProvider::named("service", self.service.admin()?)?;
        let manager = Manager::builder()
            .provider(cluster)
            .controller(operator::operator(mood, &self.service.namespace))
            .build()?;
        self.operator = Some(Background::start(|stop| manager.run_until(stop)));
        Ok(())
    }

    /// Ends the operator.
    pub(crate) async fn rest(&mut self) -> Result<()> {
        match self.operator.take() {
            Some(operator) => Ok(operator.stop().await?),
            None => Ok(()),
        }
    }

    /// The workspace binds the export.
    pub(crate) async fn bind(&self, workspace: &Workspace) -> Result<()> {
        for mut object in objects(include_str!("../binding.yaml"))? {
            object["spec"]["reference"]["export"]["path"] = self.mongodb.path.clone().into();
            workspace.server.apply(object).await?;
        }
        let what = format!("the binding in {} is ready", workspace.path);
        until(&what, async || {
            let binding = workspace.server.get(BINDING, "mongodb").await?;
            Ok(binding
                .filter(|binding| binding["status"]["phase"] == "Bound")
                .map(drop))
        })
        .await
    }

    /// The workspace orders the database of the manifest.
    pub(crate) async fn order(&self, workspace: &Workspace) -> Result<()> {
        for object in objects(include_str!("../database.yaml"))? {
            workspace.server.apply(object).await?;
        }
        Ok(())
    }

    /// How many endpoints the export has. kcp makes the slice a moment after the export.
    pub(crate) async fn endpoints(&self) -> Result<usize> {
        let slice = self
            .mongodb
            .server
            .get(SLICE, "mongodb")
            .await?
            .unwrap_or_default();
        Ok(slice["status"]["endpoints"].as_array().map_or(0, Vec::len))
    }

    /// Waits until there are so many.
    pub(crate) async fn has_endpoints(&self, wanted: usize) -> Result<()> {
        until(&format!("{wanted} endpoints"), async || {
            Ok((self.endpoints().await? == wanted).then_some(()))
        })
        .await
    }

    /// The name on the service cluster of what `orders` in a workspace became.
    pub(crate) fn name(&self, workspace: &Workspace) -> String {
        mcr_sync::hashed(mcr_sync::SourceName {
            cluster: &workspace.id,
            namespace: Some("default"),
            name: "orders",
        })
    }

    /// The same with its namespace.
    pub(crate) fn key(&self, workspace: &Workspace) -> String {
        format!("{}/{}", self.service.namespace, self.name(workspace))
    }

    /// All databases of the service cluster.
    pub(crate) async fn databases(&self) -> Result<Vec<Value>> {
        self.service.server.list(MONGODB, &self.service.namespace).await
    }

    /// What `orders` in a workspace became.
    pub(crate) async fn placed(&self, workspace: &Workspace) -> Result<Option<Value>> {
        self.service.server.get(MONGODB, &self.key(workspace)).await
    }

    /// The same, when it is as wanted.
    pub(crate) async fn runs(
        &self,
        workspace: &Workspace,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("the database of {}: {what}", workspace.path);
        until(&what, async || {
            Ok(self.placed(workspace).await?.filter(|object| wanted(object)))
        })
        .await
    }

    /// It is gone.
    pub(crate) async fn ended(&self, workspace: &Workspace) -> Result<()> {
        let what = format!("the database of {} is gone", workspace.path);
        until(&what, async || {
            Ok(self.placed(workspace).await?.is_none().then_some(()))
        })
        .await
    }

    /// Somebody on the service cluster changes a database.
    pub(crate) async fn interfere(&self, workspace: &Workspace, patch: Value) -> Result<()> {
        self.service
            .server
            .patch(MONGODB, &self.key(workspace), patch)
            .await
    }

    /// Somebody on the service cluster deletes a database.
    pub(crate) async fn destroy(&self, workspace: &Workspace) -> Result<()> {
        self.service.server.delete(MONGODB, &self.key(workspace)).await
    }

    /// Stops the programs, and deletes what was made in clusters that stay.
    pub(crate) async fn end(mut self) -> Result<()> {
        if self.controller.is_some() {
            self.stop().await?;
        }
        self.rest().await?;
        for workspace in [&self.shop, &self.bank, &self.mongodb] {
            self.home.remove(workspace).await?;
        }
        self.service.remove().await
    }
}
