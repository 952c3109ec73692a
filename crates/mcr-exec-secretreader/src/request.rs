//! The request: which Secret the caller wants, and how to find the credential in it.

use serde::Deserialize;

/// The versions of the protocol that this program speaks.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The version of the protocol, for the answer.
    pub(crate) version: &'static str,
    /// `None`: the namespace of the hub's kubeconfig, or of the Pod.
    pub(crate) namespace: Option<String>,
    /// The name of the Secret. It is safe to use in the path of a request.
    pub(crate) name: String,
    pub(crate) content: Content,
}

/// How the Secret holds the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// The key `token` has a bearer token.
    Token,
    /// A key has a kubeconfig. `context: None` means its current context.
    Kubeconfig { key: String, context: Option<String> },
}

/// Why there is no valid request. The texts quote no part of it, since it comes from whoever describes the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum RequestError {
    #[error(
        "KUBERNETES_EXEC_INFO is not set; this program is an exec credential plugin: name it in the exec configuration of a kubeconfig \
         or of a provider file, with provideClusterInfo: true"
    )]
    Missing,
    #[error(
        "KUBERNETES_EXEC_INFO is not an ExecCredential in JSON whose cluster configuration has texts only (line {line}, column \
         {column}); check name, key, namespace, context and clusterName in the extension client.authentication.k8s.io/exec of the \
         cluster"
    )]
    Json { line: usize, column: usize },
    #[error(
        "KUBERNETES_EXEC_INFO holds an object whose kind is not ExecCredential; call this program as an exec credential plugin"
    )]
    Kind,
    #[error(
        "the request is in none of the versions v1 and v1beta1 of client.authentication.k8s.io; set one of them as the apiVersion of \
         the exec configuration"
    )]
    Version,
    #[error("the request names no cluster; set provideClusterInfo: true in the exec configuration")]
    NoCluster,
    #[error(
        "the cluster has no configuration for this program; add the extension client.authentication.k8s.io/exec with name and key \
         (a kubeconfig in a Secret) or with clusterName (a token in a Secret)"
    )]
    NoConfig,
    #[error(
        "the extension client.authentication.k8s.io/exec has neither name nor clusterName; set name to the name of the Secret with the \
         kubeconfig"
    )]
    NoName,
    #[error(
        "the extension client.authentication.k8s.io/exec has no key; set it to the key of the Secret that holds the kubeconfig, for \
         example value"
    )]
    NoKey,
    #[error(
        "{field} in the extension client.authentication.k8s.io/exec can't be the name of a {kind}; correct it: such a name has only \
         lower-case letters, digits, hyphens{dots}"
    )]
    Name {
        field: &'static str,
        kind: &'static str,
        dots: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    spec: Option<Spec>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(default)]
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    config: Option<Config>,
}

/// The extension of the cluster. Fields of other programs are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    cluster_name: Option<String>,
}

impl Request {
    /// Parses the value of `KUBERNETES_EXEC_INFO`.
    pub(crate) fn parse(info: Option<&str>) -> Result<Self, RequestError> {
        let info = info
            .filter(|info| !info.trim().is_empty())
            .ok_or(RequestError::Missing)?;
        let info: ExecCredential = serde_json::from_str(info).map_err(|error| RequestError::Json {
            line: error.line(),
            column: error.column(),
        })?;
        if info.kind != "ExecCredential" {
            return Err(RequestError::Kind);
        }
        let version = VERSIONS
            .into_iter()
            .find(|version| *version == info.api_version)
            .ok_or(RequestError::Version)?;
        let cluster = info
            .spec
            .and_then(|spec| spec.cluster)
            .ok_or(RequestError::NoCluster)?;
        let config = cluster.config.ok_or(RequestError::NoConfig)?;

        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (field, name, content) = match (filled(config.name), filled(config.cluster_name)) {
            (Some(name), _) => {
                let key = filled(config.key).ok_or(RequestError::NoKey)?;
                let context = filled(config.context);
                ("name", name, Content::Kubeconfig { key, context })
            }
            (None, Some(name)) => ("clusterName", name, Content::Token),
            (None, None) => return Err(RequestError::NoName),
        };
        if !is_object_name(&name) {
            return Err(RequestError::Name {
                field,
                kind: "Secret",
                dots: " and dots",
            });
        }
        let namespace = filled(config.namespace);
        if namespace
            .as_deref()
            .is_some_and(|name| !mcr_access::internal::namespace::is_valid(name))
        {
            return Err(RequestError::Name {
                field: "namespace",
                kind: "namespace",
                dots: "",
            });
        }
        Ok(Self {
            version,
            namespace,
            name,
            content,
        })
    }
}

