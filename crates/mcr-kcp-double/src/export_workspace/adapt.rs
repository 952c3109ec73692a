use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use serde_json::Value;

use super::access::{Access, Source};
use super::{ExportPath, body as text, lossy_apply};
use crate::admission::EXPORT_LABEL;
use crate::rewrite::{Visit, add_label, set_path};
use crate::state::allows;
use mcr_testkit::sim::SimBody;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::handle::{Caller, handle_for};
use mcr_testkit::sim::kinds::Kind;
use mcr_testkit::sim::query::Query;
use mcr_testkit::sim::request::header;
use mcr_testkit::sim::route::{Route, Target};
use mcr_testkit::sim::state::ClusterState;

/// The name of a part that no logical cluster has. A view of it is empty.
const NOWHERE: &str = "-";

/// A request in a form that the simulator can answer.
struct Adapted {
    view: Arc<ClusterState>,
    parts: Parts,
    body: Bytes,
    caller: Caller,
}

/// Answers a request to the virtual workspace of an export.
pub(crate) fn answer(
    visit: Visit<'_>,
    export_path: &ExportPath,
    parts: Parts,
    body: &Bytes,
) -> Response<SimBody> {
    match (Call { visit, export_path }).adapt(parts.clone(), body.clone()) {
        Ok(adapted) => handle_for(
            &adapted.view,
            &adapted.parts,
            &adapted.body,
            adapted.caller,
            visit.whole,
        ),
        Err(error) => visit.refuse(&parts, error),
    }
}

/// A parsed request for a resource.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    access: &'a Access,
    kind: &'a Arc<Kind>,
    path: &'a Target,
    verb: &'a str,
    query: &'a Query,
}

struct Call<'a> {
    visit: Visit<'a>,
    export_path: &'a ExportPath,
}

