//! What a request's path is about.
//!
//! Only canonical paths are understood: what two readers could understand in two ways (percent escapes, dot segments,
//! empty segments) is refused before anything is looked at, so no way of writing a namespace can get around its mapping.

use http::Uri;

use super::refuse::Refusal;

/// What a path is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// Which kinds there are, the server's version and health. The same for all clusters of a host.
    About,
    /// The kind Namespace itself.
    Namespaces {
        name: Option<&'a str>,
        subresource: Option<&'a str>,
    },
    /// Objects of a kind.
    Objects(Objects<'a>),
}

/// Objects of a kind, one object, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Objects<'a> {
    /// `api/v1` or `apis/<group>/<version>`.
    pub(crate) root: &'a str,
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) plural: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) subresource: Option<&'a str>,
    /// Everything from the plural on.
    pub(crate) rest: &'a str,
}

/// What of a namespace an API server takes for a part of the object, and not for a kind in it.
const SUBRESOURCES_OF_NAMESPACES: [&str; 2] = ["status", "finalize"];
/// First segments that are about the server, with everything below them.
const ABOUT: [&str; 5] = ["version", "openapi", "healthz", "livez", "readyz"];
/// An older form of watches and proxies, in which the namespace stands elsewhere.
const OLD_FORMS: [&str; 2] = ["watch", "proxy"];

impl Objects<'_> {
    /// Whether a connection is made through the API server: what is sent and answered is not the API's.
    pub(crate) fn is_connect(&self) -> bool {
        if !self.group.is_empty() {
            return false;
        }
        match self.subresource {
            Some("proxy") => matches!(self.plural, "pods" | "services"),
            Some("log" | "exec" | "attach" | "portforward") => self.plural == "pods",
            _ => false,
        }
    }

    /// The path of the same in another namespace, or in one for the first time.
    pub(crate) fn path_in(&self, namespace: &str) -> String {
        format!("/{}/namespaces/{namespace}/{}", self.root, self.rest)
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Reads a path, or refuses it.
pub(crate) fn parse(uri: &Uri) -> Result<Target<'_>, Refusal> {
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(not_canonical("it has a host"));
    }
    let path = uri.path();
    let Some(inner) = path.strip_prefix('/') else {
        return Err(not_canonical("it does not begin with a slash"));
    };
    let target = read(inner);
    let (strict, free) = match &target {
        // What follows goes to a pod or service as it is; only what could lead out of it is refused.
        Ok(Target::Objects(objects)) if objects.is_connect() && objects.subresource == Some("proxy") => {
            let free = after_segments(objects.rest, 3);
            let strict = &inner[..inner.len() - free.len()];
            (strict.strip_suffix('/').unwrap_or(strict), free)
        }
        _ => (inner, ""),
    };
    for segment in strict.split('/') {
        if segment.is_empty() {
            return Err(not_canonical("it has an empty segment"));
        }
        if matches!(segment, "." | "..") {
            return Err(not_canonical("it has a dot segment"));
        }
        if segment.contains('%') {
            return Err(not_canonical(
                "it has a percent escape, which no name of a kind, namespace or object needs",
            ));
        }
        if !segment.bytes().all(is_plain) {
            return Err(not_canonical(
                "it has a character that no name of a kind, namespace or object has",
            ));
        }
    }
    check_free(free)?;
    target
}

fn read(path: &str) -> Result<Target<'_>, Refusal> {
    let segments: Vec<&str> = path.splitn(9, '/').collect();
    let (root, below) = match segments.as_slice() {
        ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => return Ok(Target::About),
        ["api", _, below @ ..] => (2, below),
        ["apis", _, _, below @ ..] => (3, below),
        [first, ..] if ABOUT.contains(first) => return Ok(Target::About),
        _ => return Err(no_business(path)),
    };
    let rest = after_segments(path, root);
    let root = path[..path.len() - rest.len()].trim_end_matches('/');
    let (group, version) = if root.starts_with("apis") {
        (segments[1], segments[2])
    } else {
        ("", segments[1])
    };
    let (namespace, below, rest) = match below {
        [first, ..] if OLD_FORMS.contains(first) => return Err(Refusal::no_such_path()),
        // Namespaces are a kind of the core group, and read so whatever other groups have of that name.
        ["namespaces", about @ ..] if about.len() < 2 || SUBRESOURCES_OF_NAMESPACES.contains(&about[1]) => {
            return match about {
                _ if !group.is_empty() => Err(Refusal::no_such_path()),
                [] => Ok(Target::Namespaces {
                    name: None,
                    subresource: None,
                }),
                [name] => Ok(Target::Namespaces {
                    name: Some(name),
                    subresource: None,
                }),
                [name, part] => Ok(Target::Namespaces {
                    name: Some(name),
                    subresource: Some(part),
                }),
                _ => Err(Refusal::no_such_path()),
            };
        }
        ["namespaces", namespace, below @ ..] => (Some(*namespace), below, after_segments(rest, 2)),
        below => (None, below, rest),
    };
    let Some((plural, below)) = below.split_first() else {
        return Err(Refusal::no_such_path());
    };
    if *plural == "namespaces" {
        return Err(Refusal::no_such_path());
    }
    Ok(Target::Objects(Objects {
        root,
        group,
        version,
        namespace,
        plural,
        name: below.first().copied(),
        subresource: below.get(1).copied(),
        rest,
    }))
}

