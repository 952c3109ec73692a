//! One access, judged by several policies.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{sync::Arc, time::Duration};

use mcr_access::{
    AccessPolicy, AddressPolicy, Credential, CredentialPluginPolicy, Endpoint, EndpointAccess,
    KubeconfigAccess, Refresh, StaticCredential, Trust,
};

fn parsed(cluster: &str, user: &str) -> EndpointAccess {
    let yaml = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    );
    KubeconfigAccess::new(yaml, Trust::Untrusted).parse().unwrap()
}

/// What comes of it, to compare.
fn outcome(
    policy: &AccessPolicy,
    access: &EndpointAccess,
) -> Result<impl PartialEq + std::fmt::Debug, String> {
    let admitted = policy.admit(access).map_err(|error| error.to_string())?;
    Ok(admitted.fingerprint())
}

#[tokio::test]
async fn a_service_answers_a_trusted_kubeconfig_that_names_its_command_too() {
    let service = mcr_access::PluginService::new(|_| async { Err("the service".into()) });
    let login = mcr_access::AllowedPlugin::new("/no/such/login").service(service);
    let listed = AccessPolicy::default().credential_plugins(CredentialPluginPolicy::allowlist([login]));
    for trust in [Trust::Trusted, Trust::Untrusted] {
        let mut access = parsed(
            "server: 'https://h'",
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: /no/such/login, interactiveMode: Never}",
        );
        access.trust = trust;
        let admitted = listed.admit(&access).unwrap();
        let error = admitted.credentials.credential(Refresh::First).await.unwrap_err();
        assert!(error.to_string().ends_with("failed: the service"), "{error}");
    }
}

#[test]
fn what_one_policy_admits_is_judged_by_the_next_as_if_there_had_been_no_other() {
    let exec =
        "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [a], interactiveMode: Never}";
    let sh = mcr_access::AllowedPlugin::new("/bin/sh").args(["*"]);
    let lenient = AccessPolicy::default()
        .addresses(AddressPolicy::any())
        .allow_insecure_tls(true)
        .allow_files_under("/fleet")
        .allow_proxy("http://h:1".parse().unwrap())
        .credential_plugins(CredentialPluginPolicy::AllowAll);
    let listed = lenient
        .clone()
        .credential_plugins(CredentialPluginPolicy::allowlist([sh]))
        .plugin_deadline(Duration::from_secs(3));
    let policies = [AccessPolicy::default(), lenient, listed];
    for (cluster, user, field) in [
        ("server: 'https://127.0.0.1:6443'", "token: t", "cluster.server"),
        (
            "server: 'https://h', insecure-skip-tls-verify: true",
            "token: t",
            "cluster.insecure-skip-tls-verify",
        ),
        (
            "server: 'https://h', proxy-url: 'http://h:1'",
            "token: t",
            "cluster.proxy-url",
        ),
        (
            "server: 'https://h', certificate-authority: /fleet/ca",
            "token: t",
            "cluster.certificate-authority",
        ),
        ("server: 'https://h'", "tokenFile: /fleet/t", "user.tokenFile"),
        ("server: 'https://h'", exec, "user.exec"),
        ("server: 'https://h'", &format!("token: t, {exec}"), "user.exec"),
    ] {
        let access = parsed(cluster, user);
        let refused = outcome(&policies[0], &access).unwrap_err();
        assert!(refused.contains(&format!("].{field}: ")), "{refused}");
        for first in &policies[1..] {
            let admitted = first.admit(&access).unwrap();
            assert!(
                policies
                    .iter()
                    .all(|next| outcome(next, &admitted) == outcome(next, &access)),
                "{cluster} {user}"
            );
        }
        let mut trusted = access.clone();
        trusted.trust = Trust::Trusted;
        assert!(policies[0].admit(&trusted).is_ok(), "{cluster} {user}");
    }
}

/// A kubeconfig with such a server is refused when it is parsed.
#[test]
fn a_number_as_the_host_is_refused_also_behind_a_proxy_that_is_allowed() {
    let proxy: http::Uri = "http://proxy:3128".parse().unwrap();
    let policy = AccessPolicy::default().allow_proxy(proxy.clone());
    for (host, is_fine) in [
        ("0xa9fea9fe", false),
        ("2852039166", false),
        ("169.254.43518", false),
        ("api", true),
    ] {
        let mut endpoint = Endpoint::new(format!("https://{host}").parse().unwrap());
        endpoint.proxy = Some(proxy.clone());
        let source = StaticCredential::new(Credential::anonymous());
        let mut access = EndpointAccess::new(endpoint, source);
        assert!(policy.admit(&access).is_ok(), "{host}: its writer is trusted");
        access.trust = Trust::Untrusted;
        let refused = policy.admit(&access).err().map(|error| error.to_string());
        let is_number = |text: String| text.contains("server: has a number as its host");
        assert_eq!(refused.map(is_number), (!is_fine).then_some(true), "{host}");
    }
}

