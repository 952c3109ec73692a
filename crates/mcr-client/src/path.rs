//! What a path of an API server leads to.
//!
//! The place of a segment tells it, never its text alone: namespaces and objects may be named `proxy`, `log` or `watch`.

use percent_encoding::percent_decode_str;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// To a pod, service or node, which answers in the place of the API server.
    ToProxied,
    /// To the log of a container, which is text.
    ToLog,
    /// To a watch, in the form from before `?watch=true`.
    ToOldWatch,
    /// To anything else in the API, and to all that can't be told from it for certain.
    ToObjects,
    /// Out of the API: to the server's version, health or metrics.
    Elsewhere,
}

impl Leads {
    pub(super) fn of(path: &str) -> Self {
        // As an API server does it: it undoes escapes before it looks for slashes.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let mut segments: Vec<&str> = decoded.split('/').skip(1).collect();
        if segments.last().is_some_and(|last| last.is_empty()) {
            segments.pop();
        }
        // Something may stand before the API, as kcp's workspaces do. The first such segment counts: later ones may be names.
        let Some(root) = segments.iter().position(|first| matches!(*first, "api" | "apis")) else {
            return Self::Elsewhere;
        };
        // Servers and proxies on the way read escaped slashes, empty segments and dots in different ways.
        let slashes = |text: &str| text.bytes().filter(|byte| *byte == b'/').count();
        if slashes(path) != slashes(&decoded)
            || segments.iter().any(|segment| matches!(*segment, "" | "." | ".."))
        {
            return Self::ToObjects;
        }
        match &segments[root..] {
            ["api", "v1", below @ ..] => Self::in_core(below),
            ["api", _, below @ ..] => Self::in_group("", below),
            ["apis", group, _, below @ ..] => Self::in_group(group, below),
            _ => Self::ToObjects,
        }
    }

    fn in_core(below: &[&str]) -> Self {
        match below {
            ["namespaces", _, "pods" | "services", _, "proxy", ..] | ["nodes", _, "proxy", ..] => {
                Self::ToProxied
            }
            ["namespaces", _, "pods", _, "log"] => Self::ToLog,
            below => Self::in_group("", below),
        }
    }

    fn in_group(group: &str, below: &[&str]) -> Self {
        match (group, below) {
            (_, ["watch", _, ..]) => Self::ToOldWatch,
            // OpenShift's: no other kind has logs.
            ("build.openshift.io", ["namespaces", _, "builds", _, "log"])
            | ("apps.openshift.io", ["namespaces", _, "deploymentconfigs", _, "log"]) => Self::ToLog,
            _ => Self::ToObjects,
        }
    }
}
