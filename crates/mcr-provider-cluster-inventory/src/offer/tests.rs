use std::{collections::HashMap, fmt::Debug};

use mcr_core::{AccessPolicy, KubeconfigAccess, Trust};
use proptest::prelude::*;

use super::*;
use crate::v1alpha2::NamedExtension;

fn provider(args_policy: ArgsPolicy, env_policy: EnvPolicy) -> AccessProviderConfig {
    AccessProviderConfig::new("p", "/plugins/p")
        .args(["get"])
        .env("OWN", "own")
        .env("BOTH", "own")
        .args_policy(args_policy)
        .env_policy(env_policy)
        .profile_args(["--tenant", "*", "7", "true"])
        .profile_args(["*"])
        .profile_env(["OWN", "BOTH", "A", "Z", "LD_PRELOAD"])
}

fn access(name: &str, extensions: &[(&str, Value)]) -> AccessProvider {
    AccessProvider {
        name: name.into(),
        cluster: Cluster {
            server: format!("https://{name}.example"),
            extensions: extensions
                .iter()
                .map(|(name, extension)| NamedExtension {
                    name: (*name).into(),
                    extension: extension.clone(),
                })
                .collect(),
            ..Cluster::default()
        },
    }
}

fn of(offered: &[AccessProvider], providers: &[AccessProviderConfig]) -> Offer {
    let providers = AccessProviders::new(providers.iter().cloned()).unwrap();
    Offer::of(offered, &providers, |_| false)
}

