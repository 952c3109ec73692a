//! The manager: runs a fleet, its controllers and the other tasks of a program.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::FutureExt;
use kube::Client;
use mcr_core::{BoxError, Fleet, FleetBuilder, FleetSettings, Provider, ReadyCheck, UserAgent};
use mcr_lease::{InvalidCandidate, Leadership};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

#[cfg(feature = "server")]
use crate::server::Server;
use crate::{
    controller::{BuiltController, ControllerHandle},
    error::{BuildError, ManagerError},
    leader::{self, Elected, LeaderElection},
    report::FleetReport,
    signals,
    tasks::{NamedTasks, Task, lead, panicked},
    unlogged,
};

/// Runs a fleet, its controllers and tasks. At the end it stops the controllers and tasks first, and then the fleet.
///
/// ```no_run
/// use mcr::{BuiltController, Manager, ManagerError, Provider};
///
/// # async fn example(provider: impl Provider, controller: BuiltController) -> Result<(), ManagerError> {
/// Manager::builder().provider(provider).controller(controller).build()?.run().await
/// # }
/// ```
pub struct Manager {
    fleet: Fleet,
    controllers: Vec<BuiltController>,
    tasks: Vec<(Arc<str>, Task)>,
    shutdown_grace: Duration,
    elected: Option<Elected>,
    #[cfg(feature = "server")]
    serve: Option<crate::server::ServerOptions>,
}

/// Builds a [`Manager`].
#[must_use = "a manager does nothing until it is built and run"]
pub struct ManagerBuilder {
    fleet: Option<Fleet>,
    builder: FleetBuilder,
    providers: usize,
    settings: bool,
    controllers: Vec<Result<BuiltController, BuildError>>,
    tasks: Vec<(Arc<str>, Task)>,
    shutdown_grace: Duration,
    equal_names: bool,
    election: Option<Result<Elected, InvalidCandidate>>,
    /// The leadership for the leader tasks; set by `build`.
    leadership: Arc<OnceLock<Leadership>>,
    user_agent: Option<String>,
    #[cfg(feature = "server")]
    serve: Option<crate::server::ServerOptions>,
}

