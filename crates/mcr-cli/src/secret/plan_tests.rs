use clap::Parser;
use mcr_core::Trust;

use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    create: CreateArgs,
}

fn args(more: &[&str]) -> CreateArgs {
    Line::parse_from(["mcr", "--context", "kind-a"].iter().chain(more)).create
}

const AUTHORITY: &str = "certificate-authority-data: Y2E=";

fn access(cluster: &str) -> KubeconfigAccess {
    let yaml = format!(
        "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    KubeconfigAccess::new(yaml, Trust::Trusted)
}

fn plan(more: &[&str]) -> anyhow::Result<Plan> {
    let access = access(&format!("server: 'https://a:6443', {AUTHORITY}"));
    Plan::new(&args(more), "kind-a", "hub", &access)
}

fn error<T>(result: anyhow::Result<T>) -> String {
    match result {
        Ok(_) => panic!("it must be refused"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn the_defaults_are_those_of_gos_script() {
    let plan = plan(&[]).unwrap();
    assert_eq!(
        (plan.name.as_str(), plan.namespace.as_str()),
        ("kind-a", "default")
    );
    assert_eq!(plan.remote_namespace, "default");
    assert_eq!(plan.account, "multicluster-kubeconfig-provider");
    assert_eq!(plan.role_type, RoleType::Clusterrole);
    assert_eq!(plan.lifetime, Duration::from_secs(8760 * 3600));
    // The name of a ClusterRole is for the whole cluster, so that it says whose it is.
    assert_eq!(
        (plan.role.as_str(), plan.binding().as_str()),
        ("mcr-kind-a", "mcr-kind-a-binding")
    );
    assert_eq!(plan.authority, b"ca");
    assert_eq!(
        (plan.server.as_str(), plan.server_here.as_str()),
        ("https://a:6443", "https://a:6443")
    );
    assert!(plan.rules.is_some() && !plan.is_rotation());
    assert!(self::plan(&["--skip-create-rbac"]).unwrap().rules.is_none());
}

#[test]
fn a_name_that_no_secret_can_have_is_refused_with_one_that_it_can() {
    let named = |name: &str| error(plan(&["--name", name]));
    assert!(named("arn:aws:eks:eu-1:1234:cluster/Prod_EU").ends_with("for example --name prod-eu"));
    assert!(named("///").ends_with("--name eu-1"));
    assert!(error(plan(&["-n", "a.b"])).contains("--namespace"));
    assert!(error(plan(&["--remote-namespace", "A"])).contains("--remote-namespace"));
    assert!(error(plan(&["-a", "A"])).contains("--service-account"));
}

#[test]
fn a_cluster_that_would_get_the_token_without_proof_is_refused() {
    let of = |cluster: &str| error(Plan::new(&args(&[]), "kind-a", "hub", &access(cluster)));
    assert!(of("server: 'https://a'").contains("no certificate authority"));
    assert!(of("server: 'https://a', insecure-skip-tls-verify: true").contains("insecure-skip-tls-verify"));
    assert!(of(&format!("server: 'http://a', {AUTHORITY}")).contains("without TLS"));
    assert!(of(AUTHORITY).contains("no address"));
    assert!(error(plan(&["--server", "http://b"])).contains("https://host:port"));
    assert_eq!(
        plan(&["--server", "https://b:1/x/"]).unwrap().server,
        "https://b:1/x"
    );
}

fn secret(kubeconfig: &str) -> Secret {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "kind-a", "resourceVersion": "7", "annotations": {"mcr.dev/kubeconfig-server": "https://evil"}},
        "data": {KEY: base64(kubeconfig.as_bytes())},
    }))
    .unwrap()
}

/// The token claims to be of here/robot, and ends at 609.
fn forged(server: &str, authority: &str) -> Secret {
    secret(&format!(
        "current-context: x\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{server}', tls-server-name: evil, certificate-authority-data: {authority}}}}}]\n\
         users: [{{name: u, user: {{token: e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6aGVyZTpyb2JvdCIsImV4cCI6NjB9.c2ln}}}}]\n"
    ))
}