impl Call<'_> {
    fn adapt(&self, parts: Parts, body: Bytes) -> Result<Adapted, SimError> {
        let Some(target) = self.export_path.target.as_deref() else {
            return Err(denied(
                "a virtual workspace is used with /clusters/* or /clusters/<id> behind its URL",
            ));
        };
        let access = Access::of(self.visit.inner, self.visit.shard, self.export_path)?;
        let query = Query::parse(parts.uri.query());
        let route = Route::of(parts.uri.path());
        let verb = match &route {
            Route::Resource(target) => target.verb(&parts.method, &query),
            _ => "get",
        };
        self.visit
            .user
            .may_use(&self.export_path.cluster, &self.export_path.export, verb)?;
        let all = target == "*";
        if target.contains(':') {
            return Err(denied("Path not resolved to a valid virtual workspace"));
        }
        if !all && !access.is_bound {
            return Err(denied("access denied"));
        }
        let Route::Resource(path) = &route else {
            return Ok(self.as_is(&access, if all { "" } else { target }, parts, body));
        };
        let kind = access.kinds.find(&path.group, &path.version, &path.plural);
        let Some(kind) = kind else {
            return Err(if all {
                SimError::no_such_resource()
            } else {
                denied("access denied")
            });
        };
        let wanted = Wanted {
            access: &access,
            kind: &kind,
            path,
            verb,
            query: &query,
        };
        if all {
            self.adapt_for_all(wanted, parts, body)
        } else {
            self.adapt_for_one(wanted, parts, body)
        }
    }

    /// Answers from a view of the logical cluster `part`, or of all logical clusters if `part` is empty.
    fn as_is(&self, access: &Access, part: &str, parts: Parts, body: Bytes) -> Adapted {
        Adapted {
            view: self.visit.shard.view_of(part, Some(access.kinds.clone())),
            parts,
            body,
            caller: self.visit.admin(),
        }
    }

    /// Adapts a request for all bound logical clusters of the shard.
    fn adapt_for_all(&self, wanted: Wanted<'_>, mut parts: Parts, body: Bytes) -> Result<Adapted, SimError> {
        let Wanted {
            access, kind, verb, ..
        } = wanted;
        if !matches!(verb, "list" | "watch") {
            return Err(SimError::no_such_resource());
        }
        if let Source::Claimed { verbs, .. } = access.source(kind)
            && !allows(verbs, verb)
        {
            return Err(denied(&format!(
                "the claim does not allow {verb} of {}",
                kind.resource
            )));
        }
        if access.is_dead(kind) {
            return Ok(self.dead(access, kind, verb, parts, body));
        }
        let namespace = &wanted.path.namespace;
        if !namespace.is_empty() {
            let message = format!(
                "cross-cluster LIST and WATCH are required to be cross-namespace, not scoped to namespace {namespace}"
            );
            return Err(SimError::new(400, "", message));
        }
        let selector = wanted.query.text("fieldSelector");
        let by_namespace = selector
            .split(',')
            .any(|term| term.starts_with("metadata.namespace="));
        narrow(access, kind, &mut parts);
        let part = if by_namespace { NOWHERE } else { "" };
        Ok(self.as_is(access, part, parts, body))
    }

    /// Answers a list or watch of a kind that no workspace serves.
    fn dead(&self, access: &Access, kind: &Arc<Kind>, verb: &str, mut parts: Parts, body: Bytes) -> Adapted {
        let watch = text::only_watch(parts.uri.query());
        let path = parts.uri.path().to_owned();
        set_path(&mut parts, &path, Some(&watch));
        let mut adapted = self.as_is(access, NOWHERE, parts, body);
        if verb == "list" {
            adapted.caller = Caller::Answered(self.visit.user.name.clone(), Ok(text::dead_list(kind)));
        }
        adapted
    }

    /// Adapts a request for one logical cluster.
    fn adapt_for_one(
        &self,
        wanted: Wanted<'_>,
        mut parts: Parts,
        mut body: Bytes,
    ) -> Result<Adapted, SimError> {
        let Wanted {
            access,
            kind,
            path,
            verb,
            ..
        } = wanted;
        let id = self.export_path.target.as_deref().unwrap_or_default();
        let reads = matches!(verb, "get" | "list" | "watch");
        let mut label_of = None;
        match access.source(kind) {
            Source::Exported => {}
            Source::Bindings if !reads => {
                return Err(denied("bindings are read only"));
            }
            Source::Bindings => label_of = Some((EXPORT_LABEL.to_owned(), access.hash.clone())),
            Source::Claimed { applied: None, .. } => {
                return Err(denied(&format!(
                    "the claim on {} is not accepted here",
                    kind.resource
                )));
            }
            Source::Claimed {
                label,
                verbs,
                applied: Some(claim),
            } => {
                if !allows(&claim.verbs, verb) || !allows(verbs, verb) {
                    return Err(denied(&format!(
                        "the claim does not allow {verb} of {}",
                        kind.resource
                    )));
                }
                label_of = Some(label.clone());
                if verb == "create" {
                    let equal = claim.selector["matchLabels"]
                        .as_object()
                        .cloned()
                        .unwrap_or_default();
                    let own = (label.0.clone(), Value::from(label.1.clone()));
                    body = text::with_labels(&body, equal.into_iter().chain([own]));
                }
            }
        }
        if access.is_dead(kind) && matches!(verb, "list" | "watch") {
            return Ok(self.dead(access, kind, verb, parts, body));
        }
        let applies =
            verb == "patch" && header(&parts.headers, CONTENT_TYPE).starts_with("application/apply-patch+");
        if let Some(label) = &label_of
            && !path.name.is_empty()
        {
            let key = mcr_testkit::sim::object::key("", &path.namespace, &path.name);
            let live = self.visit.shard.get(id, &kind.table, &key);
            let is_visible = live
                .as_ref()
                .is_some_and(|live| live["metadata"]["labels"][&label.0] == *label.1);
            let creates = applies && live.is_none();
            if !is_visible && !creates {
                // Answers as if the object did not exist.
                return Ok(self.as_is(access, NOWHERE, parts, body));
            }
        }
        narrow(access, kind, &mut parts);
        if applies {
            let view = self.visit.shard.view_of(id, Some(access.kinds.clone()));
            (parts, body) = lossy_apply::as_update(&view, kind, path, wanted.query, parts, &body)?;
            if let Some((key, value)) = label_of {
                body = text::with_labels(&body, [(key, value.into())]);
            }
        }
        Ok(self.as_is(access, id, parts, body))
    }
}

/// Limits a list or watch to the objects that the export may see.
fn narrow(access: &Access, kind: &Kind, parts: &mut Parts) {
    let label = match access.source(kind) {
        Source::Exported => return,
        Source::Bindings => (EXPORT_LABEL.to_owned(), access.hash.clone()),
        Source::Claimed { label, .. } => label.clone(),
    };
    add_label(parts, &label);
}

fn denied(why: &str) -> SimError {
    SimError::new(403, "Forbidden", why)
}