impl Manager {
    /// Starts to build a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder {
            fleet: None,
            builder: Fleet::builder(),
            providers: 0,
            settings: false,
            controllers: Vec::new(),
            tasks: Vec::new(),
            shutdown_grace: Duration::from_secs(30),
            equal_names: false,
            election: None,
            leadership: Arc::default(),
            user_agent: None,
            #[cfg(feature = "server")]
            serve: None,
        }
    }

    /// Starts to build a manager for a single cluster, the one of this client. The controllers are the same as for a fleet.
    pub fn single(client: Client) -> ManagerBuilder {
        Self::builder().fleet(Fleet::single(client))
    }

    /// The fleet.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Handles to read the state of the controllers, in the order in which they were added.
    pub fn controllers(&self) -> Vec<ControllerHandle> {
        self.controllers.iter().map(BuiltController::handle).collect()
    }

    /// Whether this process leads, now and while the manager runs. `None` without leader election. For tasks, the builder has
    /// [it](ManagerBuilder::leadership) too.
    pub fn leadership(&self) -> Option<Leadership> {
        self.elected.as_ref().map(Elected::leadership)
    }

    /// Reports the current state of the fleet, its providers and controllers.
    pub fn report(&self) -> FleetReport {
        FleetReport::of(&self.fleet, &self.controllers())
    }

    /// The metrics of the fleet and the controllers, for programs that serve metrics themselves.
    #[cfg(feature = "metrics")]
    pub fn metrics(&self, options: crate::metrics::MetricsOptions) -> crate::metrics::Metrics {
        crate::metrics::Metrics::new(&self.fleet, self.controllers(), options)
    }

    /// Runs until SIGINT or SIGTERM, or until a controller or task fails.
    ///
    /// After the first signal, controllers and tasks have the [grace period](ManagerBuilder::shutdown_grace) to end. A second
    /// signal ends the process at once with code 1. The manager raises the soft limit of open files to the hard limit.
    ///
    /// If the program has neither a `tracing` subscriber nor a logger of the crate `log` after 10 seconds, the manager prints
    /// one line on stderr that explains how to set one.
    ///
    /// # Errors
    /// The first [`ManagerError`] of a controller or task, after all of them have ended. After [`ManagerError::Stuck`] a task may
    /// still run. One that never awaits also keeps a tokio runtime from ending, so end the process with `std::process::exit`.
    ///
    /// # Cancellation
    /// Dropping the future aborts everything without a grace period.
    pub async fn run(self) -> Result<(), ManagerError> {
        let stop = CancellationToken::new();
        let listening = signals::listen(stop.clone()).map_err(ManagerError::Signals)?;
        let mut listener = JoinSet::new();
        listener.spawn(listening);
        let result = self.run_until(stop).await;
        listener.shutdown().await;
        result
    }

    /// As [`run`](Self::run), but runs until `stop` is cancelled, and does not handle signals.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn run_until(self, stop: CancellationToken) -> Result<(), ManagerError> {
        signals::raise_open_files();
        let handles = self.controllers();
        let Self {
            fleet,
            controllers,
            tasks,
            shutdown_grace,
            elected,
            #[cfg(feature = "server")]
            serve,
        } = self;
        let (stop_work, stop_fleet) = (CancellationToken::new(), CancellationToken::new());
        let _guards = (stop_work.clone().drop_guard(), stop_fleet.clone().drop_guard());
        // If the future of `run_until` is dropped, the JoinSet aborts the server.
        #[cfg(feature = "server")]
        let (mut server, stop_server) = (JoinSet::new(), CancellationToken::new());
        #[cfg(feature = "server")]
        if let Some(options) = serve {
            let bound = Server::bind(options, &fleet, handles.clone(), stop_work.clone()).await?;
            server.spawn(bound.run(stop_server.clone()));
        }
        let mut election = match elected {
            Some(elected) => Some(elected.start().await?),
            None => None,
        };
        let mut fleet_task = JoinSet::new();
        fleet_task.spawn({
            let (fleet, stop) = (fleet.clone(), stop_fleet.clone());
            async move { fleet.run(stop).await }
        });
        let mut running = NamedTasks::default();
        // Controllers abort their reconciles a little earlier, so that they have ended at the end of the grace period.
        let most = shutdown_grace.mul_f64(0.9);
        for controller in controllers {
            let (name, fleet, stop) = (controller.name().into(), fleet.clone(), stop_work.clone());
            let run = controller.run_within(fleet, stop, most);
            running.spawn(name, async move { run.await.map_err(ManagerError::from) });
        }
        for (name, task) in tasks {
            let (fleet, stop, known) = (fleet.clone(), stop_work.clone(), name.clone());
            running.spawn(name, async move {
                let ended = async { task(fleet, stop).await };
                ended
                    .await
                    .map_err(|source| ManagerError::Task { task: known, source })
            });
        }
        let mut result = tokio::select! {
            () = stop.cancelled() => Ok(()),
            failed = running.first_failure() => Err(failed),
            // A fleet that returns without an error was already running elsewhere, and goes on there.
            Some(Err(error)) = fleet_task.join_next() => Err(panicked("fleet", error)),
            error = leader::wait_for_panic(&mut election) => Err(panicked("leader election", error)),
            never = unlogged::warn_if_unlogged() => match never {},
        };
        if let Err(error) = &result {
            tracing::error!(%error, "stopping after an error");
        }
        stop_work.cancel();
        let deadline = Instant::now() + shutdown_grace;
        let ended = timeout_at(deadline, running.all()).await;
        result = result.and(ended.unwrap_or_else(|_| Err(running.stuck(shutdown_grace))));
        let all_ended = running.abort().await;
        if let Some(election) = election {
            election.end(&handles, all_ended).await;
        }
        // The fleet stops last, because ending work still needs its clusters. It has its own grace period.
        stop_fleet.cancel();
        let limit = fleet.drain_grace() + Duration::from_secs(10);
        match timeout(limit, fleet_task.join_next()).await {
            Ok(Some(Err(error))) => result = result.and(Err(panicked("fleet", error))),
            Ok(_) => {}
            Err(_) => {
                result = result.and(Err(ManagerError::Stuck {
                    what: "the fleet".into(),
                    grace: limit,
                }))
            }
        }
        // The server stops last, so that it still serves the state of the fleet while that stops.
        #[cfg(feature = "server")]
        {
            stop_server.cancel();
            let _ = timeout(Duration::from_secs(3), server.join_next()).await;
        }
        result
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("fleet", &self.fleet)
            .field("controllers", &self.controllers)
            .field(
                "tasks",
                &self.tasks.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}

impl ManagerBuilder {
    /// Adds a provider of clusters.
    pub fn provider(mut self, provider: impl Provider) -> Self {
        self.providers += 1;
        self.builder = self.builder.provider(provider);
        self
    }

    /// Runs this fleet, instead of building one from providers and settings.
    pub fn fleet(mut self, fleet: Fleet) -> Self {
        self.fleet = Some(fleet);
        self
    }

