use std::sync::Arc;

use http::Method;
use percent_encoding::percent_decode_str;

use super::auth::Attributes;
use super::error::SimError;
use super::kinds::{Kind, Kinds, builtins};
use super::query::Query;

/// The target of a path.
#[derive(Debug)]
pub enum Route {
    Text(&'static str),
    Version,
    CoreVersions,
    Groups,
    Group(String),
    Resources(String, String),
    OpenApi,
    OpenApiOf(String, String),
    Resource(Target),
    /// The path is not served.
    Nothing,
}

/// A resource, a collection of objects, or one object.
#[derive(Clone, Debug)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: String,
    pub name: String,
    pub subresource: String,
}

impl Route {
    pub fn of(path: &str) -> Self {
        // An API server decodes the whole path before it splits it.
        let path = percent_decode_str(path).decode_utf8_lossy();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Self::Text("ok"),
            ["version"] => Self::Version,
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["openapi", "v3"] => Self::OpenApi,
            ["openapi", "v3", "api", version] => Self::OpenApiOf(String::new(), (*version).to_owned()),
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApiOf((*group).to_owned(), (*version).to_owned())
            }
            ["api", version] => Self::Resources(String::new(), (*version).to_owned()),
            ["apis", group] => Self::Group((*group).to_owned()),
            ["apis", group, version] => Self::Resources((*group).to_owned(), (*version).to_owned()),
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Nothing,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let (namespace, rest) = match rest {
            // The path of a namespace's subresource looks like that of a resource in the namespace.
            ["namespaces", name, sub @ ("status" | "finalize")] if group.is_empty() => {
                ("", ["namespaces", name, sub].to_vec())
            }
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest.to_vec()),
            rest => ("", rest.to_vec()),
        };
        let part = |index: usize| rest.get(index).map_or("", |part| part).to_owned();
        Self::Resource(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: part(0),
            namespace: namespace.to_owned(),
            name: part(1),
            subresource: rest.get(2..).map(|rest| rest.join("/")).unwrap_or_default(),
        })
    }
}

impl Target {
    /// The verb of a request, as in rules and audit logs.
    pub fn verb(&self, method: &Method, query: &Query) -> &'static str {
        let one = !self.name.is_empty();
        match *method {
            Method::GET | Method::HEAD if one => "get",
            Method::GET | Method::HEAD if query.flag("watch") == Some(true) => "watch",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if one => "delete",
            Method::DELETE => "deletecollection",
            _ => "",
        }
    }

    pub fn attributes<'a>(&'a self, verb: &'a str, name: &'a str) -> Attributes<'a> {
        Attributes {
            verb,
            group: &self.group,
            resource: &self.plural,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: if self.name.is_empty() { name } else { &self.name },
            path: None,
        }
    }

    /// The kind that the path names, if it is served.
    pub fn kind(&self, kinds: &Kinds) -> Result<Option<Arc<Kind>>, SimError> {
        if let Some(kind) = kinds.find(&self.group, &self.version, &self.plural) {
            return Ok(Some(kind));
        }
        // A real server has a separate server for custom resources, which answers in plain text.
        if is_built_in(&self.group) {
            return Err(SimError::no_such_resource());
        }
        Ok(None)
    }
}

/// Whether a group is one of Kubernetes itself.
pub fn is_built_in(group: &str) -> bool {
    builtins().keys().any(|(known, _)| known == group)
}