/// What of a path comes after its first segments.
fn after_segments(path: &str, count: usize) -> &str {
    path.splitn(count + 1, '/').nth(count).unwrap_or("")
}

/// Checks the part of a path that a pod or service is asked for.
fn check_free(path: &str) -> Result<(), Refusal> {
    if path.is_empty() {
        return Ok(());
    }
    let Some(decoded) = decoded(path) else {
        return Err(not_canonical("it has a broken percent escape"));
    };
    // Escaped or not: the API server undoes escapes before it splits.
    let slashes = decoded.iter().filter(|byte| **byte == b'/').count();
    if slashes != path.bytes().filter(|byte| *byte == b'/').count() {
        return Err(not_canonical("it has an escaped slash"));
    }
    if decoded.iter().any(|byte| matches!(byte, b'\\' | 0..=0x1f | 0x7f)) {
        return Err(not_canonical("it has a backslash or control character"));
    }
    let segments: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
    for (number, segment) in segments.iter().enumerate() {
        if matches!(*segment, b"." | b"..") {
            return Err(not_canonical("it has a dot segment"));
        }
        // One slash at the end is something a service may tell apart.
        if segment.is_empty() && number + 1 < segments.len() {
            return Err(not_canonical("it has an empty segment"));
        }
    }
    Ok(())
}

fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let hex = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (hex(bytes.next()?)?, hex(bytes.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    Some(decoded)
}

/// What a segment of a URI may have unescaped.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn not_canonical(why: &str) -> Refusal {
    Refusal::bad_request(format!("the path of the request is not canonical: {why}"))
}

