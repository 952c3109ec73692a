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

#[test]
fn what_is_in_a_secret_is_kept_when_its_token_is_replaced() {
    let kubeconfig = "clusters: [{name: c, cluster: {server: 'https://pods:1', tls-server-name: k}}]\n\
                      users: [{name: u, user: {token: e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6aGVyZTpyb2JvdCIsImV4cCI6NjB9.c2ln}}]\n\
                      contexts: []\n";
    let secret = |text: &str| -> Secret {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "kind-a", "resourceVersion": "7"},
            "data": {KEY: base64(text.as_bytes())},
        }))
        .unwrap()
    };
    let rotated = |more: &[&str], secret: Option<&Secret>| {
        let args = args(&[&["--rotate"], more].concat());
        let mut plan = plan(&[])?;
        plan.rotate(&args, secret).map(|()| plan)
    };
    let found = secret(kubeconfig);
    let plan = rotated(&[], Some(&found)).unwrap();
    assert_eq!(plan.account_user(), "system:serviceaccount:here:robot");
    assert_eq!(
        (plan.server.as_str(), plan.server_here.as_str()),
        ("https://pods:1", "https://a:6443")
    );
    assert_eq!(plan.tls_server_name.as_deref(), Some("k"));
    // So that a concurrent write of another client is not overwritten.
    let patch = crate::secret::objects::fresh_token(&plan, "x");
    assert_eq!(
        patch,
        serde_json::json!({"metadata": {"resourceVersion": "7"}, "data": {KEY: "eA=="}})
    );
    assert_eq!(
        plan.old_token_expires(),
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(60))
    );
    assert!(error(rotated(&["-a", "other"], Some(&found))).contains("here/robot"));
    assert!(error(rotated(&["--remote-namespace", "other"], Some(&found))).contains("here/robot"));
    assert!(rotated(&["-a", "robot"], Some(&found)).is_ok());
    assert!(error(rotated(&[], None)).contains("there is no Secret default/kind-a"));
    // A kubeconfig that can't be read is replaced by the values of the flags.
    let plan = rotated(&[], Some(&secret("half: ["))).unwrap();
    assert_eq!(
        (plan.account.as_str(), plan.server.as_str()),
        (ACCOUNT, "https://a:6443")
    );
}