#[test]
fn a_plugin_runs_under_the_command_and_the_deadline_of_the_policy_that_judges_last() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}";
    let access = parsed("server: 'https://h'", exec);
    let by = |policy: &AccessPolicy| policy.admit(&access).unwrap().fingerprint();
    let listed = |command: &str| {
        AccessPolicy::default().credential_plugins(CredentialPluginPolicy::allowlist([command]))
    };
    let slow = listed("sh").plugin_deadline(Duration::from_secs(1));
    assert_ne!(by(&listed("sh")), by(&slow));
    assert_eq!(by(&listed("sh")), access.fingerprint());
    if std::path::Path::new("/bin/sh").exists() {
        assert_ne!(by(&listed("sh")), by(&listed("/bin/sh")));
    }
    let mut own = access.clone();
    own.credentials = Arc::new(StaticCredential::new(Credential::anonymous()));
    let admitted = slow.admit(&own).unwrap().fingerprint();
    assert_eq!(admitted, own.fingerprint(), "what a program has put there stays");
}

#[test]
fn certificate_authorities_in_a_file_are_read_each_time_and_only_if_the_policy_admits_them() {
    let ca = || {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::default()
            .self_signed(&key)
            .unwrap()
            .pem()
    };
    let (one, two) = (ca(), ca());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca");
    let access = parsed(
        &format!("server: 'https://h', certificate-authority: '{}'", file.display()),
        "token: t",
    );
    let policy = AccessPolicy::default().allow_files_under(folder.path());
    let read = |policy: &AccessPolicy| {
        let admitted = policy.admit_with_files(&access);
        admitted.map(|admitted| admitted.endpoint.certificate_authority.clone().unwrap())
    };
    assert!(!access.is_inline() && parsed("server: 'https://h'", "token: t").is_inline());
    assert!(read(&policy).unwrap_err().to_string().contains("can't read"));
    std::fs::write(&file, &one).unwrap();
    assert_eq!(*read(&policy).unwrap(), *one.as_bytes());
    std::fs::write(&file, &two).unwrap();
    assert_eq!(*read(&policy).unwrap(), *two.as_bytes());
    std::fs::write(&file, "torn").unwrap();
    let mut trusted = access.clone();
    trusted.trust = Trust::Trusted;
    let error = trusted.check_files().unwrap_err().to_string();
    assert!(error.contains("/ca\", which holds no PEM certificate"), "{error}");
    assert!(
        read(&policy)
            .unwrap_err()
            .to_string()
            .contains("holds no PEM certificate")
    );
    assert!(
        read(&AccessPolicy::default())
            .unwrap_err()
            .to_string()
            .contains("names a file")
    );
}

#[test]
fn accesses_that_a_policy_may_judge_differently_have_different_fingerprints() {
    let exec = |args: &str| {
        format!(
            "token: t, exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [{args}], interactiveMode: Never}}"
        )
    };
    // Neither plugin runs beside the token.
    let users = [
        "token: t",
        &exec("a"),
        &exec("b"),
        "token: t, tokenFile: /t",
        "token: t, as: root",
    ];
    let prints = users.map(|user| parsed("server: 'https://h'", user).fingerprint());
    for (at, print) in prints.iter().enumerate() {
        assert_eq!(
            prints.iter().position(|other| other == print),
            Some(at),
            "{}",
            users[at]
        );
    }
}

#[tokio::test]
async fn a_file_that_is_missing_gives_no_credential_for_a_new_connection_and_the_last_one_for_a_renewal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let source = |inline: &str| {
        let user = format!("{inline}tokenFile: {}", file.display());
        parsed("server: 'https://h'", &user).credentials
    };
    for (inline, serves) in [("", false), ("token: stale, ", true)] {
        let source = source(inline);
        assert!(source.credential(Refresh::First).await.is_err());
        assert_eq!(source.credential(Refresh::Expiring).await.is_ok(), serves);
        std::fs::write(&file, "t").unwrap();
        source.credential(Refresh::First).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(source.credential(Refresh::Expiring).await.is_ok());
        for why in [Refresh::First, Refresh::Unauthorized] {
            assert!(source.credential(why).await.is_err(), "{why:?}");
        }
    }
}
