//! Classifies request paths.
//!
//! The position of a segment decides, never its text alone: namespaces and objects may be named `proxy`, `log` or `watch`.

use percent_encoding::percent_decode_str;

/// What a request path addresses on an API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// A pod, service or node, which responds in place of the API server.
    Proxy,
    /// The log of a container, which is text.
    Log,
    /// A watch in the deprecated form, without `?watch=true`.
    DeprecatedWatch,
    /// Anything else in the API, and every path that is ambiguous.
    Resource,
    /// Not the API: version, health or metrics of the server.
    NonResource,
}

impl PathTarget {
    pub(super) fn of(path: &str) -> Self {
        // An API server, too, decodes the path before it splits it at slashes.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let mut segments: Vec<&str> = decoded.split('/').skip(1).collect();
        if segments.last().is_some_and(|last| last.is_empty()) {
            segments.pop();
        }
        // A prefix may precede the API, such as the workspace of kcp. The first match counts, because later ones may be names.
        let Some(root) = segments.iter().position(|first| matches!(*first, "api" | "apis")) else {
            return Self::NonResource;
        };
        // Servers and proxies differ in how they read escaped slashes, empty segments and dots.
        let slashes = |text: &str| text.bytes().filter(|byte| *byte == b'/').count();
        if slashes(path) != slashes(&decoded)
            || segments.iter().any(|segment| matches!(*segment, "" | "." | ".."))
        {
            return Self::Resource;
        }
        match &segments[root..] {
            ["api", "v1", rest @ ..] => Self::in_core(rest),
            ["api", _, rest @ ..] => Self::in_group("", rest),
            ["apis", group, _, rest @ ..] => Self::in_group(group, rest),
            _ => Self::Resource,
        }
    }

    fn in_core(rest: &[&str]) -> Self {
        match rest {
            ["namespaces", _, "pods" | "services", _, "proxy", ..] | ["nodes", _, "proxy", ..] => Self::Proxy,
            ["namespaces", _, "pods", _, "log"] => Self::Log,
            rest => Self::in_group("", rest),
        }
    }

    fn in_group(group: &str, rest: &[&str]) -> Self {
        match (group, rest) {
            (_, ["watch", _, ..]) => Self::DeprecatedWatch,
            // Of all other groups, only two of OpenShift have logs.
            ("build.openshift.io", ["namespaces", _, "builds", _, "log"])
            | ("apps.openshift.io", ["namespaces", _, "deploymentconfigs", _, "log"]) => Self::Log,
            _ => Self::Resource,
        }
    }
}
