//! A running discovery: it follows the endpoint slice or the WorkspaceType, and the bindings or LogicalClusters at each
//! endpoint.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mcr_core::{
    BoxError, Change, ClusterName, ClusterSpec, ClusterState, DISPLAY_NAME, DiscoverySettings, HubEvent,
    HubWatch, ObjectKey, WatchError, WatchSettings,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    config::Config,
    connections::{Connections, attempted},
    credentials::Credentials,
    endpoint::{BindingEvent, EndpointWatch, next_event},
    members::{Decision, Member, Members, Missing},
    slice::Slice,
    url::{self, shown},
};

/// The endpoint of workspaces that move from one endpoint to another. It never exists, so their stores stay as they are.
const BETWEEN_ENDPOINTS: &str = "between two endpoints";

/// The property with the path of a workspace.
const PATH: &str = "kcp.io/path";

/// How long a workspace stays in the fleet after it has vanished from its shard. As long as a cluster that a new round of a
/// discovery lacks.
const MISSING_GRACE: Duration = Duration::from_secs(30);

/// Waits until the first of the missing workspaces has to leave. Cancel safe.
async fn next_missing(missing: &VecDeque<(Instant, Missing)>) -> Missing {
    match missing.front() {
        Some((at, missing)) => {
            sleep_until(*at).await;
            missing.clone()
        }
        None => std::future::pending().await,
    }
}

pub(crate) struct Running {
    config: Arc<Config>,
    credentials: Credentials,
    connections: Connections,
    settings: Arc<WatchSettings>,
    slices: HubWatch<Result<Arc<Slice>, Arc<str>>>,
    /// The slices that may serve the API, by name.
    known: BTreeMap<Arc<str>, Slice>,
    /// Whether all slices are known that existed at the start.
    slices_listed: bool,
    /// By URL.
    endpoints: BTreeMap<Arc<str>, EndpointWatch>,
    members: Members,
    /// The path of the workspace with the export, if the slice names it.
    export_path: Option<Arc<str>>,
    /// Workspaces that are missing, and when each leaves, in this order.
    missing: VecDeque<(Instant, Missing)>,
    /// To be announced.
    changes: VecDeque<Change>,
    synced: bool,
    /// The last problem with the slices that was logged. Empty if there is none.
    problem: String,
}

impl Running {
    pub(crate) async fn start(config: Arc<Config>, settings: DiscoverySettings) -> Result<Self, BoxError> {
        let credentials = Credentials::of(
            &config.access,
            &settings.access_policy,
            config.api.kind_in_words(),
        )
        .await?;
        let mut connections = Connections::start(&config.name, settings.access_policy);
        let workspace = shown(credentials.server());
        let connection = connections.open(&workspace, credentials.workspace()).await?;
        if let ClusterState::Unreachable { reason } = attempted(&connection).await {
            return Err(format!(
                "{workspace}: the workspace of the {} can't be reached: {reason}",
                config.api.kind_in_words()
            )
            .into());
        }
        let client = connection.client();
        let stage = config.api.stage();
        let read = move |slice: &mcr_core::Object| Some(Slice::read(slice, stage).map(Arc::new));
        let slices = HubWatch::projected(client, config.api.request(), read)
            .name(connection.name().clone())
            .settings(settings.watch.clone());
        let members = config.api.watched();
        Ok(Self {
            config,
            credentials,
            connections,
            settings: settings.watch,
            slices,
            known: BTreeMap::new(),
            slices_listed: false,
            endpoints: BTreeMap::new(),
            members: Members::new(members),
            export_path: None,
            missing: VecDeque::new(),
            changes: VecDeque::new(),
            synced: false,
            problem: String::new(),
        })
    }

