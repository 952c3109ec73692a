use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{Method, Response};
use serde_json::json;

use super::answer::Answer;
use super::auth::{Attributes, SimUser};
use super::body::SimBody;
use super::error::SimError;
use super::form::{self, Form};
use super::kinds::Kind;
use super::list;
use super::patch::Patch;
use super::query::{ListOptions, Query};
use super::request::{Request, header};
use super::route::{Route, Target, is_built_in};
use super::state::ClusterState;
use super::watch::Watch;
use super::write::{Verb, Write};
use super::{clock, discovery, openapi, read, review};
use crate::audit::{AuditEvent, COMPLETE, STARTED};

/// Answers a request, without waiting.
pub fn handle(
    cluster: &Arc<ClusterState>,
    parts: &Parts,
    body: &Bytes,
    certificate: Option<&[u8]>,
) -> Response<SimBody> {
    let authorization = parts
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let caller = match cluster.users().authenticate(authorization, certificate) {
        Ok(user) => Caller::User(user),
        Err(error) => Caller::Answered(String::new(), Err(error)),
    };
    let uri = parts.uri.path_and_query();
    handle_for(cluster, parts, body, caller, uri.map_or("", |uri| uri.as_str()))
}

/// The answer to a request that does not reach any cluster.
pub fn refusal(error: &SimError) -> Response<SimBody> {
    let mut response = Response::new(SimBody::full(error.to_status().to_string()));
    *response.status_mut() = http::StatusCode::from_u16(error.code()).unwrap_or_default();
    response
}

/// The user of a request, or an answer that does not depend on the content of the request.
pub enum Caller {
    User(Arc<SimUser>),
    /// The name of the user, for the audit log, and the answer.
    Answered(String, Result<Answer, SimError>),
}

/// Answers a request of an authenticated user. The audit log records `uri`. The path of `parts` may be only a part of
/// its path.
pub fn handle_for(
    cluster: &Arc<ClusterState>,
    parts: &Parts,
    body: &Bytes,
    caller: Caller,
    uri: &str,
) -> Response<SimBody> {
    let received = clock::now_precise();
    let query = Query::parse(parts.uri.query());
    let route = Route::of(parts.uri.path());
    let accepted = Form::parse(header(&parts.headers, ACCEPT), query.text("includeObject"));
    let request = Request {
        cluster,
        parts,
        query: &query,
        body,
        form: *accepted.as_ref().unwrap_or(&Form::Full),
    };
    let (name, outcome) = match caller {
        Caller::User(user) => {
            let outcome = request.authorised(&user, &route, &accepted);
            (user.name.clone(), outcome)
        }
        Caller::Answered(name, outcome) => (name, outcome),
    };
    let event = request.audit(&route, name, received, uri);
    request.respond(outcome, event)
}

