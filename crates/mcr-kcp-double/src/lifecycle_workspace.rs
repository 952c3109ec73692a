//! The virtual workspaces of initializers and terminators. They show the LogicalClusters that wait for one of them,
//! and the contents of their workspaces.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use serde_json::Value;

use super::control::{INITIALIZING, PHASE};
use super::kinds::{self, LOGICAL_CLUSTERS, TYPES};
use super::names::lifecycle_label;
use super::rewrite::{Visit, add_label};
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::answer::Answer;
use mcr_testkit::sim::auth::Attributes;
use mcr_testkit::sim::cause::Cause;
use mcr_testkit::sim::handle::{Caller, handle_for};
use mcr_testkit::sim::kinds::{Kind, Kinds};
use mcr_testkit::sim::object::text;
use mcr_testkit::sim::query::Query;
use mcr_testkit::sim::route::{Route, Target};
use mcr_testkit::sim::state::{Admission, ClusterState};
use mcr_testkit::sim::{SimBody, SimRule, SimUser};

/// The stage in the life of a workspace that the initializers or terminators belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Initializing,
    Terminating,
}

impl Stage {
    pub(super) fn of(service: &str) -> Option<Self> {
        match service {
            "initializingworkspaces" => Some(Self::Initializing),
            "terminatingworkspaces" => Some(Self::Terminating),
            _ => None,
        }
    }

    /// The prefix of the labels, the list in the status, the verb on the type, and the rules in the type.
    fn words(self) -> [&'static str; 4] {
        match self {
            Self::Initializing => [
                "initializer",
                "initializers",
                "initialize",
                "initializerPermissions",
            ],
            Self::Terminating => ["terminator", "terminators", "terminate", "terminatorPermissions"],
        }
    }
}

/// The parts of a request's path: an initializer or terminator, and `*` or the id of a logical cluster.
#[derive(Debug, PartialEq)]
pub(super) struct StagePath {
    pub(super) stage: Stage,
    /// `<cluster id of the WorkspaceType>:<name of the WorkspaceType>`.
    pub(super) name: String,
    pub(super) target: Option<String>,
}

/// Answers a request to the virtual workspace of an initializer or terminator.
pub(super) fn answer(
    visit: Visit<'_>,
    stage_path: &StagePath,
    mut parts: Parts,
    body: &Bytes,
) -> Response<SimBody> {
    match (Call { visit, stage_path }).adapt(&mut parts) {
        Ok((view, caller)) => handle_for(&view, &parts, body, caller, visit.whole),
        Err(error) => visit.refuse(&parts, error),
    }
}

/// Allows only the removal of this initializer or terminator, not of others, and no additions.
struct OwnOnly {
    stage: Stage,
    name: String,
}

impl Admission for OwnOnly {
    fn admit(
        &self,
        _: &str,
        _: &Kind,
        _: &str,
        before: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), SimError> {
        let [word, list, ..] = self.stage.words();
        let names = |object: &Value| -> Vec<Value> {
            let names = object["status"][list].as_array();
            names.cloned().unwrap_or_default()
        };
        let (before, after) = (before.map(names).unwrap_or_default(), names(object));
        let same = match self.stage {
            // kcp compares only the lengths.
            Stage::Initializing => before.len() == after.len(),
            Stage::Terminating => before == after,
        };
        let own = |name: &Value| *name == *self.name;
        let none_new = self.stage == Stage::Initializing || after.iter().all(|name| before.contains(name));
        if same || after.len() + 1 == before.len() && none_new && !after.iter().any(own) {
            return Ok(());
        }
        let why = format!("only removing the {:?} {word} is supported", self.name);
        let shown = Value::from(after).to_string();
        let cause = Cause::invalid(&format!("status.{list}"), shown, why);
        let group = match self.stage {
            Stage::Initializing => "tenancy.kcp.io",
            Stage::Terminating => "core.kcp.io",
        };
        Err(SimError::invalid(group, "LogicalCluster", "cluster", &[cause]))
    }
}

struct Call<'a> {
    visit: Visit<'a>,
    stage_path: &'a StagePath,
}

type Adapted = (Arc<ClusterState>, Caller);

