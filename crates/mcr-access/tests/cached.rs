//! The cached result of a resolution, under other policies and after changes of the public fields.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use mcr_access::{AccessPolicy, AddressPolicy, KubeconfigAccess, Trust, check};

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

#[test]
fn what_was_found_before_is_held_against_what_is_asked_now() {
    let plain = kubeconfig("server: 'https://127.0.0.1:6443'", "token: t");
    let strict = AccessPolicy::default();
    let lenient = AccessPolicy::default()
        .addresses(AddressPolicy::any())
        .allow_insecure_tls(true)
        .allow_proxy("http://h:1".parse().unwrap());
    let refused = |access: &KubeconfigAccess| check(access, &strict).unwrap_err().to_string();

    for (cluster, field) in [
        ("server: 'https://127.0.0.1:6443'", "server"),
        (
            "server: 'https://h', insecure-skip-tls-verify: true",
            "insecure-skip-tls-verify",
        ),
        ("server: 'https://h', proxy-url: 'http://h:1'", "proxy-url"),
    ] {
        let new = || KubeconfigAccess::new(kubeconfig(cluster, "token: t"), Trust::Untrusted);
        let access = new();
        check(&access, &lenient).unwrap();
        let message = refused(&access);
        assert!(message.contains(&format!(".cluster.{field}: ")), "{message}");
        assert_eq!(message, refused(&new()));
        check(&access, &lenient).unwrap();
        let mut trusted = access.clone();
        trusted.trust = Trust::Trusted;
        check(&trusted, &strict).unwrap();
    }

    let access = KubeconfigAccess::new(&plain, Trust::Trusted);
    check(&access, &strict).unwrap();
    let mut other = access.clone();
    other.context = Some("d".into());
    let missing =
        "contexts[name=\"d\"]: context \"d\" is not defined (there are \"c\"); define it or correct the name";
    assert_eq!(refused(&other), missing);
    assert_eq!(refused(&access.clone().context("d")), missing);
    let mut other = access.clone();
    other.yaml = kubeconfig("", "token: t").into_bytes().into();
    assert_eq!(
        refused(&other),
        "clusters[name=\"k\"].cluster.server: is missing; write the address of the API server, https://host:port"
    );
    check(&access, &strict).unwrap();
}