fn no_business(path: &str) -> Refusal {
    let first = path.split('/').next().unwrap_or_default();
    // A part of the path that was not looked at yet: shown only if it is harmless.
    let first = if first.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        first
    } else {
        "…"
    };
    Refusal::forbidden(format!(
        "a cluster that is a namespace has the API, its discovery, version and health; ask the host cluster for /{first}"
    ))
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use proptest::prelude::*;

    use super::*;

    fn objects(path: &'static str) -> Objects<'static> {
        // Paths live as long as the test.
        let uri: &'static Uri = Box::leak(Box::new(path.parse().unwrap()));
        match parse(uri).unwrap() {
            Target::Objects(objects) => objects,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn refused(path: &str) -> StatusCode {
        let uri: Uri = path.parse().unwrap();
        match parse(&uri) {
            Err(refusal) => refusal.code,
            Ok(target) => panic!("{path}: {target:?}"),
        }
    }

    #[test]
    fn paths_of_objects_are_taken_apart() {
        let map = objects("/api/v1/namespaces/default/configmaps/settings");
        assert_eq!(
            (
                map.group,
                map.version,
                map.namespace,
                map.plural,
                map.name,
                map.subresource
            ),
            ("", "v1", Some("default"), "configmaps", Some("settings"), None)
        );
        assert_eq!(
            map.path_in("island"),
            "/api/v1/namespaces/island/configmaps/settings"
        );
        assert_eq!(map.api_version(), "v1");

        let scale = objects("/apis/apps/v1/namespaces/default/deployments/web/scale?dryRun=All");
        assert_eq!(
            (
                scale.group,
                scale.version,
                scale.namespace,
                scale.plural,
                scale.name,
                scale.subresource
            ),
            (
                "apps",
                "v1",
                Some("default"),
                "deployments",
                Some("web"),
                Some("scale")
            )
        );
        assert_eq!(
            scale.path_in("island"),
            "/apis/apps/v1/namespaces/island/deployments/web/scale"
        );
        assert_eq!(scale.api_version(), "apps/v1");

        let all = objects("/apis/apps/v1/deployments");
        assert_eq!((all.namespace, all.plural, all.name), (None, "deployments", None));
        assert_eq!(
            all.path_in("island"),
            "/apis/apps/v1/namespaces/island/deployments"
        );

        let deep =
            objects("/apis/subresources.kubevirt.io/v1/namespaces/default/vms/a/portforward/8080/tcp/x/y");
        assert_eq!(deep.subresource, Some("portforward"));
        assert!(!deep.is_connect());
        assert!(deep.path_in("i").ends_with("/i/vms/a/portforward/8080/tcp/x/y"));
    }

    #[test]
    fn names_with_colons_and_dots_are_names() {
        let binding = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings/system:a.b-c";
        assert_eq!(objects(binding).name, Some("system:a.b-c"));
        assert_eq!(
            objects("/api/v1/namespaces/default/services/https:web:443/proxy").name,
            Some("https:web:443")
        );
    }

    #[test]
    fn the_kind_namespace_is_told_from_what_is_in_one() {
        let cases = [
            ("/api/v1/namespaces", None, None),
            ("/api/v1/namespaces/default", Some("default"), None),
            (
                "/api/v1/namespaces/default/status",
                Some("default"),
                Some("status"),
            ),
            ("/api/v1/namespaces/zoo/finalize", Some("zoo"), Some("finalize")),
        ];
        for (path, name, subresource) in cases {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(
                parse(&uri),
                Ok(Target::Namespaces { name, subresource }),
                "{path}"
            );
        }
        for path in [
            "/apis/example.com/v1/namespaces",
            "/apis/example.com/v1/namespaces/zoo",
            "/apis/example.com/v1/namespaces/zoo/status",
            "/api/v1/namespaces/default/status/x",
            "/api/v1/namespaces/default/namespaces",
            "/api/v1/namespaces/default/namespaces/zoo",
        ] {
            assert_eq!(refused(path), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn what_is_about_the_server_is_passed_on() {
        for path in [
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/version",
            "/openapi/v2",
            "/openapi/v3/apis/apps/v1?hash=A0",
            "/healthz",
            "/livez/ping",
            "/readyz?verbose",
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(parse(&uri), Ok(Target::About), "{path}");
        }
        for path in [
            "/metrics",
            "/logs/a",
            "/debug/pprof",
            "/openid/v1/jwks",
            "/.well-known/x",
            "/configz",
            "/apisx/y",
        ] {
            assert_eq!(refused(path), StatusCode::FORBIDDEN, "{path}");
        }
    }

    #[test]
    fn old_forms_do_not_exist() {
        for path in [
            "/api/v1/watch/namespaces/zoo/configmaps",
            "/api/v1/watch/configmaps",
            "/apis/apps/v1/watch/namespaces/default/deployments/x",
            "/api/v1/proxy/namespaces/zoo/services/x",
            "/api/v1/proxy/nodes/x",
        ] {
            assert_eq!(refused(path), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for path in [
            "/",
            "//api/v1/configmaps",
            "/api//v1/configmaps",
            "/api/v1//configmaps",
            "/api/v1/configmaps/",
            "/api/v1/",
            "/api/",
            "/apis/",
            "/apis//v1",
            "/apis/apps//deployments",
            "/version/",
            "/api/v1/namespaces/",
            "/api/v1/namespaces//configmaps",
            "/api/v1/namespaces/default//configmaps",
            "/api/v1/namespaces/default/",
            "/api/v1/namespaces/default/../zoo/configmaps",
            "/api/v1/namespaces/../namespaces/zoo/configmaps",
            "/api/v1/namespaces/./configmaps",
            "/api/v1/namespaces/default/configmaps/..",
            "/api/v1/namespaces/default/configmaps/../../zoo/configmaps/x",
            "/api/v1/namespaces/default/configmaps/%2e%2e/%2e%2e/zoo/configmaps/x",
            "/api/v1/namespaces/default/configmaps/%2E%2E",
            "/api/v1/namespaces/default/configmaps/a%2Fb",
            "/api/v1/namespaces/default/configmaps/..%2f..%2fzoo%2fconfigmaps%2fx",
            "/api/v1/namespaces/%64efault/configmaps",
            "/api/v1/namespaces/default%2f..%2fzoo/configmaps",
            "/api/v1/namespaces/default/config%6daps",
            "/api/v1/%6eamespaces/zoo/configmaps",
            "/%61pi/v1/configmaps",
            "/api/v1/namespaces/default/configmaps/a%00",
            "/api/v1/namespaces/default/configmaps/a\\b",
            "/api/v1/namespaces/default/pods/x/log/..",
            "/openapi/../api/v1/secrets",
            "/openapi/%2e%2e/api/v1/secrets",
            "/healthz/../api/v1/secrets",
            "https://127.0.0.1/api/v1/configmaps",
            "http://x/api",
        ] {
            let Ok(uri) = path.parse::<Uri>() else { continue };
            let code = parse(&uri).map(|_| ()).map_err(|refusal| refusal.code);
            assert_eq!(code, Err(StatusCode::BAD_REQUEST), "{path}");
        }
        let authority = Uri::from_static("127.0.0.1:443");
        assert_eq!(parse(&authority).unwrap_err().code, StatusCode::BAD_REQUEST);
        assert_eq!(
            parse(&Uri::from_static("*")).unwrap_err().code,
            StatusCode::BAD_REQUEST
        );
    }

    #[test]
    fn what_a_service_is_asked_for_is_its_own_unless_it_leads_out() {
        let web = "/api/v1/namespaces/default/services/web/proxy";
        for free in ["", "/", "/a/b/", "/a%20b/c?x=%2F", "/%E2%82%AC"] {
            let path: &'static str = Box::leak(format!("{web}{free}").into_boxed_str());
            let objects = objects(path);
            assert!(objects.is_connect(), "{path}");
            let free = free.split('?').next().unwrap();
            assert_eq!(
                objects.path_in("i"),
                format!("/api/v1/namespaces/i/services/web/proxy{free}")
            );
        }
        for free in [
            "/..",
            "/../../../zoo",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a%2fb",
            "//",
            "/a//b",
            "/%zz",
            "/%2",
            "/a%5cb",
            "/%00",
        ] {
            assert_eq!(
                refused(&format!("{web}{free}")),
                StatusCode::BAD_REQUEST,
                "{free}"
            );
        }
        assert_eq!(
            refused("/api/v1/namespaces/default/services/w%65b/proxy/a"),
            StatusCode::BAD_REQUEST
        );
        assert_eq!(
            refused("/api/v1/namespaces/default/configmaps/web/proxy/%20"),
            StatusCode::BAD_REQUEST
        );
    }

    proptest! {
        /// Whatever is written: what is understood names exactly the segments that an API server sees, and there is one
        /// namespace in it, at the place where it was read.
        #[test]
        fn what_is_understood_is_what_an_api_server_understands(
            segments in prop::collection::vec(prop_oneof![
                Just("api"), Just("apis"), Just("v1"), Just("namespaces"), Just("default"), Just("zoo"), Just("configmaps"),
                Just(".."), Just("."), Just(""), Just("%2e%2e"), Just("%2F"), Just("a%2f.."), Just("proxy"), Just("watch"),
                Just("status"), Just("services"), Just("x"), Just("%64efault"), Just("finalize"),
            ], 1..10),
        ) {
            let path = format!("/{}", segments.join("/"));
            let Ok(uri) = path.parse::<Uri>() else { return Ok(()) };
            if let Ok(Target::Objects(objects)) = parse(&uri) {
                let mapped = objects.path_in("island");
                // As an API server does: undo the escapes, then split.
                let seen = String::from_utf8(decoded(&mapped).unwrap()).unwrap();
                let seen: Vec<&str> = seen.trim_matches('/').split('/').collect();
                let start = if seen[0] == "api" { 2 } else { 3 };
                prop_assert_eq!(&seen[start..start + 2], &["namespaces", "island"]);
                prop_assert_eq!(seen[start + 2], objects.plural);
                prop_assert!(!seen.contains(&".."), "{}", mapped);
                prop_assert!(!["watch", "proxy", "namespaces"].contains(&seen[start + 2]) || seen[start + 2] != "namespaces");
                if objects.subresource != Some("proxy") {
                    prop_assert!(!mapped.contains('%') && !mapped.contains("//"));
                }
            }
        }
    }
}
