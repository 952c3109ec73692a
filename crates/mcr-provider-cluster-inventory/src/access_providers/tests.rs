use super::*;

fn read(provider: &str) -> Result<AccessProviders, AccessProvidersError> {
    AccessProviders::from_json(format!("{{\"providers\": [{provider}]}}"))
}

const EXEC: &str = r#""execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/x"}"#;

#[test]
fn a_provider_file_is_read_in_its_order_and_with_its_policies() {
    let file = r#"{"providers": [
        {"name": "a", "unknown": 1, "profileSourcedCLIArgsPolicy": "Append", "profileSourcedEnvVarsPolicy": "Replace",
         "mcr.dev/profileSourcedCLIArgs": [["--tenant", "*"]], "mcr.dev/profileSourcedEnvVars": ["TENANT"],
         "execConfig": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "a", "args": ["1", "2"],
                        "env": [{"name": "A", "value": "1"}], "installHint": "get it", "provideClusterInfo": true,
                        "interactiveMode": "Always"}},
        {"name": "b", "profileSourcedCLIArgsPolicy": "Ignore", "profileSourcedEnvVarsPolicy": "AppendIfNotExists",
         "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/b", "args": null, "env": null}}
    ]}"#;
    let a = AccessProviderConfig::new("a", "a")
        .api_version(V1BETA1)
        .args(["1", "2"])
        .env("A", "1")
        .install_hint("get it")
        .provide_cluster_info(true)
        .args_policy(ArgsPolicy::Append)
        .env_policy(EnvPolicy::Replace)
        .profile_args(["--tenant", "*"])
        .profile_env(["TENANT"]);
    let b = AccessProviderConfig::new("b", "/b").env_policy(EnvPolicy::AppendIfNotExists);
    let read = AccessProviders::from_json(file).unwrap();
    assert_eq!(read, AccessProviders::new([a, b]).unwrap());
    let own: Vec<String> = ["1", "2"].map(Into::into).into();
    let a = AllowedPlugin::new("a")
        .env_value("A", "1")
        .cluster_info(true)
        .args_after(&own, [""; 0])
        .env(["TENANT"])
        .args_after(&own, ["--tenant", "*"]);
    let b = AllowedPlugin::new("/b").args([""; 0]);
    assert_eq!(read.plugin_policy(), CredentialPluginPolicy::allowlist([a, b]));
    for empty in ["{}", r#"{"providers": []}"#, r#"{"providers": null}"#] {
        assert_eq!(
            AccessProviders::from_json(empty),
            Ok(AccessProviders::default()),
            "{empty}"
        );
    }
}

/// The fleet has one policy for all hubs, and a tenant of one hub must not get credentials from another one.
#[test]
fn services_of_two_hubs_under_one_name_are_two_also_in_one_policy() {
    use mcr_core::{AccessPolicy, KubeconfigAccess, Trust};

    let of_hub = || {
        let service = PluginService::new(|_| async { Ok(Vec::new()) });
        let reader = AccessProviderConfig::new("kubeconfig-secretreader", "").service(service);
        AccessProviders::new([reader.provide_cluster_info(true)]).unwrap()
    };
    let socket = AccessProviderConfig::new("kubeconfig-secretreader", "unix:///run/p.sock");
    let hubs = [of_hub(), of_hub(), AccessProviders::new([socket]).unwrap()];
    let policy_of = |hubs: &[&AccessProviders]| {
        let entries = hubs.iter().flat_map(|hub| hub.0.iter());
        let entries = entries.map(AccessProviderConfig::allowed);
        AccessPolicy::default().credential_plugins(CredentialPluginPolicy::allowlist(entries))
    };
    for hub in &hubs {
        let config = &hub.0[0];
        let yaml = format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}],
             clusters: [{{name: k, cluster: {{server: 'https://192.0.2.1'}}}}], users: [{{name: u, user: {{exec: {{
             apiVersion: {V1}, command: '{}', interactiveMode: Never, provideClusterInfo: {}}}}}}}]}}",
            config.command, config.provide_cluster_info
        );
        let access = KubeconfigAccess::new(yaml, Trust::Untrusted).parse().unwrap();
        let source = |policy: AccessPolicy| policy.admit(&access).map(|admitted| admitted.fingerprint());
        let alone = source(policy_of(&[hub])).unwrap();
        let [a, b, c] = &hubs;
        for order in [[a, b, c], [c, b, a]] {
            assert_eq!(
                source(policy_of(&order)).unwrap(),
                alone,
                "the service of its own hub"
            );
        }
        let others: Vec<_> = hubs.iter().filter(|other| *other != hub).collect();
        assert!(source(policy_of(&others)).is_err());
    }
}