/// Whether a name leads to an object of its own, and to no other path. The API server knows the other rules for names.
fn is_object_name(name: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= 253
        && name.bytes().next().is_some_and(alphanumeric)
        && name
            .bytes()
            .all(|byte| alphanumeric(byte) || byte == b'-' || byte == b'.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse(version: &str, config: Value) -> Result<Request, RequestError> {
        let info = json!({
            "kind": "ExecCredential",
            "apiVersion": format!("client.authentication.k8s.io/{version}"),
            "spec": {"interactive": false, "cluster": {"server": "https://a", "config": config}},
        });
        Request::parse(Some(&info.to_string()))
    }

    #[test]
    fn the_extension_names_a_kubeconfig() {
        let request = parse("v1", json!({"name": "eu-1", "key": "value"})).unwrap();
        assert_eq!(
            request,
            Request {
                version: "client.authentication.k8s.io/v1",
                namespace: None,
                name: "eu-1".into(),
                content: Content::Kubeconfig {
                    key: "value".into(),
                    context: None
                },
            }
        );
        let request = parse(
            "v1beta1",
            json!({"name": "eu-1.a", "key": "k", "namespace": "fleet", "context": "c", "clusterName": "x", "other": [1]}),
        );
        assert_eq!(
            request,
            Ok(Request {
                version: "client.authentication.k8s.io/v1beta1",
                namespace: Some("fleet".into()),
                name: "eu-1.a".into(),
                content: Content::Kubeconfig {
                    key: "k".into(),
                    context: Some("c".into())
                },
            })
        );
    }

    #[test]
    fn the_extension_names_a_token() {
        let request = parse("v1", json!({"clusterName": "eu-1", "name": ""})).unwrap();
        assert_eq!((request.name.as_str(), request.content), ("eu-1", Content::Token));
    }

    #[test]
    fn each_mistake_has_an_error_of_its_own() {
        use RequestError::*;
        for (config, expected) in [
            (json!(null), NoConfig),
            (json!({}), NoName),
            (json!({"key": "value"}), NoName),
            (json!({"name": "a"}), NoKey),
            (json!({"name": "a", "key": ""}), NoKey),
        ] {
            assert_eq!(parse("v1", config), Err(expected));
        }
        assert!(matches!(parse("v1", json!({"name": 1})), Err(Json { .. })));
        assert_eq!(parse("v1alpha1", json!({"name": "a", "key": "k"})), Err(Version));
        let of = |text: &str| Request::parse(Some(text));
        assert_eq!(Request::parse(None), Err(Missing));
        assert_eq!(of(" "), Err(Missing));
        assert!(matches!(of("{"), Err(Json { .. })));
        assert_eq!(of("{}"), Err(Kind));
        let with = |spec: &str| {
            let version = VERSIONS[0];
            of(&format!(
                r#"{{"kind":"ExecCredential","apiVersion":"{version}"{spec}}}"#
            ))
        };
        assert_eq!(with(""), Err(NoCluster));
        assert_eq!(with(r#","spec":{"interactive":false}"#), Err(NoCluster));
        assert_eq!(with(r#","spec":{"cluster":{"server":"x"}}"#), Err(NoConfig));
    }

    #[test]
    fn names_that_lead_to_another_path_are_refused() {
        for name in [
            "../../api/v1/secrets",
            "..",
            ".",
            "a/b",
            "a?b",
            "a%2fb",
            "A",
            "-a",
            "ä",
            &"a".repeat(254),
        ] {
            for config in [
                json!({"name": name, "key": "k"}),
                json!({"clusterName": name}),
                json!({"name": "a", "key": "k", "namespace": name}),
            ] {
                assert!(
                    matches!(parse("v1", config), Err(RequestError::Name { .. })),
                    "{name}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_leads_to_one_secret(
            name in ".{0,12}|[a-z./%-]{0,12}",
            namespace in prop::option::of(".{0,12}|[a-z./%-]{0,12}"),
            key in ".{0,5}",
        ) {
            let safe = |text: &str| !text.is_empty() && text != "." && !text.contains("..")
                || text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
            let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.');
            let config = json!({"name": name, "key": key, "namespace": namespace});
            if let Ok(request) = parse("v1", config) {
                prop_assert!(safe(&request.name) && plain(&request.name));
                prop_assert!(request.namespace.iter().all(|name| safe(name) && plain(name)));
                prop_assert_eq!(request.name, name);
            }
        }

        #[test]
        fn no_error_repeats_the_request(
            info in "\\PC{0,40}|\\{\"kind\": ?\"[A-Z]{10}\".{0,10}|\\{\"spec\":[\\[{\"A-Z:}\\]]{0,20}",
        ) {
            const WORD: &str = "QQCANARYQQ";
            let error = Request::parse(Some(&format!("{info}{WORD}"))).unwrap_err();
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains(WORD), "{}", shown);
        }
    }
}