    /// The next change. An error ends the discovery.
    pub(crate) async fn next(&mut self) -> Result<Change, BoxError> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Ok(change);
            }
            tokio::select! {
                event = self.slices.next() => self.slice_event(event)?,
                (url, event) = next_event(&mut self.endpoints) => {
                    for decision in event.map(|event| self.binding_event(&url, event)).unwrap_or_default() {
                        self.announce(Some(decision));
                    }
                }
                missing = next_missing(&self.missing) => {
                    self.missing.pop_front();
                    let decision = self.members.give_up(&missing);
                    self.announce(decision);
                }
            }
            while let Some(missing) = self.members.take_missing() {
                self.missing.push_back((Instant::now() + MISSING_GRACE, missing));
            }
            self.watch_endpoints().await;
            self.announce_synced()?;
        }
    }

    fn slice_event(&mut self, event: HubEvent<Result<Arc<Slice>, Arc<str>>>) -> Result<(), BoxError> {
        match event {
            HubEvent::Applied(key, Ok(slice)) => {
                self.known.insert(key.name, (*slice).clone());
            }
            HubEvent::Applied(key, Err(error)) => {
                let text = format!("{} {} can't be read: {error}", self.config.api.kind(), key.name);
                return self.slice_problem(text);
            }
            HubEvent::Deleted(ObjectKey { name, .. }) => {
                self.known.remove(&name);
            }
            HubEvent::Synced => self.slices_listed = true,
            HubEvent::Failing(problem) => {
                let kind = self.config.api.kind();
                // A kcp that starts answers 403 and 404 for half a minute. No CRD makes these kinds.
                let (answer, fix) = match &*problem.error {
                    WatchError::NotServed => (
                        "not served (404)".to_owned(),
                        "Check that the URL leads to a workspace",
                    ),
                    WatchError::Forbidden { message } if !self.slices_listed => (
                        format!("forbidden: {message}"),
                        "Grant list and watch on it to the credentials in use",
                    ),
                    error => return self.slice_problem(format!("{kind}s can't be watched: {error}")),
                };
                return self.slice_problem(format!(
                    "{kind}s can't be watched: {answer}. {fix}, unless kcp is still starting, which its /readyz shows"
                ));
            }
            _ => return Ok(()),
        }
        if self.slices_listed {
            self.apply_slice()
        } else {
            Ok(())
        }
    }

    /// Before the first complete list a problem ends the discovery, so that the fleet shows it. Later the known slices stay
    /// valid.
    fn slice_problem(&mut self, problem: String) -> Result<(), BoxError> {
        if !self.slices_listed {
            return Err(format!("{}: {problem}", shown(self.credentials.server())).into());
        }
        self.log_problem(problem);
        Ok(())
    }

    /// Applies the endpoints of the slice that serves the API.
    fn apply_slice(&mut self) -> Result<(), BoxError> {
        let (urls, problem) = match self.config.api.choose(&self.known) {
            // At the start it is wrong input. Later there may be workspaces that still wait.
            Ok((
                _,
                Slice {
                    invalid: Some(invalid),
                    ..
                },
            )) if !self.synced && self.config.api.stage().is_some() => {
                let server = shown(self.credentials.server());
                return Err(format!("{server}: {}: {invalid}", self.config.api).into());
            }
            Ok((_, slice)) => {
                *self.config.export.lock() = Some(slice.export.clone());
                self.export_path.clone_from(&slice.path);
                let (urls, wrong) = self.usable(&slice.urls);
                let problem = wrong.or(slice.invalid.as_deref().map(str::to_owned));
                (
                    urls,
                    problem.map(|problem| format!("{}: {problem}", self.config.api)),
                )
            }
            // At the start it is wrong input. Later it is an export that was deleted.
            Err(error) if !self.synced => {
                return Err(format!("{}: {error}", shown(self.credentials.server())).into());
            }
            // kcp goes on to show the workspaces that wait, and lets controllers finish.
            Err(error) if self.config.api.stage().is_some() => (
                self.members.in_slice().clone(),
                Some(format!(
                    "{error}. If it was deleted, create it again: without it, kcp soon refuses the content of the workspaces that wait"
                )),
            ),
            Err(error) => (
                BTreeSet::new(),
                Some(format!(
                    "{error}. If it or its APIExport was deleted, create it again; its workspaces are unreachable until then"
                )),
            ),
        };
        if urls.is_empty() && problem.is_none() && (!self.synced || !self.members.in_slice().is_empty()) {
            let when = match self.config.api.stage() {
                None => ", because no workspace binds the API; they come with the first APIBinding",
                Some(_) => " yet; they come when kcp has seen the type",
            };
            tracing::info!(
                provider = &*self.config.name,
                "{} has no endpoints{when}",
                self.config.api
            );
        }
        match problem {
            Some(problem) => self.log_problem(problem),
            None => self.problem.clear(),
        }
        let scope = &self.config.scope;
        for lost in scope.endpoints().iter().filter(|known| !urls.contains(*known)) {
            tracing::info!(
                provider = &*self.config.name,
                endpoint = &**lost,
                "the {} no longer has this endpoint; workspaces that are left there are unreachable",
                self.config.api.kind_in_words()
            );
            scope.remove_endpoint(lost);
        }
        // Not the endpoints of the scope: an earlier discovery may have set them with other credentials.
        for new in urls.difference(self.members.in_slice()) {
            if let Ok((server, _)) = url::endpoint(new, self.credentials.server(), self.config.api.stage()) {
                // kcp shows no namespace kube-system there. The URL names shard and export.
                scope.set_endpoint_with_identity(new.clone(), self.credentials.at(server), new.clone());
            }
        }
        for (url, endpoint) in &mut self.endpoints {
            endpoint.set_in_slice(urls.contains(url));
        }
        for decision in self.members.set_endpoints(urls) {
            self.announce(Some(decision));
        }
        Ok(())
    }

    /// The URLs that can be used, and what is wrong with another one.
    fn usable(&self, urls: &BTreeSet<Arc<str>>) -> (BTreeSet<Arc<str>>, Option<String>) {
        let mut wrong = None;
        let usable = urls.iter().filter(|url| {
            let read = url::endpoint(url, self.credentials.server(), self.config.api.stage());
            if let Err(error) = &read {
                wrong = Some(format!(
                    "endpoint {:?} is not used: {error}; correct the virtualWorkspaceURL of its Shard",
                    url::shown_text(url)
                ));
            }
            read.is_ok()
        });
        (usable.cloned().collect(), wrong)
    }

    /// Opens the watches of new endpoints, and closes those of endpoints that are gone and have no bindings.
    async fn watch_endpoints(&mut self) {
        let watched = self.members.watched();
        self.endpoints.retain(|url, endpoint| {
            let keep = watched.contains(url);
            if !keep {
                self.connections.close(endpoint.connection.name());
            }
            keep
        });
        for url in watched {
            if self.endpoints.contains_key(&url) {
                continue;
            }
            let Ok((server, mut export)) =
                url::endpoint(&url, self.credentials.server(), self.config.api.stage())
            else {
                continue;
            };
            export.path.clone_from(&self.export_path);
            let Some(all) = url::below(&server, url::ALL) else {
                continue;
            };
            let Ok(connection) = self.connections.open(&url, self.credentials.at(all)).await else {
                continue;
            };
            let endpoint = EndpointWatch::new(&self.config, &self.settings, url.clone(), connection, export);
            self.endpoints.insert(url, endpoint);
        }
    }

    fn binding_event(&mut self, url: &Arc<str>, event: BindingEvent) -> Vec<Decision> {
        let decision = match event {
            BindingEvent::Applied {
                cluster,
                name,
                binding,
            } => self.members.applied(url, &cluster, &name, (*binding).clone()),
            BindingEvent::Gone {
                cluster,
                name,
                deleted,
            } => self.members.gone(url, &cluster, &name, deleted),
            // While the slice can't be used, nobody knows what is lost.
            BindingEvent::Lost if !self.problem.is_empty() => None,
            BindingEvent::Lost => {
                tracing::warn!(
                    provider = &*self.config.name,
                    endpoint = &**url,
                    "an endpoint that the {} no longer has does not answer; the workspaces that were only there leave the fleet",
                    self.config.api.kind_in_words()
                );
                return self.members.lost(url);
            }
        };
        decision.into_iter().collect()
    }

    fn announce(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let id = match &decision {
            Decision::Announce(id, _) | Decision::Leave(id) => id.clone(),
        };
        // The builder has checked the prefix, and the watch the id.
        let Ok(name) = ClusterName::new(format!("{}{id}", self.config.name_prefix)) else {
            return;
        };
        let paths = &self.config.paths;
        self.changes.push_back(match decision {
            Decision::Announce(_, member) => {
                paths.announced(&id, member.path.as_ref());
                Change::Upsert(self.spec(name, id, member))
            }
            Decision::Leave(_) => {
                paths.left(&id);
                Change::Remove(name)
            }
        });
    }

    fn spec(&self, name: ClusterName, id: Arc<str>, member: Member) -> ClusterSpec {
        let endpoint = member.endpoint.unwrap_or_else(|| BETWEEN_ENDPOINTS.into());
        let access = self
            .config
            .scope
            .place_without(endpoint, id.clone(), member.withheld);
        let mut spec = ClusterSpec::new(name, access).identity(id);
        spec.labels = member.labels;
        if let Some(path) = member.path {
            spec = spec.property(PATH, &*path).property(DISPLAY_NAME, &*path);
        }
        match member.suspended {
            Some(reason) => spec.suspended(reason),
            None => spec,
        }
    }

    /// Announces that all clusters are known, when all endpoints have listed their bindings.
    ///
    /// The first discovery does not wait for an endpoint that fails. A later one does: what it has not announced by then
    /// would count as gone.
    ///
    /// # Errors
    /// If all endpoints fail before one of them has listed its bindings. The fleet then shows the reason.
    fn announce_synced(&mut self) -> Result<(), BoxError> {
        if self.synced || !self.slices_listed {
            return Ok(());
        }
        let served = self.members.in_slice().iter();
        let served: Vec<&EndpointWatch> = served.filter_map(|url| self.endpoints.get(url)).collect();
        if let Some(first) = served.first()
            && let Some(problem) = first.problem()
            && served
                .iter()
                .all(|endpoint| !endpoint.listed && endpoint.problem().is_some())
        {
            let url = &first.url;
            let watched = self.config.api.watched();
            return Err(format!("the {watched}s at endpoint {url} can't be watched: {problem}").into());
        }
        let again = self.config.discovered.load(Ordering::Relaxed);
        let is_known =
            |endpoint: &&EndpointWatch| endpoint.listed || (endpoint.problem().is_some() && !again);
        if served.iter().all(is_known) {
            self.synced = true;
            self.config.discovered.store(true, Ordering::Relaxed);
            self.config.paths.keep(|id| self.members.is_announced(id));
            self.changes.push_back(Change::Synced);
        }
        Ok(())
    }

    /// Logs a problem that concerns all endpoints, once.
    fn log_problem(&mut self, problem: String) {
        if self.problem != problem {
            tracing::warn!(
                provider = &*self.config.name,
                workspace = shown(self.credentials.server()),
                "{problem}; no cluster leaves the fleet because of this"
            );
            self.problem = problem;
        }
    }
}
