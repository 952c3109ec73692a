//! Determines the resource and the verb of a request, as an API server does, and compares them with the conditions of
//! a fault.

use http::{Method, Uri};

/// The resource and the verb of a request. Parts that the path does not contain are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) path: String,
    pub(super) verb: &'static str,
    pub(super) group: String,
    pub(super) resource: String,
    /// Whether a watch begins with all objects (`sendInitialEvents`), which replaces a list.
    pub(super) streaming_list: bool,
}

impl RequestInfo {
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", &[][..]),
        };
        let rest = match rest {
            // `/namespaces/x` is the namespace itself, and `/namespaces/x/status` is its status.
            ["namespaces", _, sub, ..] if matches!(*sub, "status" | "finalize") => rest,
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let is_set = |name: &str| {
            uri.query().unwrap_or_default().split('&').any(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                key == name && matches!(value, "true" | "1" | "")
            })
        };
        let verb = match *method {
            Method::GET | Method::HEAD if rest.is_empty() => "get",
            Method::GET | Method::HEAD if is_set("watch") => "watch",
            Method::GET | Method::HEAD if rest.len() == 1 => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if rest.len() < 2 => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        };
        Self {
            path: uri.path().to_owned(),
            verb,
            group: group.to_owned(),
            resource: rest.first().map_or("", |resource| resource).to_owned(),
            streaming_list: verb == "watch" && is_set("sendInitialEvents"),
        }
    }

    /// Whether the request reads objects, not discovery documents or the health of the server.
    pub(super) fn reads_objects(&self) -> bool {
        matches!(self.verb, "list" | "get") && !self.resource.is_empty()
    }
}

/// The requests to which a fault applies. Without conditions: all requests.
///
/// ```
/// use mcr_testkit::faults::{Fault, Match};
///
/// // The second page of the next list of Pods fails, once.
/// let rule = Fault::InternalError.on(Match::any().verb("list").resource("pods").skip(1).times(1));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Match {
    pub(super) verb: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) skip: u64,
    pub(super) times: Option<u64>,
}

impl Match {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches only requests with this verb, as in RBAC: `get`, `list`, `watch`, `create`, `update`, `patch`,
    /// `delete`, `deletecollection`.
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Matches only this resource, in the plural: `configmaps`.
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Skips the first `count` requests that match all other conditions.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Applies the fault at most `count` times. A fault in the lines of watches counts lines. Any other fault counts
    /// requests.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    pub(super) fn fits(&self, info: &RequestInfo) -> bool {
        let meets =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        meets(&self.verb, info.verb) && meets(&self.resource, &info.resource)
    }
}
