//! Parses the path of a request.
//!
//! Accepts canonical paths only. Refuses every form that two parsers could read in two ways (percent escapes, dot
//! segments, empty segments), so that no spelling of a namespace can get around the mapping.

use http::Uri;

use super::refuse::Refusal;

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The discovery, the version and the health of the server, which are the same for all clusters of a host.
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

/// The segments after a namespace that an API server reads as a subresource of the namespace, and not as a kind in it.
const SUBRESOURCES_OF_NAMESPACES: [&str; 2] = ["status", "finalize"];
/// The first segments of paths about the server itself.
const ABOUT: [&str; 5] = ["version", "openapi", "healthz", "livez", "readyz"];
/// The prefixes of an older form of watches and proxies, in which the namespace has another position.
const OLD_FORMS: [&str; 2] = ["watch", "proxy"];

impl Objects<'_> {
    /// Whether the API server passes the request on to a pod or service, so that the bodies are not those of the
    /// Kubernetes API.
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

    /// The path of the same objects in this namespace.
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
        // The rest of the path goes to a pod or service as it is. Only segments that could lead out of that path are
        // refused.
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
        // The kind Namespace, which is in the core group. The same path in another group is refused, even if that group
        // has a kind of this name.
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

/// The part of a path after its first segments.
fn after_segments(path: &str, count: usize) -> &str {
    path.splitn(count + 1, '/').nth(count).unwrap_or("")
}

/// Checks the part of a path that goes to a pod or service.
fn check_free(path: &str) -> Result<(), Refusal> {
    if path.is_empty() {
        return Ok(());
    }
    let Some(decoded) = decoded(path) else {
        return Err(not_canonical("it has a broken percent escape"));
    };
    // Checks the unescaped path too, because the API server unescapes a path before it splits it.
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
        // One slash at the end is allowed, because it may matter to a service.
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

/// Whether a segment of a URI may have this byte without an escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte)
}

fn not_canonical(why: &str) -> Refusal {
    Refusal::bad_request(format!("the path of the request is not canonical: {why}"))
}

fn no_business(path: &str) -> Refusal {
    let first = path.split('/').next().unwrap_or_default();
    // The first segment has not been checked yet, so the error shows it only if it is alphanumeric.
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
mod tests;