    /// Changes settings of the fleet.
    pub fn settings(mut self, change: impl FnOnce(&mut FleetSettings)) -> Self {
        self.settings = true;
        self.builder = self.builder.settings(change);
        self
    }

    /// Sets who API servers take the program for, best as `NAME/VERSION`; see [`UserAgent`]. Default: the name of the executable file.
    ///
    /// ```
    /// let builder = mcr::Manager::builder().user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")));
    /// ```
    pub fn user_agent(mut self, program: impl Into<String>) -> Self {
        self.user_agent = Some(program.into());
        self
    }

    /// Runs a check in each cluster, for controllers that work where it [passes](crate::ClusterSelector::ready). See [`ReadyCheck`].
    pub fn ready_check(mut self, name: impl Into<Arc<str>>, check: ReadyCheck) -> Self {
        self.settings = true;
        self.builder = self.builder.ready_check(name, check);
        self
    }

    /// Adds a controller, or the result of [`Controller::build`](crate::Controller::build). In the second case,
    /// [`build`](Self::build) returns its error.
    pub fn controller(mut self, controller: impl IntoController) -> Self {
        self.controllers.push(controller.into_controller());
        self
    }

    /// Adds a task that runs beside the controllers, such as a web server or a reporter.
    ///
    /// The task must end soon after its token is cancelled. It may end earlier with `Ok`. An error or a panic stops the
    /// manager.
    pub fn task<Fut>(
        mut self,
        name: impl Into<Arc<str>>,
        task: impl FnOnce(Fleet, CancellationToken) -> Fut + Send + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        self.tasks.push((
            name.into(),
            Box::new(move |fleet, stop| task(fleet, stop).boxed()),
        ));
        self
    }

    /// Adds a task that runs only while this process leads, as the Runnables of controller-runtime do. Without
    /// [leader election](Self::leader_election) it runs as every [task](Self::task).
    ///
    /// It is called once in each term, which needs an `Fn`. Its token is cancelled when the term ends or the manager stops. A task
    /// that has not ended when another replica may lead is dropped at its next await. What it returns after the end of its term
    /// stops nothing; before that, an error or a panic stops the manager.
    ///
    pub fn leader_task<Fut>(
        self,
        name: impl Into<Arc<str>>,
        task: impl Fn(Fleet, CancellationToken) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let (name, leadership): (Arc<str>, _) = (name.into(), self.leadership.clone());
        self.task(name.clone(), move |fleet, stop| async move {
            lead(&name, task, fleet, stop, leadership.get().cloned()).await
        })
    }

    /// Whether the process leads, for a [task](Self::task) that runs on every replica. `None` if no
    /// [leader election](Self::leader_election) was set before, or one with settings that are not valid.
    ///
    /// ```
    /// # use mcr::{LeaderElection, Manager};
    /// let builder = Manager::builder().leader_election(LeaderElection::new("my-controller"));
    /// let leadership = builder.leadership().unwrap();
    /// builder.task("reporter", |_, _| async move {
    ///     println!("leads: {}", leadership.is_held());
    ///     Ok(())
    /// });
    /// ```
    pub fn leadership(&self) -> Option<Leadership> {
        let elected = self.election.as_ref()?.as_ref().ok()?;
        Some(elected.leadership())
    }

    /// Serves `/metrics`, `/clusters`, `/healthz` and `/readyz` while the manager runs; see [`server`](crate::server).
    ///
    /// If the address can't be bound, or a file can't be used, [`Manager::run`] returns an error before it starts anything. A second call replaces
    /// the options of the first.
    ///
    /// ```no_run
    /// use mcr::{Manager, ManagerError, Provider, server::ServerOptions};
    ///
    /// # async fn example(provider: impl Provider) -> Result<(), ManagerError> {
    /// // On 127.0.0.1:8080, for this machine only. Pass a SocketAddr to use another address.
    /// Manager::builder().provider(provider).serve(ServerOptions::default()).build()?.run().await
    /// # }
    /// ```
    #[cfg(feature = "server")]
    pub fn serve(mut self, options: impl Into<crate::server::ServerOptions>) -> Self {
        self.serve = Some(options.into());
        self
    }

