//! Clients that kube makes of the program's own kubeconfig, or of its Pod. The one place for what kube takes from the environment, and for
//! what its errors would quote.

use std::iter;

use kube::{
    Client, Config, Error,
    client::AuthError,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use mcr_access::BoxError;

use crate::proxies::ProxyEnvironment;

/// The configuration of a context, or of the current one. Of proxies it has only the one that the kubeconfig names.
///
/// # Errors
/// Why kube can't use the kubeconfig, without a text of it.
pub async fn kube_config(
    read: Result<Kubeconfig, KubeconfigError>,
    context: Option<&str>,
) -> Result<Config, BoxError> {
    let kubeconfig = read.map_err(unquoted)?;
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let proxy = proxy_of(&kubeconfig, context);
    let loaded = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = loaded.map_err(unquoted)?;
    // kube would use `HTTPS_PROXY` for each server, and compare `NO_PROXY` with the proxy.
    config.proxy_url = proxy.map(|url| url.parse()).transpose()?;
    Ok(config)
}

/// The configuration that `kube::Config::infer` finds, but for the proxy: see [`kube_config`].
///
/// # Errors
/// If there is no kubeconfig that can be used, and this is no Pod.
pub async fn inferred_kube_config() -> Result<Config, BoxError> {
    let mut config = match kube_config(Kubeconfig::read(), None).await {
        Ok(config) => config,
        Err(error) => Config::incluster().map_err(|pod| {
            format!("no kubeconfig can be used ({error}), and this is no Pod ({pod}); name one in KUBECONFIG")
        })?,
    };
    config.apply_debug_overrides();
    Ok(config)
}

/// A client. It goes through the proxy of the configuration, or else through that of the environment, if it is given.
///
/// # Errors
/// A `kube::Error`, or a text if there is no cryptography, or if kube can't use the proxy or load the credentials.
pub fn kube_client(mut config: Config, proxies: Option<&ProxyEnvironment>) -> Result<Client, BoxError> {
    mcr_access::crypto::install_default()?;
    if config.proxy_url.is_none() {
        let of_environment = proxies.and_then(|proxies| proxies.proxy_to(&config.cluster_url));
        config.proxy_url = of_environment.cloned();
    }
    Client::try_from(config).map_err(|error| match error {
        // Both quote the URL of the proxy, which may have a password.
        Error::ProxyProtocolDisabled { protocol_feature, .. } => {
            format!("the proxy can't be used; turn on the feature {protocol_feature} in Cargo.toml").into()
        }
        Error::ProxyProtocolUnsupported { .. } => {
            "the proxy can't be used; begin its URL with http://, https:// or socks5://".into()
        }
        error if is_login_error(&error) => {
            "the credentials of the hub's kubeconfig can't be loaded; try them with kubectl auth whoami"
                .into()
        }
        error => error.into(),
    })
}

/// Whether a client could not load its credentials. Such an error quotes what a credential plugin wrote, and its input, which may have
/// the URL of a proxy.
pub fn is_login_error(error: &(dyn std::error::Error + 'static)) -> bool {
    iter::successors(Some(error), |error| error.source()).any(|error| error.is::<AuthError>())
}

/// The `proxy-url` of the cluster of a context.
fn proxy_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let name = context.or(kubeconfig.current_context.as_deref())?;
    let mut contexts = kubeconfig.contexts.iter();
    let context = contexts.find(|named| named.name == name)?;
    let cluster = &context.context.as_ref()?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters.find(|named| named.name == *cluster)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.clone();
    proxy.filter(|proxy| !proxy.is_empty())
}

/// The error without its sources, and without a text of the kubeconfig.
fn unquoted(error: KubeconfigError) -> BoxError {
    match error {
        KubeconfigError::Parse(_) => {
            "it is no YAML of a kubeconfig; find the line with kubectl config view".into()
        }
        KubeconfigError::ParseProxyUrl(_) => {
            "the proxy-url of the cluster, or HTTPS_PROXY, is no URL; write http://host:port".into()
        }
        error => error.to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use mcr_access::{AccessPolicy, ClusterName};

    use super::*;
    use crate::{dialer::Dialer, explain::explain, transport::Transport};

    const PASSWORD: &str = "QQCANARYQQ";

    fn kubeconfig(proxy: &str) -> String {
        format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], users: [{{name: u, user: {{}}}}], \
             clusters: [{{name: other, cluster: {{server: 'https://h', proxy-url: 'http://other'}}}}, \
             {{name: k, cluster: {{server: 'https://api.example', proxy-url: '{proxy}'}}}}]}}"
        )
    }

    /// The proxy in use.
    async fn read(text: &str) -> Result<Option<String>, BoxError> {
        let config = kube_config(Kubeconfig::from_yaml(text), None).await?;
        let proxy = config.proxy_url.as_ref().map(ToString::to_string);
        kube_client(config, None)?;
        Ok(proxy)
    }

    #[tokio::test]
    async fn no_error_has_a_password_of_a_proxy() {
        for scheme in ["http", "https", "socks5", "socks5h", "ftp", "http ", "://"] {
            let text = kubeconfig(&format!("{scheme}://me:{PASSWORD}@proxy.example:3128"));
            // Without kube's features for proxies, each is an error.
            let Err(error) = read(&text).await else {
                assert!(["http", "https", "socks5"].contains(&scheme), "{scheme}");
                continue;
            };
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("proxy") && !shown.contains(PASSWORD), "{shown}");
        }
        let plugin = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: 'false', interactiveMode: Never, \
                      provideClusterInfo: true}}";
        let failing = kubeconfig(&format!("http://me:{PASSWORD}@proxy.example")).replace("{}", plugin);
        let error = read(&failing).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(PASSWORD), "{shown}");
        let broken = kubeconfig(&format!("http://me:{PASSWORD}@proxy'"));
        let error = read(&broken).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(
            shown.contains("kubectl config view") && !shown.contains(PASSWORD),
            "{shown}"
        );
    }

    /// Its token has expired, so each request runs it again, and it fails.
    #[tokio::test]
    #[cfg(unix)]
    async fn no_error_of_a_request_has_what_a_plugin_wrote() {
        let first = std::env::temp_dir().join(format!("mcr-first-{}", std::process::id()));
        let issued = serde_json::json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"},
        });
        let run = format!(
            "mkdir {} && echo '{issued}' || {{ echo {PASSWORD}; exit 1; }}",
            first.display()
        );
        let exec = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", run],
            "env": [{"name": "KEY", "value": PASSWORD}], "interactiveMode": "Never",
        }});
        let text = kubeconfig("").replace("{}", &exec.to_string());
        let config = kube_config(Kubeconfig::from_yaml(&text), None).await.unwrap();
        let client = kube_client(config, None).unwrap();
        let transport = Transport::new(ClusterName::new("a").unwrap());
        transport.swap(Dialer::new(&AccessPolicy::default()).client_channel(client.clone()));
        let get = || http::Request::get("/version");
        let of_kube = client
            .request_text(get().body(Vec::new()).unwrap())
            .await
            .unwrap_err();
        assert!(is_login_error(&of_kube) && of_kube.to_string().contains(PASSWORD));
        let of_fleet = transport
            .send(get().body(Body::empty()).unwrap())
            .await
            .unwrap_err();
        std::fs::remove_dir(&first).unwrap();
        let causes = iter::successors(Some(&of_fleet as &dyn std::error::Error), |error| error.source());
        let shown: String = causes.map(|error| format!("{error} {error:?} ")).collect();
        for shown in [shown, explain(&of_kube)] {
            assert!(shown.contains("whoami") && !shown.contains(PASSWORD), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_proxy_of_the_environment_is_used_only_if_it_is_given() {
        let config = || kube_config(Kubeconfig::from_yaml(&kubeconfig("")), None);
        assert_eq!(config().await.unwrap().proxy_url, None);
        let proxies = |no_proxy: &'static str| {
            ProxyEnvironment::new(|name| match name {
                "HTTPS_PROXY" => Some(format!("socks5h://me:{PASSWORD}@proxy.example")),
                "NO_PROXY" => Some(no_proxy.to_owned()),
                _ => None,
            })
            .unwrap()
        };
        // kube knows no such scheme, so the error shows that the proxy was used.
        let used = kube_client(config().await.unwrap(), Some(&proxies("other.example")));
        let shown = format!("{:?}", used.map(drop).unwrap_err());
        assert!(
            shown.contains("socks5://") && !shown.contains(PASSWORD),
            "{shown}"
        );
        kube_client(config().await.unwrap(), Some(&proxies("api.example"))).unwrap();
    }

    /// In a process of its own, because it is about variables of the environment.
    #[tokio::test]
    async fn what_kube_would_take_from_the_environment_is_left_out() {
        if std::env::var("KUBECONFIG").is_ok_and(|path| path.contains("mcr-inferred")) {
            let config = inferred_kube_config().await.unwrap();
            assert_eq!(config.cluster_url.host(), Some("api.example"));
            let proxy = config.proxy_url.map(|url| url.to_string());
            assert_eq!(proxy.as_deref(), Some("http://own.example/"));
            return;
        }
        let path = std::env::temp_dir().join(format!("mcr-inferred-{}.yaml", std::process::id()));
        std::fs::write(&path, kubeconfig("http://own.example")).unwrap();
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "kube_client::tests::what_kube_would_take_from_the_environment_is_left_out",
            ])
            .env("KUBECONFIG", &path)
            .env("HTTPS_PROXY", format!("http://me:{PASSWORD}@proxy.example"))
            .env("NO_PROXY", "own.example")
            .output()
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}
