//! Determines where a path leads, and answers the request.

use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{Method, Response};

use super::export_workspace::{self, ExportPath};
use super::inner::Inner;
use super::lifecycle_workspace::{self, Stage};
use super::missing::no_workspace;
use super::rewrite::{Visit, set_path};
use super::shard::Shard;
use super::user::KcpUser;
use mcr_testkit::sim::SimBody;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::handle::{Caller, handle_for};
use mcr_testkit::sim::request::header;

/// The server that a request was sent to: the front proxy or a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Front,
    /// The shard with this number.
    Shard(usize),
}

impl Entry {
    /// Whether this is a stopped shard.
    pub(super) fn is_stopped(self, inner: &Inner) -> bool {
        matches!(self, Self::Shard(number) if inner.shard(number).is_none_or(Shard::is_down))
    }
}

/// Splits the path after the URL of a virtual workspace: `/clusters/<* or id>`, and the path of a Kubernetes API
/// server.
fn target(parts: &[&str]) -> (Option<String>, String) {
    let target = match parts {
        ["clusters", target, ..] if !target.is_empty() => Some((*target).to_owned()),
        _ => None,
    };
    (target, rest(parts.get(2..).unwrap_or_default()))
}

fn rest(parts: &[&str]) -> String {
    format!("/{}", parts.join("/"))
}

/// Answers a request to the front proxy or to a shard.
pub(super) fn answer(inner: &Inner, entry: Entry, mut parts: Parts, body: &Bytes) -> Response<SimBody> {
    let whole = parts
        .uri
        .path_and_query()
        .map_or_else(String::new, ToString::to_string);
    let writes = !matches!(parts.method, Method::GET | Method::HEAD);
    let own = match entry {
        Entry::Front => inner.shard(0),
        Entry::Shard(number) => inner.shard(number),
    };
    let Some(own) = own else {
        return Response::new(SimBody::full(Bytes::new()));
    };
    let token = header(&parts.headers, AUTHORIZATION)
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let user = token.and_then(|(_, token)| inner.users.lock().get(token.trim()).cloned());
    let known = user.is_some();
    let user = user.unwrap_or_else(|| Arc::new(KcpUser::new("")));
    let visit = Visit {
        inner,
        shard: own,
        user: &user,
        whole: &whole,
    };
    if !known {
        return visit.refuse(&parts, SimError::unauthorized());
    }
    let query = parts.uri.query().map(str::to_owned);
    let path = parts.uri.path().to_owned();
    let escaped = [("%2A", "*"), ("%2a", "*"), ("%3A", ":"), ("%3a", ":")];
    let path = escaped
        .iter()
        .fold(path, |path, (from, to)| path.replace(from, to));
    let path: Vec<&str> = path.split('/').skip(1).collect();
    let response = match (entry, path.as_slice()) {
        (_, ["clusters", name, behind @ ..]) => {
            set_path(&mut parts, &rest(behind), query.as_deref());
            cluster(visit, entry, name, &parts, body)
        }
        (Entry::Shard(_), ["services", "apiexport", cluster, export, behind @ ..]) => {
            let (target, path) = target(behind);
            set_path(&mut parts, &path, query.as_deref());
            let export_path = ExportPath {
                cluster: (*cluster).to_owned(),
                export: (*export).to_owned(),
                target,
            };
            export_workspace::answer(visit, &export_path, parts, body)
        }
        (Entry::Shard(_), ["services", service, name, behind @ ..]) => {
            let Some(stage) = Stage::of(service) else {
                return visit.refuse(&parts, SimError::no_such_resource());
            };
            let (target, path) = target(behind);
            set_path(&mut parts, &path, query.as_deref());
            let name = (*name).to_owned();
            let stage_path = lifecycle_workspace::StagePath { stage, name, target };
            lifecycle_workspace::answer(visit, &stage_path, parts, body)
        }
        (_, ["healthz" | "livez" | "readyz" | "version", ..]) => {
            let caller = Caller::User(Arc::new(user.within("root")));
            handle_for(&own.view("root"), &parts, body, caller, &whole)
        }
        _ => visit.refuse(&parts, SimError::no_such_resource()),
    };
    if writes {
        inner.reconcile();
    }
    response
}

/// Answers a request to a workspace.
fn cluster(visit: Visit<'_>, entry: Entry, name: &str, parts: &Parts, body: &Bytes) -> Response<SimBody> {
    let Visit {
        inner, user, whole, ..
    } = visit;
    let refused = |error: SimError| visit.refuse(parts, error);
    let Some(found) = inner.directory.find(name) else {
        // A shard does not know whether a word without a colon is the id of a logical cluster on another shard.
        // Likewise, a front proxy does not know which paths exist. A kcp with a single shard needs no front proxy.
        let proxied = entry == Entry::Front && inner.shards.len() > 1;
        let why = if proxied {
            "workspace access not permitted"
        } else {
            "access denied"
        };
        let message = format!("forbidden: User {:?} cannot read {whole:?}: {why}", user.name);
        return refused(if proxied || !name.contains(':') {
            SimError::new(403, "Forbidden", message)
        } else {
            no_workspace(name)
        });
    };
    let Some(shard) = inner.shard_of(&found) else {
        return refused(no_workspace(name));
    };
    if entry != Entry::Front && shard.number != visit.shard.number {
        return refused(no_workspace(name));
    }
    if shard.is_down() {
        let message = format!("the shard {} of {name} does not answer", shard.name);
        return refused(SimError::new(502, "", message));
    }
    if inner.control.lock().moving.contains_key(&found.id) {
        return refused(SimError::new(503, "", "logical cluster is being migrated"));
    }
    if let Err(error) = user.may_enter(&found.id) {
        return refused(error);
    }
    let caller = Caller::User(Arc::new(user.within(&found.id)));
    handle_for(&shard.view(&found.id), parts, body, caller, whole)
}