    /// Limits the time that controllers and tasks get to end when the manager stops. Default 30 seconds.
    ///
    /// Controllers abort their reconciles after nine tenths of it. A task that has not ended after this time is aborted, and
    /// [`ManagerError::Stuck`] has its name. A task that never awaits can't be aborted: the Lease is no longer renewed then, so
    /// that another replica leads when it expires.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.shutdown_grace = grace;
        self
    }

    /// Lets several replicas of the program run, of which one at a time reconciles. The others are standbys: their watches run and
    /// their stores are current, and they dispatch no request.
    ///
    /// - The controllers of a replica that begins to lead reconcile all objects, as after a start. Set
    ///   [`Controller::leader_only`](crate::Controller::leader_only) to `false` for a controller that runs on every replica. A
    ///   [`task`](Self::task) runs on every replica, and can ask the [leadership](Self::leadership); a
    ///   [`leader_task`](Self::leader_task) runs on the leader only.
    /// - If a leader can't renew the Lease, the tokens of its reconciles are cancelled at the renew deadline, and reconciles that do
    ///   not end are aborted before another replica can lead. The process goes on as a standby.
    /// - A standby does not see deletions as [`RequestObject::Deleted`](crate::RequestObject::Deleted) later when it leads. Use
    ///   finalizers for work that must not be missed.
    /// - When the manager stops, the controllers end first, and then the Lease is released.
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.election = Some(election.build());
        self
    }

    /// Allows controllers of the same name. Metrics and reports then add a number to the names.
    pub fn allow_equal_names(mut self) -> Self {
        self.equal_names = true;
        self
    }

    /// Finishes the manager.
    ///
    /// # Errors
    /// [`ManagerError`] if a controller could not be built, if two controllers have the same name, or if the manager has
    /// neither a provider nor a fleet, or has a fleet together with providers or settings, or if the program has no
    /// cryptography for TLS (see [`crypto`](crate::crypto)). With a server, also if that could be read from other machines
    /// and nothing decides by whom ([`ServerOptions::access`](crate::server::ServerOptions::access)).
    pub fn build(self) -> Result<Manager, ManagerError> {
        mcr_core::crypto::provider()?;
        #[cfg(feature = "server")]
        if let Some(options) = &self.serve {
            options.check()?;
        }
        let agent = self.user_agent.as_deref().map(UserAgent::new).transpose()?;
        let has_settings = self.settings || agent.is_some();
        let fleet = match self.fleet {
            Some(_) if self.providers > 0 || has_settings => return Err(ManagerError::TwoFleets),
            Some(fleet) => fleet,
            None if self.providers == 0 => return Err(ManagerError::NoProvider),
            None => match agent {
                Some(agent) => self
                    .builder
                    .settings(|settings| settings.user_agent = agent)
                    .build(),
                None => self.builder.build(),
            },
        };
        let controllers = self.controllers.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut names = HashSet::new();
        if let Some(equal) = controllers
            .iter()
            .find(|controller| !names.insert(controller.name()))
            && !self.equal_names
        {
            return Err(ManagerError::EqualNames {
                name: equal.name().into(),
            });
        }
        let elected = self.election.transpose()?;
        if let Some(elected) = &elected {
            // It is set once, because `build` consumes the builder.
            let _ = self.leadership.set(elected.leadership());
        }
        for (controller, elected) in controllers.iter().zip(elected.iter().cycle()) {
            controller.set_leadership(elected.leadership());
        }
        Ok(Manager {
            fleet,
            elected,
            controllers,
            tasks: self.tasks,
            shutdown_grace: self.shutdown_grace,
            #[cfg(feature = "server")]
            serve: self.serve,
        })
    }
}

impl fmt::Debug for ManagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerBuilder")
            .field("fleet", &self.builder)
            .finish_non_exhaustive()
    }
}

/// The types that [`ManagerBuilder::controller`] accepts: a [`BuiltController`], and the result of
/// [`Controller::build`](crate::Controller::build).
///
/// A [`Controller`](crate::Controller) that is not built has no reconciler, so this does not compile:
///
/// ```compile_fail,E0277
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use mcr::{Controller, Manager};
/// let manager = Manager::builder().controller(Controller::<ConfigMap>::new("x"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a controller that a manager can run",
    label = "call `.build(reconciler, context)` on a `Controller` first; a `Result` with another error than `BuildError` needs `?`",
    note = "`Controller::build` takes an `async fn(Request<K>, Arc<Ctx>)`, `Controller::build_uniform` the reconciler and the error policy of kube's `Controller`"
)]
pub trait IntoController {
    /// Converts the value into the controller.
    ///
    /// # Errors
    /// The error of the build, if the value is the result of a build that failed.
    fn into_controller(self) -> Result<BuiltController, BuildError>;
}

impl IntoController for BuiltController {
    fn into_controller(self) -> Result<BuiltController, BuildError> {
        Ok(self)
    }
}

impl IntoController for Result<BuiltController, BuildError> {
    fn into_controller(self) -> Result<BuiltController, BuildError> {
        self
    }
}
