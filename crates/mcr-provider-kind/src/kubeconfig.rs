//! Converts the admin.conf of a node into a kubeconfig that works outside of the node.

use mcr_core::{AccessError, AccessPolicy, AddressPolicy, EndpointAccess, KubeconfigAccess, Trust};
use serde_json::{Value, json};

/// The path at which kubeadm writes the file in a node.
pub(crate) const PATH: &str = "/etc/kubernetes/admin.conf";

/// Why an admin.conf can't be used. The text completes "admin.conf can't be used: ", and does not quote the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfError {
    #[error("it is empty; kubeadm is writing it, or the disk of the node is full")]
    Empty,
    #[error("it is not YAML (line {line}); read it with `cat {PATH}` in the node")]
    Syntax { line: u64 },
    #[error("it has no cluster; read it with `cat {PATH}` in the node")]
    NoCluster,
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// Replaces the server in a kubeconfig, because the file contains the name of the node, which only other nodes can
/// resolve.
///
/// **Trust.** Anyone who can start a container with kind's labels controls this file, and node images come from
/// anywhere. kubeadm writes all data inline. So this function checks the file by the rules for untrusted kubeconfigs:
/// no programs, no files, no proxies, no unverified TLS. There is one exception: addresses of this machine are allowed,
/// because kind's API servers listen there. Addresses of metadata services are not allowed, because a label of the
/// container can name any address. No other field of a file that passes depends on trust. The access is announced as
/// trusted, because the fleet's policy would refuse the address in an untrusted one.
pub(crate) fn with_server(yaml: &[u8], endpoint: &str) -> Result<EndpointAccess, ConfError> {
    let text = std::str::from_utf8(yaml).map_err(|_| ConfError::Syntax { line: 1 })?;
    if text.trim().is_empty() {
        return Err(ConfError::Empty);
    }
    let mut options = serde_saphyr::options! { with_snippet: false };
    options.alias_limits.max_total_replayed_events = 1_000;
    let mut document: Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| ConfError::Syntax {
            line: error.location().map_or(0, |at| at.line()),
        })?;
    let clusters = document.get_mut("clusters").and_then(Value::as_array_mut);
    for cluster in clusters.ok_or(ConfError::NoCluster)? {
        if let Some(cluster) = cluster.get_mut("cluster").and_then(Value::as_object_mut) {
            cluster.insert("server".to_owned(), format!("https://{endpoint}").into());
        }
    }
    // JSON is valid YAML.
    checked(&document)
}

/// A kubeconfig without credentials, for a suspended cluster whose admin.conf has not been read.
pub(crate) fn without_credentials(endpoint: &str) -> Option<EndpointAccess> {
    let document = json!({
        "clusters": [{"name": "kind", "cluster": {"server": format!("https://{endpoint}")}}],
        "users": [{"name": "kind", "user": {}}],
        "contexts": [{"name": "kind", "context": {"cluster": "kind", "user": "kind"}}],
        "current-context": "kind",
    });
    checked(&document).ok()
}

fn checked(document: &Value) -> Result<EndpointAccess, ConfError> {
    let policy = AccessPolicy::default().addresses(AddressPolicy::any().allow_link_local(false));
    let parsed = KubeconfigAccess::new(document.to_string(), Trust::Untrusted).parse()?;
    let mut access = policy.admit(&parsed)?;
    access.trust = Trust::Trusted;
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: v1
clusters:
- cluster: {server: 'https://dev-control-plane:6443'}
  name: dev
contexts:
- context: {cluster: dev, user: kubernetes-admin}
  name: kubernetes-admin@dev
current-context: kubernetes-admin@dev
kind: Config
users:
- name: kubernetes-admin
  user: {token: s3cret}
";

    #[test]
    fn the_server_is_where_the_port_is_mapped_and_all_else_stays() {
        let access = with_server(GOOD.as_bytes(), "127.0.0.1:43981").unwrap();
        assert_eq!(access.trust, Trust::Trusted);
        let shown = mcr_testkit::discovery::address_and_token(&access.into());
        assert_eq!(shown, "https://127.0.0.1:43981/ s3cret");
    }

    #[test]
    fn what_could_run_a_program_or_read_a_file_is_refused() {
        for evil in [
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/s3cret, interactiveMode: Never}}",
            "{tokenFile: /etc/s3cret}",
            "{client-certificate: /etc/s3cret, client-key: /etc/s3cret}",
        ] {
            let error =
                with_server(GOOD.replace("{token: s3cret}", evil).as_bytes(), "127.0.0.1:1").unwrap_err();
            assert!(
                error.to_string().contains("untrusted kubeconfigs may not"),
                "{error}"
            );
        }
        for evil in [
            "proxy-url: 'http://127.0.0.1:1'",
            "insecure-skip-tls-verify: true",
            "certificate-authority: /ca",
        ] {
            let evil = GOOD.replace("{server: ", &format!("{{{evil}, server: "));
            let error = with_server(evil.as_bytes(), "127.0.0.1:1").unwrap_err();
            assert!(error.to_string().contains("may not"), "{error}");
        }
    }

    #[test]
    fn what_is_half_written_is_reported_without_a_word_of_it() {
        for bad in [
            "",
            " \n",
            "clusters: [{",
            "clusters: 7",
            "s3cret",
            "\t{",
            "users: [{user: {token: s3cret",
            "[]",
        ] {
            let error = with_server(bad.as_bytes(), "127.0.0.1:1")
                .unwrap_err()
                .to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
        assert!(with_server(&[0xff, 0xfe], "127.0.0.1:1").is_err());
        for endpoint in [
            "not a host",
            "169.254.169.254:443",
            "[::ffff:169.254.169.254]:443",
            "a@127.0.0.1:1",
        ] {
            assert!(with_server(GOOD.as_bytes(), endpoint).is_err(), "{endpoint}");
        }
        for end in 0..GOOD.len() - 1 {
            if let Err(error) = with_server(&GOOD.as_bytes()[..end], "127.0.0.1:1") {
                assert!(!error.to_string().contains("s3cret"), "{error}");
            }
        }
    }

    #[test]
    fn a_stopped_cluster_has_an_address_and_nothing_more() {
        let access = without_credentials("127.0.0.1:43981").unwrap();
        assert_eq!(access.endpoint.server, "https://127.0.0.1:43981");
        assert!(without_credentials("not a host").is_none());
    }
}