fn text(offer: &Offer) -> Value {
    match offer {
        Offer::Kubeconfig(offered) => serde_json::from_slice(&offered.text().unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn why(offer: &Offer) -> &str {
    match offer {
        Offer::Nothing(why) | Offer::Bad(why) => why,
        other => panic!("{other:?}"),
    }
}

fn exec(offer: &Offer) -> Value {
    text(offer)["users"][0]["user"]["exec"].clone()
}

#[test]
fn the_first_provider_of_the_configuration_that_the_profile_names_is_used() {
    let config = |name: &str| AccessProviderConfig::new(name, format!("/plugins/{name}"));
    let offered = [access("c", &[]), access("b", &[]), access("unknown", &[])];
    let used = of(&offered, &[config("a"), config("b"), config("c")]);
    assert_eq!(exec(&used)["command"], "/plugins/b");
    assert_eq!(
        text(&used)["clusters"][0]["cluster"]["server"],
        "https://b.example"
    );
    assert_eq!(
        exec(&of(&offered, &[config("c"), config("b")]))["command"],
        "/plugins/c"
    );
    assert!(matches!(of(&offered, &[config("a")]), Offer::Nothing(_)));
    assert_eq!(
        why(&of(&offered, &[config("a")])),
        "it has the access providers \"c\", \"b\", \"unknown\", and this program knows \"a\"; add one of them to the \
         provider file"
    );
    assert!(why(&of(&offered, &[])).contains("this program knows no access provider"));
    assert!(why(&of(&[], &[config("a")])).starts_with("it has no access providers"));
    let long = why(&of(&[access(&"x".repeat(100_000), &[])], &[config("a")])).to_owned();
    assert!(
        long.len() < 300 && long.contains("xx…\", and this program"),
        "{long}"
    );
    let many: Vec<_> = (0..64).map(|n| access(&format!("x{n}"), &[])).collect();
    assert!(why(&of(&many, &[config("a")])).len() < 200);
}

#[test]
fn arguments_of_a_profile_follow_the_policy() {
    let args = |policy, extension: Value| {
        let config = provider(policy, EnvPolicy::Ignore);
        let offer = of(&[access("p", &[(ARGS_EXTENSION, extension)])], &[config]);
        match &offer {
            Offer::Kubeconfig(_) => exec(&offer)["args"].to_string(),
            other => why(other).to_owned(),
        }
    };
    let more = json!(["--tenant", "A", 7, true]);
    assert_eq!(args(ArgsPolicy::Ignore, more.clone()), r#"["get"]"#);
    assert_eq!(
        args(ArgsPolicy::Append, more),
        r#"["get","--tenant","A","7","true"]"#
    );
    assert_eq!(args(ArgsPolicy::Append, json!([])), r#"["get"]"#);
    for foreign in [
        json!(["--config=/tmp/x"]),
        json!(["a", "b"]),
        json!([""]),
        json!(["--tenant", "-x", 7, true]),
    ] {
        let why = args(ArgsPolicy::Append, foreign);
        assert!(
            why.contains("arguments that a ClusterProfile may not add"),
            "{why}"
        );
    }
    for wrong in [json!({"a": 1}), json!("x"), json!([["x"]]), json!([null])] {
        assert_eq!(args(ArgsPolicy::Ignore, wrong.clone()), r#"["get"]"#, "{wrong}");
        let why = args(ArgsPolicy::Append, wrong);
        assert!(why.contains("additional-args is not a list of strings"), "{why}");
    }
}

#[test]
fn the_environment_of_a_profile_follows_the_policy() {
    let env = |policy, extension: Value| {
        let config = provider(ArgsPolicy::Ignore, policy);
        let offer = of(&[access("p", &[(ENV_EXTENSION, extension)])], &[config]);
        match &offer {
            Offer::Kubeconfig(_) => {
                let env = exec(&offer)["env"].as_array().unwrap().clone();
                let pair = |env: &Value| {
                    format!(
                        "{}={}",
                        env["name"].as_str().unwrap(),
                        env["value"].as_str().unwrap()
                    )
                };
                env.iter().map(pair).collect::<Vec<_>>().join(" ")
            }
            other => why(other).to_owned(),
        }
    };
    let more = json!({"Z": "z", "BOTH": "theirs", "A": 1});
    assert_eq!(env(EnvPolicy::Ignore, more.clone()), "OWN=own BOTH=own");
    assert_eq!(
        env(EnvPolicy::AppendIfNotExists, more.clone()),
        "OWN=own BOTH=own A=1 Z=z"
    );
    assert_eq!(env(EnvPolicy::Replace, more), "OWN=own BOTH=theirs A=1 Z=z");
    for policy in [EnvPolicy::AppendIfNotExists, EnvPolicy::Replace] {
        for wrong in [json!(["A=1"]), json!({"A": null}), json!({"A": {}})] {
            let why = env(policy, wrong);
            assert!(
                why.contains("additional-envs is not an object of strings"),
                "{why}"
            );
        }
        for name in [
            "PATH",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "BASH_FUNC_x%%",
            "NODE_OPTIONS",
            "a",
        ] {
            let why = env(policy, json!({name: "/tmp"}));
            assert!(
                why.contains(&format!("sets {name:?}, which a ClusterProfile may not set")),
                "{why}"
            );
        }
    }
}

#[test]
fn the_plugin_gets_the_cluster_and_its_configuration_only_with_provide_cluster_info() {
    let offered = [access("p", &[(EXEC_EXTENSION, json!({"clusterName": "x"}))])];
    let config = provider(ArgsPolicy::Ignore, EnvPolicy::Ignore);
    let without = of(&offered, std::slice::from_ref(&config));
    assert_eq!(exec(&without)["provideClusterInfo"], false);
    assert!(!text(&without).to_string().contains("clusterName"));
    let with = of(
        &offered,
        &[config.provide_cluster_info(true).install_hint("get it")],
    );
    assert_eq!(exec(&with)["provideClusterInfo"], true);
    assert_eq!(exec(&with)["interactiveMode"], "Never");
    assert_eq!(exec(&with)["installHint"], "get it");
    assert_eq!(
        text(&with)["clusters"][0]["cluster"]["extensions"],
        json!([{"name": EXEC_EXTENSION, "extension": {"clusterName": "x"}}])
    );
}

#[test]
fn everything_of_the_cluster_is_in_the_kubeconfig() {
    let mut offered = access("p", &[]);
    offered.cluster.tls_server_name = "name".into();
    offered.cluster.certificate_authority_data = "Q0E=".into();
    offered.cluster.proxy_url = "http://proxy:1".into();
    offered.cluster.disable_compression = true;
    offered.cluster.insecure_skip_tls_verify = true;
    let config = provider(ArgsPolicy::Ignore, EnvPolicy::Ignore);
    let offer = of(std::slice::from_ref(&offered), std::slice::from_ref(&config));
    assert_eq!(
        text(&offer)["clusters"][0]["cluster"],
        json!({
            "server": "https://p.example", "tls-server-name": "name", "certificate-authority-data": "Q0E=",
            "proxy-url": "http://proxy:1", "disable-compression": true, "insecure-skip-tls-verify": true,
        })
    );
    let providers = AccessProviders::new([config]).unwrap();
    let file = Offer::of(&[offered], &providers, |name| name == "p");
    assert!(
        matches!(&file, Offer::Bad(why) if why.contains("names a file")),
        "{file:?}"
    );
}

#[test]
fn no_argument_and_no_value_is_shown() {
    let config = provider(ArgsPolicy::Append, EnvPolicy::Replace);
    let offer = of(
        &[access(
            "p",
            &[
                (ARGS_EXTENSION, json!(["SECRET"])),
                (ENV_EXTENSION, json!({"A": "SECRET"})),
            ],
        )],
        &[config],
    );
    assert!(text(&offer).to_string().contains("SECRET"));
    assert!(!format!("{offer:?}").contains("SECRET"));
}

/// A profile with some arguments and variables, of one of three plugins.
fn profile() -> impl Strategy<Value = AccessProvider> {
    let word = prop_oneof![3 => "[a-e]{1,2}", 1 => any::<String>()];
    let args = prop::option::of(prop::collection::vec(word.clone(), 0..2));
    let name = prop_oneof![9 => "OWN|BOTH|A|Z", 1 => "PATH|LD_PRELOAD|BASH_ENV|BASH_FUNC_x%%|[A-E]{2}"];
    let env = prop::option::of(prop::collection::btree_map(name, word, 0..4));
    (0..3_usize, args, env).prop_map(|(which, args, env)| {
        let args = args.map(|args| (ARGS_EXTENSION, json!(args)));
        let env = env.map(|env| (ENV_EXTENSION, json!(env)));
        let extensions: Vec<_> = [args, env].into_iter().flatten().collect();
        access(["p", "q", "r"][which], &extensions)
    })
}

fn plugins() -> AccessProviders {
    let policies = [
        ("p", ArgsPolicy::Append, EnvPolicy::Replace),
        ("q", ArgsPolicy::Append, EnvPolicy::AppendIfNotExists),
        ("r", ArgsPolicy::Ignore, EnvPolicy::Ignore),
    ];
    let config = |(name, args_policy, env_policy): (&str, _, _)| {
        let mut config = provider(args_policy, env_policy);
        config.name = name.into();
        config
    };
    AccessProviders::new(policies.map(config)).unwrap()
}

fn same<T: PartialEq + Debug>(a: T, b: T) -> Result<(), TestCaseError> {
    prop_assert_eq!(a, b);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// What a plugin gets depends on the configuration and its own profile, whatever other profiles were read before, and how
    /// often.
    #[test]
    fn nothing_of_a_profile_reaches_another_over_any_history(
        profiles in prop::collection::vec(profile(), 1..5),
        history in prop::collection::vec(any::<prop::sample::Index>(), 1..30),
    ) {
        let shared = plugins();
        let mut seen: HashMap<usize, Offer> = HashMap::new();
        for which in history {
            let which = which.index(profiles.len());
            let offer = Offer::of(&profiles[which..=which], &shared, |_| false);
            // As if it were the only profile there ever was.
            same(&offer, &Offer::of(&profiles[which..=which], &plugins(), |_| false))?;
            let before = seen.entry(which).or_insert_with(|| offer.clone());
            same(&offer, before)?;
            prop_assert_eq!(&shared, &plugins());
            let Offer::Kubeconfig(offered) = &offer else { continue };
            // What is offered is what the policy of these plugins allows, and the program is the operator's.
            let policy = AccessPolicy::default().credential_plugins(shared.plugin_policy());
            let parsed = KubeconfigAccess::new(offered.text().unwrap(), Trust::Untrusted).parse();
            same(parsed.and_then(|parsed| policy.admit(&parsed)).map(drop), Ok(()))?;
            prop_assert_eq!(&exec(&offer)["command"], "/plugins/p");
            // Each argument and variable is of the configuration or of this profile.
            let own = |name: &str| {
                let extension = profiles[which].cluster.extensions.iter().find(|it| it.name == name);
                extension.map_or(Value::Null, |it| it.extension.clone())
            };
            let (args, env) = (own(ARGS_EXTENSION), own(ENV_EXTENSION));
            for arg in exec(&offer)["args"].as_array().unwrap() {
                let known = arg == "get" || args.as_array().is_some_and(|args| args.contains(arg));
                prop_assert!(known, "{}", arg);
            }
            for variable in exec(&offer)["env"].as_array().unwrap() {
                let name = variable["name"].as_str().unwrap();
                prop_assert!(["OWN", "BOTH", "A", "Z"].contains(&name), "{}", name);
                let of_profile = env.get(name) == Some(&variable["value"]);
                prop_assert!(of_profile || ((name == "OWN" || name == "BOTH") && variable["value"] == "own"), "{}", variable);
            }
        }
    }

    /// Whatever a profile writes, it ends up where it belongs, or is refused.
    #[test]
    fn hostile_texts_change_nothing_else(
        server in any::<String>(), name in any::<String>(), arg in "[^-].*", value in any::<String>(),
    ) {
        let mut offered = access("p", &[(ARGS_EXTENSION, json!([arg])), (EXEC_EXTENSION, json!({"x": value}))]);
        offered.cluster.server = server;
        offered.cluster.tls_server_name = name;
        let config = provider(ArgsPolicy::Append, EnvPolicy::Replace).provide_cluster_info(true);
        let offer = of(&[offered], &[config]);
        prop_assert_eq!(&exec(&offer)["command"], "/plugins/p");
        let Offer::Kubeconfig(offered) = &offer else { panic!() };
        let _ = KubeconfigAccess::new(offered.text().unwrap(), Trust::Untrusted).parse();
    }
}