/// Whoever may write the Secret decides nothing with it. The account that gets a token is named by a flag, marked in the cluster or
/// recognized by it, and so is the address to which the token goes.
#[test]
fn no_forged_secret_decides_whose_token_is_requested_or_where_it_goes() {
    let secrets = [
        forged("https://a:6443", "Y2E="),
        forged("https://a:6443/", "ZXZpbA=="),
        forged("https://evil:6443", "Y2E="),
        secret("half: ["),
        secret(""),
    ];
    let account = |name: &str| ("ns".to_owned(), name.to_owned());
    let of = plan(&[]).unwrap();
    let bound = |name: &str, secret: &str, server: &str| {
        let binding = serde_json::json!({
            "metadata": {
                "labels": {"app.kubernetes.io/managed-by": "mcr"},
                "annotations": {"mcr.dev/kubeconfig-secret": secret, "mcr.dev/kubeconfig-server": server},
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": "ns", "name": name}],
        });
        crate::secret::objects::bound(&of, &serde_json::from_value(binding).unwrap())
    };
    let bindings = [
        bound("other", "team-b/kind-a", "https://evil"),
        bound("bound", "default/kind-a", ""),
        bound("bound", "default/kind-a", "https://pods"),
    ];
    let reviews = [None, Some(account("proven"))];
    let flags: [&[&str]; 4] = [
        &[],
        &["-a", "flag"],
        &["--server", "https://flag"],
        &["--remote-namespace", "ns"],
    ];
    let mut accepted = 0;
    for case in 0..secrets.len() * bindings.len() * reviews.len() * flags.len() {
        let (secret, case) = (&secrets[case % 5], case / 5);
        let (binding, case) = (&bindings[case % 3], case / 3);
        let (review, flags) = (&reviews[case % 2], &flags[case / 2]);
        let args = args(&[&["--rotate"], *flags].concat());
        let access = access(&format!("server: 'https://a:6443', {AUTHORITY}"));
        let mut plan = Plan::new(&args, "kind-a", "hub", &access).unwrap();
        plan.rotate(Some(secret)).unwrap();
        if plan.decide(&args, review.clone(), binding.clone()).is_err() {
            continue;
        }
        accepted += 1;
        let case = format!("{plan:?} {review:?} {binding:?} {flags:?}");
        match (&*plan.account, review) {
            ("flag", None) => assert_eq!(flags[0], "-a", "{case}"),
            ("proven", Some(_)) | ("bound", None) => assert_eq!(plan.remote_namespace, "ns", "{case}"),
            _ => panic!("{case}"),
        }
        match &*plan.server {
            "https://flag" => assert_eq!(flags[0], "--server", "{case}"),
            "https://pods" => assert!(binding.is_some(), "{case}"),
            server => assert_eq!(server, "https://a:6443", "{case}"),
        }
        let kept = (plan.tls_server_name.as_deref(), &*plan.authority);
        assert_eq!(kept, (None, b"ca".as_slice()), "{case}");
    }
    assert!(accepted > 20, "{accepted}");
}

#[test]
fn a_repetition_keeps_labels_and_overwrites_no_other_cluster() {
    let (none, label, server): (&[&str], _, _) = (&[], &["--label", "tier=2"], &["--server", "https://b"]);
    let (ours, pods) = (forged("https://a:6443/", "Y2E="), forged("https://pods", "Y2E="));
    let other = forged("https://a:6443", "ZXZpbA==");
    for (found, flags, result) in [
        (&ours, none, "1"),
        (&ours, label, "2"),
        (&secret("half: ["), none, "1"),
        (&pods, none, "another address"),
        (&pods, server, "1"),
        (&other, server, "another certificate authority"),
    ] {
        let (mut found, mut plan) = (found.clone(), plan(flags).unwrap());
        found.metadata.labels = Some([("tier".to_owned(), "1".to_owned())].into());
        match plan.repeat(&args(flags), &found) {
            Ok(()) => {
                let labels = &crate::secret::objects::secret(&plan, "")["metadata"]["labels"];
                assert_eq!(
                    *labels,
                    serde_json::json!({"tier": result, crate::secret::objects::LABEL: "true"})
                );
            }
            Err(error) => assert!(error.to_string().contains(result), "{error}"),
        }
    }
}

#[test]
fn a_rotation_asks_the_cluster_only_about_its_own_token_and_reports_what_to_name() {
    let rotated = |secret: Option<&Secret>| {
        let mut plan = plan(&[])?;
        plan.rotate(secret).map(|()| plan)
    };
    assert!(error(rotated(None)).contains("there is no Secret default/kind-a"));
    // The token of another cluster is not given to this one.
    let foreign = rotated(Some(&forged("https://a:6443", "ZXZpbA=="))).unwrap();
    assert!(foreign.token_to_review().is_none());
    let mut plan = rotated(Some(&forged("https://pods:1", "Y2E="))).unwrap();
    assert!(plan.token_to_review().is_some());
    assert_eq!(
        plan.old_token_expires(),
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60))
    );
    // So that a concurrent write of another client is not overwritten.
    let patch = serde_json::json!({"metadata": {"resourceVersion": "7"}, "data": {KEY: "eA=="}});
    assert_eq!(crate::secret::objects::fresh_token(&plan, "x"), patch);
    let unproven = error(plan.decide(&args(&["--rotate"]), None, None));
    assert!(unproven.contains("--service-account"), "{unproven}");
    let proven = || Some(("here".to_owned(), "robot".to_owned()));
    let other = error(plan.decide(&args(&["--rotate"]), proven(), None));
    assert!(other.contains("--server"), "{other}");
    let flags = ["--rotate", "-a", "other", "--server", "https://pods:1"];
    let mut plan = self::plan(&flags).unwrap();
    assert!(error(plan.decide(&args(&flags), proven(), None)).contains("here/robot"));
}

#[test]
fn a_proxy_is_used_here_and_its_absence_in_the_secret_is_reported() {
    let through = access(&format!(
        "server: 'https://a:6443', proxy-url: 'http://u:pw@p:3128', tls-server-name: k, {AUTHORITY}"
    ));
    let plan = Plan::new(&args(&[]), "kind-a", "hub", &through).unwrap();
    let written = crate::secret::document::kubeconfig(&plan, "t", false).unwrap();
    assert!(!written.contains("proxy-url") && written.contains("tls-server-name: k"));
    let here = crate::secret::document::kubeconfig(&plan, "t", true).unwrap();
    assert!(here.contains("u:pw@p:3128"));
    let note = plan.left_out().unwrap();
    assert!(note.contains("proxy-url") && !note.contains("pw"), "{note}");
    assert!(!format!("{plan:?}").contains("pw"));
    assert_eq!(self::plan(&[]).unwrap().left_out(), None);
}