impl Request<'_> {
    fn authorised(
        &self,
        user: &SimUser,
        route: &Route,
        accepted: &Result<Form, SimError>,
    ) -> Result<Answer, SimError> {
        let path = self.parts.uri.path();
        let Route::Resource(target) = route else {
            let method = self.parts.method.as_str().to_lowercase();
            let wanted = Attributes {
                verb: &method,
                path: Some(path),
                ..Attributes::default()
            };
            if !user.may(&wanted) {
                return Err(wanted.forbidden(user));
            }
            return self.plain(route, accepted);
        };
        let verb = target.verb(&self.parts.method, self.query);
        let only = selected_name(self.query);
        let wanted = target.attributes(verb, &only);
        if !user.may(&wanted) {
            return Err(wanted.forbidden(user));
        }
        // The kind is looked up first, so that an unknown kind answers 404, not 406.
        let kind = target.kind(&self.cluster.kinds(&self.cluster.store()))?;
        let Some(kind) = kind else {
            return Ok(Answer::Text(404, "404 page not found\n".into()));
        };
        self.resource(user, &kind, target, verb, accepted)
    }

    fn plain(&self, route: &Route, accepted: &Result<Form, SimError>) -> Result<Answer, SimError> {
        let kinds = self.cluster.kinds(&self.cluster.store());
        let found = match route {
            Route::Text(text) => return Ok(Answer::Text(200, (*text).into())),
            Route::Version => Some(discovery::version()),
            Route::CoreVersions => Some(discovery::core_versions()),
            Route::Groups => Some(discovery::groups(&kinds)),
            Route::Group(group) => discovery::group(&kinds, group),
            Route::Resources(group, version) => {
                let found = discovery::resources(&kinds, group, version);
                if found.is_none() && is_built_in(group) {
                    return Err(SimError::no_such_resource());
                }
                found
            }
            Route::OpenApi => Some(openapi::index(&kinds)),
            Route::OpenApiOf(group, version) => openapi::document(&kinds, group, version),
            Route::Resource(_) | Route::Nothing => None,
        };
        match (found, accepted) {
            (Some(_), Err(error)) => Err(error.clone()),
            (Some(value), Ok(_)) => Ok(Answer::value(200, &value)),
            (None, _) => Ok(Answer::Text(404, "404 page not found\n".into())),
        }
    }

    fn resource(
        &self,
        user: &SimUser,
        kind: &Arc<Kind>,
        target: &Target,
        verb: &str,
        accepted: &Result<Form, SimError>,
    ) -> Result<Answer, SimError> {
        let custom = kind.custom.is_some();
        let is_all = matches!(verb, "list" | "watch");
        let misplaced = if kind.namespaced {
            target.namespace.is_empty()
        } else {
            !target.namespace.is_empty()
        };
        // A real server has a separate server for custom resources, which forwards what it does not serve itself.
        if misplaced && custom && (!kind.namespaced || !is_all) {
            return Ok(Answer::Text(404, "404 page not found\n".into()));
        }
        if misplaced && (!kind.namespaced || !target.name.is_empty()) {
            return Err(SimError::no_such_resource());
        }
        if misplaced && !is_all {
            return Err(SimError::method_not_allowed());
        }
        if kind.create_only && !target.name.is_empty() {
            return Err(SimError::no_such_resource());
        }
        if &*kind.resource == "serviceaccounts" && target.subresource == "token" && verb == "create" {
            return Err(SimError::no_tokens());
        }
        let fits = match verb {
            "get" | "update" | "patch" | "delete" => !target.name.is_empty(),
            "create" => target.name.is_empty(),
            "deletecollection" => kind.has_collection_delete,
            "list" | "watch" => !kind.create_only,
            _ => false,
        };
        let fits = fits && (!kind.create_only || verb == "create");
        if !fits {
            return Err(SimError::method_not_allowed());
        }
        if let Err(error) = accepted {
            return Err(error.clone());
        }
        match &*target.subresource {
            "" => {}
            "status" if kind.has_status && matches!(verb, "get" | "update" | "patch") => {}
            "finalize" if kind.is_namespaces() && verb == "update" => {}
            "status" if kind.has_status && custom => return Err(SimError::not_supported(kind, verb)),
            "status" if kind.has_status => return Err(SimError::method_not_allowed()),
            _ if custom => return Err(SimError::not_found(kind, &target.name)),
            _ => return Err(SimError::no_such_resource()),
        }
        match verb {
            "get" => {
                let key = self.cluster.key(&target.namespace, &target.name);
                let found = self.cluster.store().get(&kind.table, &key).cloned();
                let object = found.ok_or_else(|| SimError::not_found(kind, &target.name))?;
                self.object(kind, &object, 200)
            }
            "list" => self.list(kind, target),
            "watch" => self.watch(kind, target),
            "create" if kind.create_only => {
                let object = read::object(kind, self.content_type(), self.body)?;
                let answer = review::answer(self.cluster, kind, user, &self.manager(), object)?;
                Ok(Answer::value(201, &answer))
            }
            "deletecollection" => self.delete_collection(kind, target),
            _ => self.write(kind, target, verb),
        }
    }

    fn list(&self, kind: &Arc<Kind>, target: &Target) -> Result<Answer, SimError> {
        let mut options = ListOptions::parse(kind, self.query)?;
        options.selector.only_deleting = self.cluster.only_deleting;
        let page = list::list(
            &self.cluster.store(),
            kind,
            &self.cluster.prefix(&target.namespace),
            &options,
        )?;
        let mut bytes = Vec::new();
        form::write_page(kind, &page, self.form, &mut bytes)?;
        Ok(Answer::Json(200, bytes))
    }

    fn watch(&self, kind: &Arc<Kind>, target: &Target) -> Result<Answer, SimError> {
        let mut options = ListOptions::parse(kind, self.query)?;
        options.selector.only_deleting = self.cluster.only_deleting;
        let store = self.cluster.store();
        let watch = Watch::start(
            self.cluster,
            &store,
            kind,
            &self.cluster.prefix(&target.namespace),
            &options,
            self.form,
        );
        Ok(Answer::Watch(Box::new(watch)))
    }

    fn delete_collection(&self, kind: &Arc<Kind>, target: &Target) -> Result<Answer, SimError> {
        let options = ListOptions::parse(kind, self.query)?;
        let delete = read::delete_options(self.content_type(), self.body)?;
        let mut store = self.cluster.store();
        let page = list::list(&store, kind, &self.cluster.prefix(&target.namespace), &options)?;
        for object in &page.objects {
            let mut write = Write::new(self.cluster, kind, object.namespace(), object.name(), "");
            write.dry_run = self.query.dry_run("DeleteOptions")?;
            write.run_in(&mut store, Verb::Delete(delete.clone()))?;
        }
        let mut bytes = Vec::new();
        form::write_page(kind, &page, self.form, &mut bytes)?;
        Ok(Answer::Json(200, bytes))
    }

    fn write(&self, kind: &Arc<Kind>, target: &Target, verb: &str) -> Result<Answer, SimError> {
        let media = self.content_type();
        let mut write = Write::new(self.cluster, kind, &target.namespace, &target.name, "");
        write.subresource = &target.subresource;
        write.manager = self.manager();
        let (options, doing) = match verb {
            "create" => (
                "CreateOptions",
                Verb::Create(read::object(kind, media, self.body)?),
            ),
            "update" => (
                "UpdateOptions",
                Verb::Update(read::object(kind, media, self.body)?),
            ),
            "delete" => {
                let options = read::delete_options(media, self.body)?;
                let given = &options["dryRun"];
                write.dry_run = given
                    .as_array()
                    .is_some_and(|given| given.iter().any(|word| word == "All"));
                ("DeleteOptions", Verb::Delete(options))
            }
            _ if media.starts_with("application/apply-patch+") => {
                read::apply_options(self.query)?;
                let object = read::apply(kind, media, self.body)?;
                let force = self.query.flag("force") == Some(true);
                ("PatchOptions", Verb::Apply { object, force })
            }
            _ => {
                let patch = Patch::parse(kind, media, self.body)?;
                read::patch_options(self.query)?;
                if target.name.is_empty() {
                    return Err(SimError::method_not_allowed());
                }
                ("PatchOptions", Verb::Patch(patch))
            }
        };
        write.dry_run |= self.query.dry_run(options)?;
        let done = write.run(doing)?;
        if done.removed && !kind.delete_answers_object {
            let value = done.object.value();
            let mut details = kind.details(&target.name);
            details["uid"] = value["metadata"]["uid"].clone();
            return Ok(Answer::value(
                200,
                &json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                }),
            ));
        }
        self.object(kind, &done.object, if done.created { 201 } else { 200 })
    }

    fn object(&self, kind: &Kind, object: &super::object::Object, code: u16) -> Result<Answer, SimError> {
        let mut bytes = Vec::new();
        form::write_object(kind, object, self.form, true, &mut bytes)?;
        Ok(Answer::Json(code, bytes))
    }

    fn audit(&self, route: &Route, user: String, received: String, uri: &str) -> AuditEvent {
        let mut event = AuditEvent {
            stage: COMPLETE,
            verb: self.parts.method.as_str().to_lowercase(),
            uri: uri.to_owned(),
            user,
            user_agent: header(&self.parts.headers, USER_AGENT).to_owned(),
            received,
            ..AuditEvent::default()
        };
        if let Route::Resource(target) = route {
            target
                .verb(&self.parts.method, self.query)
                .clone_into(&mut event.verb);
            target.group.clone_into(&mut event.group);
            target.plural.clone_into(&mut event.resource);
            target.subresource.clone_into(&mut event.subresource);
            target.namespace.clone_into(&mut event.namespace);
            target.name.clone_into(&mut event.name);
        }
        event
    }

    fn respond(&self, outcome: Result<Answer, SimError>, mut event: AuditEvent) -> Response<SimBody> {
        let answer = outcome
            .unwrap_or_else(|error| Answer::Json(error.code(), error.to_status().to_string().into_bytes()));
        let (code, media, body) = match answer {
            Answer::Text(code, text) => (
                code,
                "text/plain; charset=utf-8",
                SimBody::full(text.into_owned()),
            ),
            Answer::Watch(mut watch) => {
                event.code = 200;
                event.stage = STARTED;
                watch.audited = Some(Box::new(event.clone()));
                (200, "application/json", SimBody::watch(watch))
            }
            Answer::Json(code, mut bytes) => {
                bytes.push(b'\n');
                (code, "application/json", SimBody::full(bytes))
            }
        };
        event.code = code;
        self.cluster.audit_push(event);
        let body = if self.parts.method == Method::HEAD {
            SimBody::full(Bytes::new())
        } else {
            body
        };
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
        response
            .headers_mut()
            .insert(CONTENT_TYPE, http::HeaderValue::from_static(media));
        response
    }
}

fn selected_name(query: &Query) -> String {
    let name = query.text("fieldSelector").split(',').find_map(|term| {
        let (path, value) = term.split_once('=')?;
        (path == "metadata.name").then(|| value.trim_start_matches('=').to_owned())
    });
    name.unwrap_or_default()
}
