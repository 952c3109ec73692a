//! The URLs of kcp: a workspace, and the endpoints of an export. No I/O.

use std::sync::Arc;

use http::Uri;

use crate::stage::Stage;

/// The path of all workspaces behind an endpoint.
pub(crate) const ALL: &str = "/clusters/*";

/// Whether this is the id of a logical cluster. It becomes part of the path of requests.
pub(crate) fn is_cluster_id(id: &str) -> bool {
    let is_of_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let id = id.strip_prefix("system:").unwrap_or(id);
    !id.is_empty() && id.len() <= 63 && id.chars().all(is_of_id)
}

/// An export or a WorkspaceType, as the URLs of its endpoints name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Export {
    /// The id of the workspace.
    pub(crate) cluster: Arc<str>,
    pub(crate) name: Arc<str>,
    /// The path of the workspace, if the slice names it.
    pub(crate) path: Option<Arc<str>>,
}

/// Checks the address of the workspace that has the endpoint slice or the WorkspaceType, which `wanted` names.
///
/// # Errors
/// Text with what to do.
pub(crate) fn check_workspace(server: &Uri, wanted: &str) -> Result<(), String> {
    let path = server.path().trim_end_matches('/');
    if let Some(at) = path.find("/services/") {
        let workspace = path[at..].split('/').nth(3).unwrap_or_default();
        // An initializer or terminator is `<id>:<type>`.
        let workspace = workspace.rsplit_once(':').map_or(workspace, |(id, _)| id);
        return Err(format!(
            "{} is a virtual workspace, and the provider finds those by itself; give the workspace of the {wanted}, such \
             as {}/clusters/{workspace}",
            shown(server),
            shown_origin(server),
        ));
    }
    let workspace = path.rsplit_once("/clusters/").map(|(_, workspace)| workspace);
    match workspace {
        Some("*") => Err(format!(
            "{} is all workspaces at once; give the workspace of the {wanted}",
            shown(server)
        )),
        Some(workspace) if !workspace.contains('/') => Ok(()),
        _ => Err(format!(
            "{} names no workspace of kcp; add the workspace of the {wanted}, such as {}/clusters/root:my-provider",
            shown(server),
            shown_origin(server),
        )),
    }
}

/// Reads the URL of an endpoint: `https://<shard>/services/apiexport/<id>/<export>`, or that of a stage:
/// `https://<shard>/services/<service>/<id>:<type>`.
///
/// # Errors
/// Text with what is wrong.
pub(crate) fn endpoint(url: &str, workspace: &Uri, stage: Option<Stage>) -> Result<(Uri, Export), String> {
    let uri: Uri = url
        .trim_end_matches('/')
        .parse()
        .map_err(|_| "it is not a URL".to_owned())?;
    let scheme = uri.scheme_str().unwrap_or_default();
    // The credentials of the workspace are sent there.
    let is_plain = scheme == "http" && workspace.scheme_str() == Some("http");
    if scheme != "https" && !is_plain {
        return Err(format!(
            "its scheme is {scheme:?}, and credentials are sent over https only"
        ));
    }
    if uri
        .authority()
        .is_none_or(|authority| authority.as_str().contains('@'))
    {
        return Err("it has no host, or a user name".to_owned());
    }
    let mut segments = uri.path().rsplit('/');
    let mut next = || segments.next().unwrap_or_default();
    let (service, cluster, name) = match stage {
        None => {
            let (name, cluster) = (next(), next());
            (next(), cluster, name)
        }
        Some(_) => {
            let (cluster, name) = next().rsplit_once(':').unwrap_or_default();
            (next(), cluster, name)
        }
    };
    let expected = stage.map_or("apiexport", Stage::service);
    if service != expected || next() != "services" || cluster.is_empty() || uri.query().is_some() {
        let rest = stage.map_or("<id>/<export>", |_| "<id>:<type>");
        return Err(format!("its path is not /services/{expected}/{rest}"));
    }
    let export = Export {
        cluster: cluster.into(),
        name: name.into(),
        path: None,
    };
    Ok((uri, export))
}