impl Call<'_> {
    fn adapt(&self, parts: &mut Parts) -> Result<Adapted, SimError> {
        let forbidden = |why: &str| SimError::new(403, "Forbidden", why);
        let Some(target) = self.stage_path.target.as_deref() else {
            return Err(forbidden(
                "a virtual workspace is used with /clusters/* or /clusters/<id> behind its URL",
            ));
        };
        let Some((cluster, of_type)) = self.stage_path.name.split_once(':') else {
            return Err(forbidden("Path not resolved to a valid virtual workspace"));
        };
        let [_, _, verb, _] = self.stage_path.stage.words();
        self.visit.user.may_in(
            cluster,
            &Attributes {
                verb,
                group: "tenancy.kcp.io",
                resource: "workspacetypes",
                name: of_type,
                ..Attributes::default()
            },
        )?;
        let route = Route::of(parts.uri.path());
        if target == "*" {
            return self.all(&route, parts);
        }
        let live = self.visit.shard.get(target, LOGICAL_CLUSTERS, "cluster");
        let live = live.filter(|live| self.waits(live));
        let own = matches!(&route, Route::Resource(path) if is_logical_clusters(path));
        match (&route, live) {
            (Route::Resource(path), Some(_)) if own => self.logical_cluster(path, target, parts),
            (_, Some(_)) => self.content(cluster, of_type, &route, target, parts),
            (_, None) if own => Ok(self.view("-", self.visit.admin())),
            (_, None) => Ok(self.refused(403, "cannot access this workspace")),
        }
    }

    /// Whether a logical cluster waits for this initializer or terminator.
    fn waits(&self, live: &Value) -> bool {
        let [_, list, ..] = self.stage_path.stage.words();
        let names = live["status"][list].as_array();
        let listed = names.is_some_and(|names| names.iter().any(|name| *name == *self.stage_path.name));
        listed
            && match self.stage_path.stage {
                Stage::Initializing => live["status"]["phase"] == INITIALIZING,
                Stage::Terminating => !text(live, "deletionTimestamp").is_empty(),
            }
    }

    /// Answers in plain text, as kcp does when it refuses access to contents.
    fn refused(&self, code: u16, why: &str) -> Adapted {
        let [word, ..] = self.stage_path.stage.words();
        let text = format!("{word} {:?} {why}\n", self.stage_path.name);
        let answer = Ok(Answer::Text(code, text.into()));
        let caller = Caller::Answered(self.visit.user.name.clone(), answer);
        (self.visit.shard.view(""), caller)
    }

    /// A view of a logical cluster that only serves LogicalClusters.
    fn view(&self, part: &str, caller: Caller) -> Adapted {
        (self.visit.shard.view_of(part, Some(logical_clusters())), caller)
    }

    fn all(&self, route: &Route, parts: &mut Parts) -> Result<Adapted, SimError> {
        if let Route::Resource(path) = route {
            let verb = path.verb(&parts.method, &Query::parse(parts.uri.query()));
            if !is_logical_clusters(path) || !matches!(verb, "list" | "watch") {
                return Err(SimError::no_such_resource());
            }
        }
        let [word, ..] = self.stage_path.stage.words();
        add_label(parts, &lifecycle_label(word, &self.stage_path.name));
        if self.stage_path.stage == Stage::Initializing {
            add_label(parts, &(PHASE.to_owned(), INITIALIZING.to_owned()));
        }
        Ok(match self.stage_path.stage {
            Stage::Initializing => self.view("", self.visit.admin()),
            Stage::Terminating => (
                self.visit.shard.view_of_deleting(logical_clusters()),
                self.visit.admin(),
            ),
        })
    }

    /// Only reads of the LogicalCluster and writes of its status are allowed.
    fn logical_cluster(&self, path: &Target, target: &str, parts: &Parts) -> Result<Adapted, SimError> {
        let verb = path.verb(&parts.method, &Query::parse(parts.uri.query()));
        let writes = matches!(verb, "update" | "patch");
        if verb != "get" && !(writes && path.subresource == "status") {
            return Err(SimError::method_not_allowed());
        }
        let guard = OwnOnly {
            stage: self.stage_path.stage,
            name: self.stage_path.name.clone(),
        };
        let view = ClusterState::part_of(
            self.visit.shard.server.clone(),
            self.visit.shard.name.clone(),
            target.into(),
            Some(logical_clusters()),
        );
        Ok((Arc::new(view.guarded(Arc::new(guard))), self.visit.admin()))
    }

    /// Gives access to the contents of the workspace, with the rights in its type.
    fn content(
        &self,
        cluster: &str,
        of_type: &str,
        route: &Route,
        target: &str,
        parts: &Parts,
    ) -> Result<Adapted, SimError> {
        let discovers = !matches!(route, Route::Resource(_));
        if discovers && self.stage_path.stage == Stage::Terminating {
            return Ok(self.view(target, self.visit.admin()));
        }
        let [_, _, _, field] = self.stage_path.stage.words();
        let entry = self.visit.inner.directory.by_id(cluster);
        let home = entry.and_then(|entry| self.visit.inner.shard_of(&entry));
        let object = home.and_then(|home| home.get(cluster, TYPES, of_type));
        let Some(object) = object else {
            // kcp reads the rights from the type.
            return Ok(self.refused(503, "WorkspaceType not found in local or cached indexer"));
        };
        let rules = object["spec"][field].as_array().cloned().unwrap_or_default();
        let view = self.visit.shard.view(target);
        if rules.is_empty() || discovers {
            return Ok((view, self.visit.admin()));
        }
        let mut user = SimUser::new(self.visit.user.name.clone());
        user.rules = rules.iter().map(SimRule::of_rule).collect();
        if let Route::Resource(path) = route {
            let verb = path.verb(&parts.method, &Query::parse(parts.uri.query()));
            if !user.may(&path.attributes(verb, "")) {
                let group = if path.group.is_empty() {
                    "core"
                } else {
                    &path.group
                };
                let place = match &*path.namespace {
                    "" => String::new(),
                    namespace => format!(" in namespace {namespace}"),
                };
                let why = format!(
                    "denied by {field}: no rule allows {verb} on {group}/{}{place}",
                    path.plural
                );
                return Ok(self.refused(403, &why));
            }
        }
        Ok((view, Caller::User(Arc::new(user))))
    }
}

/// The kinds with LogicalClusters only.
fn logical_clusters() -> Kinds {
    let mut served = Kinds::over(kinds::nothing());
    served.set_crd(
        LOGICAL_CLUSTERS,
        kinds::claimable("core.kcp.io", "logicalclusters"),
    );
    served
}

fn is_logical_clusters(path: &Target) -> bool {
    path.group == "core.kcp.io" && path.plural == "logicalclusters"
}