#[test]
fn a_wrong_provider_file_is_explained_and_none_of_its_values_is_shown() {
    use AccessProvidersError as E;
    let named = |more: &str| read(&format!("{{\"name\": \"a\", {more}}}")).unwrap_err();
    assert_eq!(named("\"x\": 1"), E::NoCommand("a".into()));
    assert_eq!(named("\"execConfig\": null"), E::NoCommand("a".into()));
    let no_command = r#""execConfig": {"apiVersion": "client.authentication.k8s.io/v1"}"#;
    assert_eq!(named(no_command), E::NoCommand("a".into()));
    let v2 = r#""execConfig": {"apiVersion": "v2", "command": "x"}"#;
    assert_eq!(named(v2), E::ApiVersion("a".into()));
    let args = format!(r#"{EXEC}, "profileSourcedCLIArgsPolicy": "Replace""#);
    assert_eq!(named(&args), E::ArgsPolicy("a".into()));
    let env = format!(r#"{EXEC}, "profileSourcedEnvVarsPolicy": "Append""#);
    assert_eq!(named(&env), E::EnvPolicy("a".into()));
    assert_eq!(read(&format!("{{{EXEC}}}")).unwrap_err(), E::NoName(0));
    let twice = format!(r#"{{"name": "a", {EXEC}}}, {{"name": "a", {EXEC}}}"#);
    assert_eq!(read(&twice).unwrap_err(), E::Twice("a".into()));
    let cut = AccessProviders::from_json(r#"{"providers": [{"name": "a", "execConfig": {"args": ["SECRET"#);
    assert!(!cut.unwrap_err().to_string().contains("SECRET"));
    assert!(matches!(
        AccessProviders::from_json(r#"{"providers": {"SECRET": 1}}"#),
        Err(E::Json(1, _))
    ));
    assert!(matches!(
        AccessProviders::from_file("/nowhere.json"),
        Err(E::Read(..))
    ));
    let secret = AccessProviderConfig::new("a", "b")
        .args(["SECRET"])
        .env("A", "SECRET");
    assert!(!format!("{secret:?}").contains("SECRET"));
}

#[test]
fn a_half_written_provider_file_is_refused_and_none_of_its_values_is_shown() {
    let file = format!(
        r#"{{"providers": [{{"name": "a", {}, "args": ["SESAME"], "env": [{{"name": "A", "value": "SESAME"}}]}}}}]}}"#,
        EXEC.trim_end_matches('}')
    );
    assert_eq!(AccessProviders::from_json(&file).unwrap().0[0].args, ["SESAME"]);
    for end in 0..file.len() {
        let error = AccessProviders::from_json(&file[..end]).unwrap_err();
        assert!(matches!(error, AccessProvidersError::Json(..)), "{end}");
        assert!(!error.to_string().contains("SESAME"), "{error}");
    }
    let deep = format!("{{\"providers\": {}{}}}", "[".repeat(9_999), "]".repeat(9_999));
    for wrong in ["\u{feff}{}", "providers: []", "null", "8", "\0", "{} {}", &deep] {
        let error = AccessProviders::from_json(wrong).unwrap_err();
        assert!(matches!(error, AccessProvidersError::Json(..)), "{wrong:.20}");
    }
    let folder = AccessProviders::from_file(std::env::temp_dir()).unwrap_err();
    assert!(matches!(folder, AccessProvidersError::Read(..)), "{folder}");
}
