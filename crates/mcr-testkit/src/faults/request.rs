//! Parses requests as an API server does, and matches them with the conditions of a fault.

use std::fmt;

use http::{Method, Uri};

/// The resource and the operation of a request. A part that the path does not have is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RequestInfo {
    pub(super) path: String,
    pub(super) verb: &'static str,
    pub(super) group: String,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) subresource: String,
    /// A list in the form of a watch.
    pub(super) streaming_list: bool,
}

impl RequestInfo {
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let mut info = Self {
            path: uri.path().to_owned(),
            ..Self::default()
        };
        let mut parts = uri.path().split('/').filter(|part| !part.is_empty());
        match parts.next() {
            Some("api") => {}
            Some("apis") => info.group = parts.next().unwrap_or_default().to_owned(),
            _ => return info.with_verb(method, uri),
        }
        let _version = parts.next();
        let mut rest: Vec<&str> = parts.collect();
        // `/namespaces/x` is the namespace itself, `/namespaces/x/status` its status.
        if rest.len() > 2 && rest[0] == "namespaces" && !matches!(rest[2], "status" | "finalize") {
            info.namespace = rest[1].to_owned();
            rest.drain(..2);
        }
        let mut rest = rest.into_iter().map(str::to_owned);
        info.resource = rest.next().unwrap_or_default();
        info.name = rest.next().unwrap_or_default();
        info.subresource = rest.next().unwrap_or_default();
        info.with_verb(method, uri)
    }

    fn with_verb(mut self, method: &Method, uri: &Uri) -> Self {
        let has = |name: &str| {
            uri.query().unwrap_or_default().split('&').any(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                key == name && matches!(value, "true" | "1" | "")
            })
        };
        self.verb = match *method {
            Method::GET | Method::HEAD if self.resource.is_empty() => "get",
            Method::GET | Method::HEAD if has("watch") => "watch",
            Method::GET | Method::HEAD if self.name.is_empty() => "list",
            Method::GET | Method::HEAD => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if self.name.is_empty() => "deletecollection",
            Method::DELETE => "delete",
            _ => "",
        };
        self.streaming_list = self.verb == "watch" && has("sendInitialEvents");
        self
    }

    /// Whether the answer contains objects, as opposed to discovery and health.
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
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Match {
    pub(super) verb: Option<String>,
    pub(super) group: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) path: Option<String>,
    pub(super) probability: Option<f64>,
    pub(super) skip: u64,
    pub(super) times: Option<u64>,
}

impl Match {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only requests with this verb, as in RBAC: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Only this resource, in the plural: `configmaps`.
    pub fn resource(mut self, plural: impl Into<String>) -> Self {
        self.resource = Some(plural.into());
        self
    }

    /// Only this API group; empty for the core group.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Only requests in this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Only paths that contain this.
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.path = Some(part.into());
        self
    }

    /// Only with this probability, from 0 to 1. The [seed](super::FaultProxyBuilder::seed) of the
    /// proxy decides which requests are hit.
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = Some(probability);
        self
    }

    /// Not the first `count` times that all other conditions match.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// No more than `count` times. A fault in the lines of watches counts each line, any other fault each request.
    pub fn times(mut self, count: u64) -> Self {
        self.times = Some(count);
        self
    }

    pub(super) fn fits(&self, info: &RequestInfo) -> bool {
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        is(&self.verb, info.verb)
            && is(&self.resource, &info.resource)
            && is(&self.namespace, &info.namespace)
            && self
                .group
                .as_deref()
                .is_none_or(|group| group == info.group && !info.resource.is_empty())
            && self.path.as_deref().is_none_or(|part| info.path.contains(part))
    }
}

/// The conditions that are set.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name}={value:?}"));
        let conditions = [
            text("verb", &self.verb),
            text("group", &self.group),
            text("resource", &self.resource),
            text("namespace", &self.namespace),
            text("path", &self.path),
            self.probability.map(|value| format!("probability={value}")),
            (self.skip > 0).then(|| format!("skip={}", self.skip)),
            self.times.map(|value| format!("times={value}")),
        ];
        let conditions: Vec<String> = conditions.into_iter().flatten().collect();
        match conditions.is_empty() {
            true => f.write_str("any"),
            false => f.write_str(&conditions.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: Method, uri: &str) -> RequestInfo {
        RequestInfo::of(&method, &uri.parse().unwrap())
    }

    #[test]
    fn paths_are_read_as_an_api_server_reads_them() {
        let read = |method: Method, uri: &str| {
            let i = info(method, uri);
            [
                i.verb,
                &i.group,
                &i.namespace,
                &i.resource,
                &i.name,
                &i.subresource,
            ]
            .join(",")
        };
        assert_eq!(
            read(Method::GET, "/api/v1/namespaces/x/pods?watch=1"),
            "watch,,x,pods,,"
        );
        assert_eq!(
            read(Method::GET, "/api/v1/pods?limit=5&watch=false"),
            "list,,,pods,,"
        );
        assert_eq!(read(Method::GET, "/api/v1/namespaces"), "list,,,namespaces,,");
        assert_eq!(read(Method::GET, "/api/v1/namespaces/x"), "get,,,namespaces,x,");
        assert_eq!(
            read(Method::PUT, "/api/v1/namespaces/x/finalize"),
            "update,,,namespaces,x,finalize"
        );
        assert_eq!(
            read(Method::PATCH, "/apis/apps/v1/namespaces/x/deployments/d/status"),
            "patch,apps,x,deployments,d,status"
        );
        assert_eq!(
            read(Method::DELETE, "/apis/a.b/v1/things"),
            "deletecollection,a.b,,things,,"
        );
        assert_eq!(read(Method::GET, "/apis/apps/v1"), "get,apps,,,,");
        assert_eq!(read(Method::GET, "/version"), "get,,,,,");
        assert!(info(Method::GET, "/api/v1/pods?watch=true&sendInitialEvents=true").streaming_list);
        assert!(!info(Method::GET, "/api/v1/pods?watch=true&sendInitialEvents=false").streaming_list);
    }

    #[test]
    fn a_match_takes_what_fits_all_its_conditions() {
        let list = info(Method::GET, "/api/v1/namespaces/x/secrets");
        let deployments = info(Method::GET, "/apis/apps/v1/deployments");
        let version = info(Method::GET, "/version");
        assert!(Match::any().fits(&list) && Match::any().fits(&version));
        let secrets = Match::any().resource("secrets").verb("list").namespace("x");
        assert!(secrets.fits(&list) && !secrets.fits(&deployments));
        assert!(Match::any().group("").fits(&list));
        assert!(!Match::any().group("").fits(&version));
        assert!(!Match::any().group("").fits(&deployments));
        assert!(Match::any().path("apps").fits(&deployments));
    }
}
