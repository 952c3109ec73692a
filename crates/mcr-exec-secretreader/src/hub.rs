//! Reading the Secret in the hub.

use std::{collections::BTreeMap, env, io::ErrorKind, path::PathBuf};

use anyhow::{Context, anyhow, bail};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Client, Config, config::Kubeconfig};
use mcr_access::{KubeconfigAccess, KubeconfigFile, contexts, reason};
use mcr_client::{
    ObjectPath, explain_error,
    internal::{kube_client, kube_config},
};

use crate::request::Request;

/// A Secret that was read. It has no Debug output.
pub(crate) struct ReadSecret {
    pub(crate) data: BTreeMap<String, ByteString>,
    /// The Secret in words, for errors.
    pub(crate) place: String,
}

/// Reads the Secret of a request. Cancel safe.
///
/// # Errors
/// The text contains nothing of the Secret and of the hub's credentials.
pub(crate) async fn read(client: &Client, request: &Request) -> anyhow::Result<ReadSecret> {
    let namespace = request
        .namespace
        .clone()
        .unwrap_or_else(|| client.default_namespace().to_owned());
    let place = format!("Secret {namespace}/{}", request.name);
    let path = ObjectPath {
        group: "",
        version: "v1",
        plural: "secrets",
        namespace: Some(&namespace),
        name: &request.name,
    };
    let get = http::Request::get(path.path().with_context(|| place.clone())?).body(Vec::new())?;
    let answer = client.request_text(get).await;
    // kube would log an answer that it can't decode.
    let secret =
        answer.and_then(|text| serde_json::from_str::<Secret>(&text).map_err(kube::Error::SerdeError));
    let secret = secret.map_err(|error| anyhow!("{place}: {}", text_of(&error)))?;
    Ok(ReadSecret {
        data: secret.data.unwrap_or_default(),
        place,
    })
}

/// A client of the hub: the current context of the kubeconfig that kubectl would use, or else the cluster of the Pod.
pub(crate) async fn client() -> anyhow::Result<Client> {
    let config = match kubeconfig()? {
        Some(access) => from_kubeconfig(&access).await?,
        None => Config::incluster().map_err(|error| {
            anyhow!(
                "there is no kubeconfig and this is no Pod ({error}); name the hub's kubeconfig in KUBECONFIG, in the environment of the \
                 caller or under env of the exec configuration"
            )
        })?,
    };
    kube_client(config, None).map_err(|error| {
        let text = match error.downcast_ref() {
            Some(error) => text_of(error),
            None => error.to_string(),
        };
        anyhow!("the hub can't be used: {text}")
    })
}

/// The current context. `None` if there are no contexts.
fn kubeconfig() -> anyhow::Result<Option<KubeconfigAccess>> {
    let mut files = Vec::new();
    for path in paths() {
        match std::fs::read(&path) {
            Ok(bytes) => files.push(KubeconfigFile::new(path, bytes)),
            // As kubectl: some of the files may be missing.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => bail!(
                "the hub's kubeconfig {} can't be read: {}; check that this user may read it",
                path.display(),
                error.kind()
            ),
        }
    }
    let found = contexts(&files);
    let unreadable = || found.iter().find(|entry| entry.context.is_none());
    match found.iter().find(|entry| entry.current).or_else(unreadable) {
        Some(entry) => {
            let access = entry.access.clone().and_then(|access| {
                access.parse()?.check_files()?;
                Ok(access)
            });
            let access = access.with_context(|| format!("the hub's kubeconfig {}", entry.file.display()))?;
            Ok(Some(access))
        }
        None if found.is_empty() => Ok(None),
        None => bail!("the hub's kubeconfig has no current context; set one with kubectl config use-context"),
    }
}

fn paths() -> Vec<PathBuf> {
    match env::var_os("KUBECONFIG").filter(|list| !list.is_empty()) {
        Some(list) => env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect(),
        None => env::home_dir()
            .map(|home| home.join(".kube").join("config"))
            .into_iter()
            .collect(),
    }
}

async fn from_kubeconfig(access: &KubeconfigAccess) -> anyhow::Result<Config> {
    // The texts of kube's errors can quote the kubeconfig. They are not used.
    let unusable =
        "the hub's kubeconfig can't be used, although it is well-formed; try it with kubectl --kubeconfig";
    let text = std::str::from_utf8(&access.yaml).map_err(|_| anyhow!(unusable))?;
    kube_config(Kubeconfig::from_yaml(text), access.context.as_deref())
        .await
        .map_err(|_| anyhow!(unusable))
}

/// Why a request failed, without the text of an error that can quote a Secret or the output of a login program.
fn text_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => {
            let advice = match status.code {
                401 => {
                    "the hub refuses the credentials of this program; check its kubeconfig or ServiceAccount"
                }
                403 => "allow this program to get Secrets in that namespace, and there only",
                404 => "create it, or correct its name and namespace in the extension of the cluster",
                _ => "check the hub",
            };
            format!("{} ({}); {advice}", reason(&status.message), status.code)
        }
        kube::Error::SerdeError(_) => {
            "the hub's answer is not a Secret; check that the address is that of an API server".to_owned()
        }
        error => explain_error(error),
    }
}
