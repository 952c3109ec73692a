//! Decides where a request goes, and how its answer is mapped. No I/O.

use http::{HeaderMap, HeaderValue, Method, header};

use crate::mapping::{
    answer::Answers,
    field_rules,
    names::Names,
    path::{Objects, Target},
    query,
    refuse::Refusal,
};

/// The decision about a request.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// Send the request as it is, and return the answer as it is.
    Pass,
    /// Send the request to another path. Both bodies stay as they are, except for the body of an error.
    Connect { to: String, answers: Answers },
    /// Send the request to another path, and map both bodies.
    Map {
        to: String,
        answers: Answers,
        watch: bool,
    },
    /// Send nothing, and answer with an empty list: there are no objects to delete.
    NothingDeleted,
}

/// Decides about a request. A path without a namespace must be that of a namespaced kind.
pub(crate) fn route(
    method: &Method,
    target: &Target<'_>,
    asked: Option<&str>,
    headers: &HeaderMap,
    names: &Names,
) -> Result<Route, Refusal> {
    match target {
        Target::About if is_read(method) => Ok(Route::Pass),
        Target::About => Err(Refusal::method_not_allowed()),
        Target::Namespaces { name, subresource } => namespaces(method, (*name, *subresource), asked, names),
        Target::Objects(objects) => match objects.namespace {
            Some(namespace) if namespace == &*names.inside => own(method, objects, asked, names),
            Some(namespace) => elsewhere(method, objects, namespace, asked, headers, names),
            None if objects.name.is_some() => Err(Refusal::no_such_path()),
            None if is_read(method) => own(method, objects, asked, names),
            // As on any API server, namespaced objects are written and deleted through the path of a namespace.
            None => Err(Refusal::method_not_allowed()),
        },
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

fn own(method: &Method, objects: &Objects<'_>, asked: Option<&str>, names: &Names) -> Result<Route, Refusal> {
    let known = matches!(
        *method,
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    );
    let connects = objects.is_connect() && method == Method::OPTIONS;
    if !known && !connects {
        return Err(Refusal::method_not_allowed());
    }
    let field_rules = field_rules::of(objects.group, objects.plural);
    let path = objects.path_in(&names.real);
    let answers = Answers {
        field_rules,
        many: objects.name.is_none() && !matches!(*method, Method::POST | Method::PUT | Method::PATCH),
        names: names.clone(),
    };
    if objects.is_connect() {
        // The query is not mapped: its parameters belong to a log, a command, or a server in the pod.
        return Ok(Route::Connect {
            to: joined(path, asked.map(str::to_owned)),
            answers,
        });
    }
    Ok(Route::Map {
        to: joined(path, query::mapped(asked, field_rules, names, None)),
        answers,
        watch: is_read(method) && objects.name.is_none() && query::is_watch(asked),
    })
}

/// The decision for a namespace that does not exist in this cluster: the answer of an API server for such a namespace.
fn elsewhere(
    method: &Method,
    objects: &Objects<'_>,
    namespace: &str,
    asked: Option<&str>,
    headers: &HeaderMap,
    names: &Names,
) -> Result<Route, Refusal> {
    let no_namespace = || Refusal::not_found("", "namespaces", namespace);
    match (method, objects.name) {
        (&Method::GET | &Method::HEAD, None) => {
            // Sends the request to the cluster's own namespace with a selector that matches no object. So the API
            // server makes the other parts of the answer: versions, forms, bookmarks, the length of a watch.
            let nowhere = ("metadata.namespace", names.swap(namespace));
            let field_rules = field_rules::of(objects.group, objects.plural);
            Ok(Route::Map {
                to: joined(
                    objects.path_in(&names.real),
                    query::mapped(asked, field_rules, names, Some(nowhere)),
                ),
                answers: Answers {
                    field_rules,
                    many: true,
                    names: names.clone(),
                },
                watch: query::is_watch(asked),
            })
        }
        (&Method::DELETE, None) => Ok(Route::NothingDeleted),
        (&Method::POST, None) => Err(no_namespace()),
        // An apply creates a missing object.
        (&Method::PATCH, Some(_)) if is_apply(headers) => Err(no_namespace()),
        (
            &Method::GET | &Method::HEAD | &Method::POST | &Method::PUT | &Method::PATCH | &Method::DELETE,
            Some(name),
        ) => Err(Refusal::not_found(objects.group, objects.plural, name)),
        _ => Err(Refusal::method_not_allowed()),
    }
}

fn is_apply(headers: &HeaderMap) -> bool {
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    media.is_some_and(|media| {
        media
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("application/apply-patch")
    })
}

/// The kind Namespace: each cluster has one object of it, which is read-only.
fn namespaces(
    method: &Method,
    (name, subresource): (Option<&str>, Option<&str>),
    asked: Option<&str>,
    names: &Names,
) -> Result<Route, Refusal> {
    if !is_read(method) {
        return Err(Refusal::forbidden(format!(
            "cluster {:?} is a namespace of another cluster: its only namespace can be read, but is created, changed and \
             deleted in the host cluster",
            &*names.real
        )));
    }
    let answers = Answers {
        field_rules: field_rules::NAMESPACES,
        many: name.is_none(),
        names: names.clone(),
    };
    match (name, subresource) {
        (None, _) => {
            let only = ("metadata.name", &*names.real);
            Ok(Route::Map {
                to: joined(
                    "/api/v1/namespaces".to_owned(),
                    query::mapped(asked, field_rules::NAMESPACES, names, Some(only)),
                ),
                answers,
                watch: query::is_watch(asked),
            })
        }
        (Some(name), None | Some("status")) if name == &*names.inside => {
            let part = subresource.map(|part| format!("/{part}")).unwrap_or_default();
            Ok(Route::Map {
                to: joined(
                    format!("/api/v1/namespaces/{}{part}", names.real),
                    asked.map(str::to_owned),
                ),
                answers,
                watch: false,
            })
        }
        (Some(name), _) if name == &*names.inside => Err(Refusal::method_not_allowed()),
        (Some(name), _) => Err(Refusal::not_found("", "namespaces", name)),
    }
}

fn joined(path: String, query: Option<String>) -> String {
    match query {
        Some(query) if !query.is_empty() => format!("{path}?{query}"),
        _ => path,
    }
}

/// The `Accept` header for the host: JSON in the requested forms, without the media types that can't be mapped.
pub(crate) fn accept(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let mut kept: Vec<&str> = Vec::new();
    let mut asked = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in value
            .to_str()
            .map_err(|_| Refusal::not_acceptable())?
            .split(',')
            .map(str::trim)
        {
            if range.is_empty() {
                continue;
            }
            asked = true;
            match &*range
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
            {
                "application/json" => kept.push(range),
                "*/*" | "application/*" => kept.push("application/json"),
                _ => {}
            }
        }
    }
    if kept.is_empty() && asked {
        return Err(Refusal::not_acceptable());
    }
    if kept.is_empty() {
        kept.push("application/json");
    }
    HeaderValue::from_str(&kept.join(",")).map_err(|_| Refusal::not_acceptable())
}

#[cfg(test)]
mod tests;