/// The address for requests to all workspaces behind an endpoint.
pub(crate) fn below(endpoint: &Uri, path: &str) -> Option<Uri> {
    let mut parts = endpoint.clone().into_parts();
    parts.path_and_query = Some(format!("{}{path}", endpoint.path()).parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Without user name, password and query.
pub(crate) fn shown(uri: &Uri) -> String {
    format!("{}{}", shown_origin(uri), uri.path())
}

/// A text that should be a URL, as [`shown`].
pub(crate) fn shown_text(url: &str) -> String {
    match url.parse::<Uri>() {
        Ok(uri) if uri.host().is_some() => shown(&uri),
        _ => {
            let url = url.split('?').next().unwrap_or_default();
            url.rsplit_once('@').map_or(url, |(_, behind)| behind).to_owned()
        }
    }
}

fn shown_origin(uri: &Uri) -> String {
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    format!(
        "{}://{}{port}",
        uri.scheme_str().unwrap_or("https"),
        uri.host().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(uri: &str) -> Uri {
        uri.parse().unwrap()
    }

    #[test]
    fn only_a_workspace_is_taken_as_one() {
        for good in [
            "https://kcp:6443/clusters/root:mongodb",
            "https://kcp/prefix/clusters/1rlzadlzb44i0g5n/",
        ] {
            assert_eq!(check_workspace(&uri(good), "endpoint slice"), Ok(()), "{good}");
        }
        let error = |server: &str| check_workspace(&uri(server), "endpoint slice").unwrap_err();
        assert_eq!(
            error("https://u:p@kcp:6443/services/apiexport/1rlzadlzb44i0g5n/mongodb"),
            "https://kcp:6443/services/apiexport/1rlzadlzb44i0g5n/mongodb is a virtual workspace, and the provider finds those \
             by itself; give the workspace of the endpoint slice, such as https://kcp:6443/clusters/1rlzadlzb44i0g5n"
        );
        let below = error("https://kcp/services/apiexport/1rlzadlzb44i0g5n/mongodb/clusters/*");
        assert!(below.contains("is a virtual workspace"), "{below}");
        for nameless in [
            "https://kcp:6443",
            "https://kcp:6443/clusters/",
            "https://kcp:6443/clusters/a/api",
        ] {
            let error = error(nameless);
            assert!(
                error.ends_with(
                    "names no workspace of kcp; add the workspace of the endpoint slice, such as \
                                 https://kcp:6443/clusters/root:my-provider"
                ),
                "{error}"
            );
        }
        assert!(error("https://kcp/clusters/*").contains("all workspaces at once"));
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, expected) in [
            ("https://u:p@shard:1/services?token=p", "https://shard:1/services"),
            ("https://u:p@shard one/services?token=p", "shard one/services"),
            ("not a url", "not a url"),
        ] {
            assert_eq!(shown_text(url), expected);
        }
    }

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        for good in ["344qdshnqz45fjlp", "root", "system:admin"] {
            assert!(is_cluster_id(good), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", "*", "root:a", "a/b", "..", "A", "a%2Fb", "system:", &long] {
            assert!(!is_cluster_id(bad), "{bad}");
        }
    }

    #[test]
    fn only_an_endpoint_of_an_export_gets_the_credentials() {
        let workspace = uri("https://kcp:6443/clusters/root:mongodb");
        let (read, export) = endpoint(
            "https://shard-1:6444/base/services/apiexport/1rlzadlzb44i0g5n/mongodb/",
            &workspace,
            None,
        )
        .unwrap();
        assert_eq!((&*export.cluster, &*export.name), ("1rlzadlzb44i0g5n", "mongodb"));
        assert_eq!(
            below(&read, "/clusters/*").unwrap(),
            "https://shard-1:6444/base/services/apiexport/1rlzadlzb44i0g5n/mongodb/clusters/*"
        );
        for (bad, why) in [
            (
                "http://shard-1/services/apiexport/1rlzadlzb44i0g5n/mongodb",
                "https only",
            ),
            (
                "https://u:p@shard-1/services/apiexport/1rlzadlzb44i0g5n/mongodb",
                "user name",
            ),
            ("/services/apiexport/1rlzadlzb44i0g5n/mongodb", "https only"),
            ("https://shard-1/clusters/1rlzadlzb44i0g5n", "its path is not"),
            (
                "https://shard-1/services/apiexport/1rlzadlzb44i0g5n/mongodb/clusters/*",
                "its path is not",
            ),
            ("https://shard-1/services/apiexport//mongodb", "its path is not"),
            ("https://shard-1/services/apiexport/", "its path is not"),
            (
                "https://shard-1/services/apiexport/1rlzadlzb44i0g5n/mongodb?a=b",
                "its path is not",
            ),
            ("not a url", "not a URL"),
        ] {
            let error = endpoint(bad, &workspace, None).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
            assert!(!error.contains("u:p"), "{error}");
        }
        let plain = uri("http://127.0.0.1:1/clusters/root");
        assert!(endpoint("http://127.0.0.1:2/services/apiexport/a/b", &plain, None).is_ok());
        for scheme in ["ftp://127.0.0.1:2", "//127.0.0.1:2"] {
            let error = endpoint(&format!("{scheme}/services/apiexport/a/b"), &plain, None).unwrap_err();
            assert!(error.starts_with("its scheme is"), "{error}");
        }
    }

    #[test]
    fn an_endpoint_of_a_stage_names_the_type() {
        let workspace = uri("https://kcp:6443/clusters/root:org");
        let read = |url: &str, stage| endpoint(url, &workspace, Some(stage)).map(|(_, of_type)| of_type);
        let url = "https://shard-1/services/initializingworkspaces/1rlzadlzb44i0g5n:managed";
        let of_type = read(url, Stage::Initializing).unwrap();
        assert_eq!(
            (&*of_type.cluster, &*of_type.name),
            ("1rlzadlzb44i0g5n", "managed")
        );
        let system = "https://shard-1/services/terminatingworkspaces/system:admin:managed";
        let of_type = read(system, Stage::Terminating).unwrap();
        assert_eq!((&*of_type.cluster, &*of_type.name), ("system:admin", "managed"));
        for (bad, stage) in [
            (url, Stage::Terminating),
            (
                "https://shard-1/services/initializingworkspaces/managed",
                Stage::Initializing,
            ),
            ("https://shard-1/initializingworkspaces/a:b", Stage::Initializing),
        ] {
            let error = read(bad, stage).unwrap_err();
            assert!(
                error.starts_with("its path is not /services/") && error.ends_with("/<id>:<type>"),
                "{error}"
            );
        }
        let error = check_workspace(&uri(url), "WorkspaceType").unwrap_err();
        assert!(
            error.ends_with(
                "give the workspace of the WorkspaceType, such as https://shard-1/clusters/1rlzadlzb44i0g5n"
            ),
            "{error}"
        );
    }
}
