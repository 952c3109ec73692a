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
    /// Anything else in the API. No path is ambiguous: those with a [`problem`] are not sent.
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

/// Says why a path may lead to something other than it seems, as the end of a sentence. `None`: it leads where it says.
///
/// Such a path nearly always has a name from data in it. What a pod or service behind a `proxy` subresource gets is its own, so
/// there only dot segments count, which could lead out of it.
pub(super) fn problem(path: &str) -> Option<&'static str> {
    if !path.contains('%') && !path.contains("//") && !path.contains("/.") {
        return None;
    }
    let raw: Vec<&str> = path.split('/').skip(1).collect();
    let mut own = true;
    for (position, segment) in raw.iter().enumerate() {
        let decoded = percent_decode_str(segment).decode_utf8_lossy();
        if decoded.split('/').any(|part| matches!(part, "." | "..")) {
            return Some("has a segment . or ..");
        }
        let is_last = position + 1 == raw.len();
        if own && decoded.is_empty() && !is_last {
            return Some("has an empty segment, so a name in it is empty or begins or ends with a slash");
        }
        if own && decoded.contains('/') {
            return Some("has an escaped slash in a segment, and no name of an object holds a slash");
        }
        let before = || raw[..=position].join("/");
        own = own && (*decoded != *"proxy" || PathTarget::of(&format!("/{}", before())) != PathTarget::Proxy);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn paths_that_may_lead_elsewhere_are_recognised_and_what_is_proxied_is_left_alone() {
        let unclear = [
            (
                "has a segment . or ..",
                "/api/v1/namespaces/../secrets/a /api/v1/namespaces/a/configmaps/.. /api/v1/namespaces/%2e%2E/secrets \
                 /api/v1/configmaps/..%2fb /api/v1/namespaces/a/services/b/proxy/x/..%2F../c",
            ),
            (
                "has an empty segment",
                "/api/v1/namespaces//secrets //api/v1/pods /apis/a.example/v1/things/proxy//b",
            ),
            (
                "has an escaped slash",
                "/api/v1/namespaces/a%2Fsecrets/b /api/v1/namespaces/a/services/b%2Fc/proxy/x",
            ),
        ];
        for (why, paths) in unclear {
            for path in paths.split(' ') {
                assert!(
                    problem(path).is_some_and(|found| found.starts_with(why)),
                    "{path}"
                );
            }
        }
        let clear = "/ /api/v1/ /.well-known/openid-configuration /api/v1/namespaces/a/configmaps/..b...%3F%25 \
                     /api/v1/namespaces/a/services/https:b:443/proxy//x//a%2Fb/ /clusters/root:a/api/v1/nodes/b/proxy/http://c";
        for path in clear.split(' ') {
            assert_eq!(problem(path), None, "{path}");
        }
    }
}
