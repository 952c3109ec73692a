//! `mcr kubeconfig-secret create`.

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    core::v1::{ConfigMap, Secret, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use mcr_core::{AccessPolicy, AddressPolicy, Fleet};
use mcr_provider_kubeconfig::KubeconfigProvider;
use mcr_testkit::{
    control_plane::{ControlPlane, Etcd, policy_rule},
    faults::{FaultProxy, Upstream},
    waiting::{Background, OrFail, eventually},
};
use serde_json::json;

use crate::harness::{LABEL, User, kubeconfig_in, namespace, planes, put, secrets, token_in};

/// The limit for any wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// The token of a Secret, used at a cluster.
async fn client(plane: &ControlPlane, secret: &Secret) -> Client {
    let mut config = kube::Config::new(plane.url().parse().unwrap());
    let ca = mcr_testkit::control_plane::ControlPlane::ca_pem(plane);
    config.root_cert = Some(pem(&ca));
    config.auth_info.token = Some(token_in(secret).into());
    Client::try_from(config).or_fail()
}

fn pem(text: &str) -> Vec<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::pem_slice_iter(text.as_bytes())
        .map(|der| der.unwrap().to_vec())
        .collect()
}

async fn who(client: &Client) -> Result<String, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    Ok(review.status.unwrap().user_info.unwrap().username.unwrap())
}

/// The requests to a cluster that are no reads.
async fn writes(plane: &ControlPlane) -> Vec<String> {
    let log = plane.audit().await.or_fail();
    let of = log.events().filter(|event| {
        event.is_start()
            && matches!(&*event.verb, "create" | "patch" | "update" | "delete")
            && !event.uri.contains("dryRun")
    });
    let of = of.filter(|event| !event.uri.contains("review") && !event.user.starts_with("system:"));
    of.map(|event| format!("{} {}", event.verb, event.uri)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_handed_over_and_its_token_rotated() {
    let etcd = Etcd::start().await.or_fail();
    let [hub, member] = planes(&etcd, ["hub", "eu-1"]).await;
    namespace(&hub, "fleet").await;
    let user = User::with([hub.kubeconfig(), member.kubeconfig()]);
    let create = "kubeconfig-secret create --context eu-1 -n fleet";

    // A dry run writes nothing and shows no token, and shows all that would be written.
    let before = (writes(&hub).await, writes(&member).await);
    let dry = user.run(format!("{create} --dry-run")).await.ended(0);
    for part in [
        "kind: ServiceAccount",
        "kind: ClusterRole\n",
        "kind: ClusterRoleBinding",
        "kind: Secret",
        "a dry run asks for no token",
        "to the hub, context hub",
    ] {
        assert!(dry.out.contains(part), "{part}: {}", dry.out);
    }
    let dry = user
        .run(format!("{create} --dry-run -o json --skip-create-rbac"))
        .await;
    let dry = dry.ended(0).json();
    assert_eq!(dry["cluster"]["objects"].as_array().unwrap().len(), 1);
    assert_eq!(dry["hub"]["objects"][0]["metadata"]["labels"][LABEL], "true");
    assert_eq!(before, (writes(&hub).await, writes(&member).await));

    // The member has no such namespace: reported before anything is written.
    let missing = user.run(create).await.ended(3);
    missing.reports("kubectl --context eu-1 create namespace fleet");
    assert!(secrets(&hub, "fleet").get_opt("eu-1").await.or_fail().is_none());
    namespace(&member, "fleet").await;

    let text_of = user.run(format!("{create} --label region=eu")).await.ended(0);
    let text_of = text_of
        .prints("clusterrole/mcr-eu-1 applied to eu-1")
        .prints("secret/eu-1 in namespace fleet applied to hub");
    let text_of = text_of
        .reports("warning: controllers will not use this kubeconfig")
        .reports("loopback")
        .reports("--server");
    let first = secrets(&hub, "fleet").get("eu-1").await.or_fail();
    assert_eq!(first.labels()["region"], "eu");
    assert_eq!(first.type_.as_deref(), Some("Opaque"));
    assert!(!format!("{}{}", text_of.out, text_of.err).contains(&token_in(&first)));
    let config = kubeconfig_in(&first);
    assert_eq!(config["clusters"][0]["cluster"]["server"], member.url());
    assert_eq!(config["users"][0]["name"], "multicluster-kubeconfig-provider");
    let sa = "system:serviceaccount:fleet:multicluster-kubeconfig-provider";
    assert_eq!(who(&client(&member, &first).await).await.or_fail(), sa);

    // The provider takes it, untrusted as it is, and has those rights and no others.
    engages(&hub).await;

    // A Secret of that name elsewhere takes neither its role nor, by a rotation, a token of its account.
    let before = writes(&member).await;
    let other = "kubeconfig-secret create --context eu-1 --remote-namespace fleet";
    let text_of = user.run(format!("{other} -a other")).await.ended(3);
    text_of
        .reports("was made for the Secret fleet/eu-1")
        .reports("choose another --name");
    put(&hub, "default", "eu-1", "x").await;
    let text_of = user.run(format!("{other} --rotate")).await.ended(3);
    text_of.reports("nothing in eu-1 proves");
    assert_eq!(writes(&member).await, before);

    // Once more: nothing is different but the token.
    let again = format!("{create} --token-lifetime 10m");
    let text_of = user.run(&again).await.ended(0);
    assert!(!text_of.err.contains("still grants"), "{}", text_of.err);
    let narrower = user.run(format!("{again} --role-type role")).await.ended(0);
    narrower.reports("clusterrolebinding/mcr-eu-1-binding in eu-1, of an earlier --role-type, still grants");
    let again = secrets(&hub, "fleet").get("eu-1").await.or_fail();
    assert_eq!(again.labels(), first.labels());
    assert_ne!(token_in(&again), token_in(&first));

    // Others add to it. A fresh token leaves that alone, and is there only if it works.
    let more = json!({"metadata": {"labels": {"tier": "1"}, "annotations": {"mcr.dev/note": "x"}}, "stringData": {"other": "kept"}});
    secrets(&hub, "fleet")
        .patch("eu-1", &PatchParams::default(), &Patch::Merge(more))
        .await
        .or_fail();
    let before = writes(&member).await.len();
    let version = async || {
        secrets(&hub, "fleet")
            .get("eu-1")
            .await
            .or_fail()
            .resource_version()
    };
    let there = version().await;
    let rotate = format!("{create} --rotate");
    let dry = user.run(format!("{rotate} --dry-run")).await.ended(0);
    dry.prints("a dry run asks for no token");
    assert_eq!(version().await, there);
    let rotated = user
        .run(&rotate)
        .await
        .ended(0)
        .prints("has a fresh token in hub");
    rotated
        .reports("the old token stays valid for")
        .reports("the token works");
    let last = secrets(&hub, "fleet").get("eu-1").await.or_fail();
    assert_ne!(token_in(&last), token_in(&again));
    assert_eq!(last.labels()["tier"], "1");
    assert_eq!(last.annotations()["mcr.dev/note"], "x");
    assert_eq!(last.data.as_ref().unwrap()["other"].0, b"kept");
    assert_eq!(last.labels()["region"], "eu");
    for secret in [&again, &last] {
        assert_eq!(who(&client(&member, secret).await).await.or_fail(), sa);
    }
    // The cluster was asked for a token, and for nothing else.
    let written = writes(&member).await.split_off(before);
    assert!(
        written.len() == 1 && written[0].contains("/serviceaccounts/multicluster-kubeconfig-provider/token"),
        "{written:?}"
    );

    forged_secrets_get_no_other_token(&hub, &member, &user, &last).await;

    // Without its account there is nothing to rotate, and the Secret stays.
    let accounts: Api<ServiceAccount> = Api::namespaced(member.client(), "fleet");
    accounts
        .delete("multicluster-kubeconfig-provider", &DeleteParams::default())
        .await
        .or_fail();
    let missing = "there is no ServiceAccount fleet/multicluster-kubeconfig-provider";
    user.run(&rotate).await.ended(3).reports(missing);
    let kept = secrets(&hub, "fleet").get("eu-1").await.or_fail();
    assert_eq!(token_in(&kept), token_in(&last));
    let other = user.run(format!("{rotate} --name eu-2")).await.ended(3);
    other.reports("there is no Secret fleet/eu-2");
}

/// Whoever may write the Secret chooses neither whose token is requested nor where it goes.
async fn forged_secrets_get_no_other_token(
    hub: &ControlPlane,
    member: &ControlPlane,
    user: &User,
    good: &Secret,
) {
    let rotate = "kubeconfig-secret create -c eu-1 -n fleet --rotate";
    let before = writes(member).await.len();
    let mut forged = kubeconfig_in(good);
    forged["clusters"][0]["cluster"]["server"] = "https://evil.example".into();
    put(hub, "fleet", "eu-1", forged.to_string()).await;
    user.run(rotate).await.ended(3).reports("say with --server");
    // {"sub":"system:serviceaccount:kube-system:clusterrole-aggregation-controller"}, not signed.
    let token = "e30.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6a3ViZS1zeXN0ZW06Y2x1c3RlcnJvbGUtYWdncmVnYXRpb24tY29udHJvbGxlciJ9.x";
    let mut forged = kubeconfig_in(good);
    forged["users"][0]["user"]["token"] = token.into();
    for forged in [forged.to_string(), "x".to_owned()] {
        put(hub, "fleet", "eu-1", forged).await;
        user.run(rotate).await.ended(0);
    }
    let written = writes(member).await.split_off(before);
    let own = |line: &String| line.contains("/fleet/serviceaccounts/multicluster-kubeconfig-provider/token");
    assert!(written.len() == 2 && written.iter().all(own), "{written:?}");
    put(hub, "fleet", "eu-1", kubeconfig_in(good).to_string()).await;
}

/// A fleet over the hub's Secrets engages the cluster, which lets it read ConfigMaps and nothing else.
async fn engages(hub: &ControlPlane) {
    // All that is not the default is that clusters of this test are on this machine.
    let locally = AccessPolicy::default().addresses(AddressPolicy::default().allow_loopback(true));
    let provider = KubeconfigProvider::builder()
        .client(hub.client())
        .namespace("fleet")
        .build()
        .or_fail();
    let fleet = Fleet::builder()
        .provider(provider)
        .settings(|settings| settings.access_policy = locally)
        .build();
    let runs = fleet.clone();
    let running = Background::start(|stop| async move { runs.run(stop).await });
    let cluster = eventually(PATIENCE, "it is ready", || {
        fleet
            .get("eu-1")
            .ok()
            .filter(|cluster| cluster.state() == mcr_core::ClusterState::Ready)
    })
    .await;
    assert_eq!(cluster.label("region").as_deref(), Some("eu"));
    let maps: Api<ConfigMap> = Api::all(cluster.client());
    maps.list(&ListParams::default()).await.or_fail();
    let forbidden = |result: Result<(), kube::Error>| {
        let error = result.expect_err("it is more than what was given");
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 403),
            "{error}"
        );
    };
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "x"}})).unwrap();
    let maps = cluster.namespaced::<ConfigMap>("fleet");
    forbidden(maps.create(&PostParams::default(), &map).await.map(drop));
    forbidden(
        Api::<Secret>::all(cluster.client())
            .list(&ListParams::default())
            .await
            .map(drop),
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_not_be_done_is_reported_before_anything_is_written() {
    let etcd = Etcd::start().await.or_fail();
    let hub = ControlPlane::builder()
        .name("hub")
        .etcd(&etcd)
        .audit(true)
        .start();
    let member = ControlPlane::builder().name("kind-a").etcd(&etcd).audit(true);
    let member = member.arg("--service-account-max-token-expiration=1h").start();
    let (hub, member) = futures::join!(hub, member);
    let (hub, member) = (hub.or_fail(), member.or_fail());
    let user = User::with([hub.kubeconfig(), member.kubeconfig()]);
    let create = "kubeconfig-secret create -c kind-a";
    let others: ClusterRole =
        serde_json::from_value(json!({"metadata": {"name": "mcr-view"}, "rules": []})).unwrap();
    let roles: Api<ClusterRole> = Api::all(member.client());
    roles.create(&PostParams::default(), &others).await.or_fail();
    let (hub_before, member_before) = (writes(&hub).await, writes(&member).await);

    user.runs(
        "3 | kubeconfig-secret create -c kind-b | | --context kind-b: there is no such context
         3 | kubeconfig-secret create -c kind-b | | there are hub, kind-a
         3 | kubeconfig-secret create -c kind-a --hub-context x | | --hub-context x: there is no such context
         2 | kubeconfig-secret create -c kind-a --role-type admin | | clusterrole
         2 | kubeconfig-secret create -c kind-a --token-lifetime 5m | | 10m
         3 | kubeconfig-secret create -c kind-a --name Not_a_name | | can't be the name of a Secret",
    )
    .await;
    let bad = user.file(
        "rules.yaml",
        "rules:\n- apiGroups: ['']\n  ressources: [pods]\n  verbs: [get]\n",
    );
    let bad = user.run(format!("{create} -r {}", bad.display())).await.ended(3);
    bad.reports("rules.yaml").reports("ressources").reports("line 3");

    // A hub that does not let us write Secrets, though it lets us read them.
    let reader = hub
        .user("reader")
        .rules([policy_rule([""], ["secrets"], ["get"])])
        .create()
        .await
        .or_fail();
    let weak = User::with([reader.kubeconfig(), member.kubeconfig()]);
    let text_of = weak.run(create).await.ended(3);
    text_of
        .reports("would not take the Secret")
        .reports("nothing was written");

    // A Secret that was made by another tool.
    let stranger: Secret =
        serde_json::from_value(json!({"metadata": {"name": "kind-a"}, "stringData": {"x": "y"}})).unwrap();
    secrets(&hub, "default")
        .create(&PostParams::default(), &stranger)
        .await
        .or_fail();
    let text_of = user.run(create).await.ended(3);
    text_of.reports("is no cluster's").reports("nothing was written");
    let text_of = user.run(format!("{create} --rotate")).await.ended(3);
    text_of.reports("is no cluster's");
    let stranger = secrets(&hub, "default").get("kind-a").await.or_fail();
    assert!(stranger.labels().is_empty());

    // A role of others is left as it is.
    let text_of = user.run(format!("{create} --name view")).await.ended(3);
    text_of
        .reports("clusterrole/mcr-view")
        .reports("was made by others")
        .reports("nothing was written");
    assert!(secrets(&hub, "default").get_opt("view").await.or_fail().is_none());
    assert!(
        roles
            .get("mcr-view")
            .await
            .or_fail()
            .rules
            .is_none_or(|rules| rules.is_empty())
    );

    let since = writes(&member).await.split_off(member_before.len());
    assert_eq!(since, [""; 0], "the member was not touched");
    // The test itself has written a role and a binding for the reader, and the Secret of the other tool.
    let since = writes(&hub).await.split_off(hub_before.len());
    assert_eq!(since.len(), 3, "{since:?}");

    // In its own namespace, by rules of one's own, for another account, at another address.
    let rules = user.file(
        "own.yaml",
        "rules:\n- {apiGroups: [apps], resources: [deployments], verbs: [get]}\n",
    );
    let own = format!(
        "{create} --name a -t role -r {} -a robot --server https://a.example:6443/ --remote-namespace kube-system",
        rules.display()
    );
    let text_of = user.run(own).await.ended(0);
    // The name of this address leads nowhere, so nothing is wrong with where it leads.
    assert!(!text_of.err.contains("warning"), "{}", text_of.err);
    let role: Role = Api::namespaced(member.client(), "kube-system")
        .get("mcr-a")
        .await
        .or_fail();
    assert_eq!(
        role.rules.unwrap()[0].resources.as_ref().unwrap(),
        &["deployments"]
    );
    let all: Api<ClusterRoleBinding> = Api::all(member.client());
    assert!(all.get_opt("mcr-a-binding").await.or_fail().is_none());
    let secret = secrets(&hub, "default").get("a").await.or_fail();
    assert_eq!(
        kubeconfig_in(&secret)["clusters"][0]["cluster"]["server"],
        "https://a.example:6443"
    );
    assert_eq!(kubeconfig_in(&secret)["users"][0]["name"], "robot");
    // A fresh token keeps both, without a flag.
    let rotate = format!("{create} --name a --rotate");
    user.run(&rotate).await.ended(0);
    let rotated = secrets(&hub, "default").get("a").await.or_fail();
    assert_eq!(
        kubeconfig_in(&rotated)["clusters"],
        kubeconfig_in(&secret)["clusters"]
    );
    let whose = who(&client(&member, &rotated).await).await.or_fail();
    assert_eq!(whose, "system:serviceaccount:kube-system:robot");
    let text_of = user.run(format!("{rotate} -a other")).await.ended(3);
    text_of.reports("ServiceAccount kube-system/robot");

    half_way(&hub, &member).await;
    no_token_is_ever_shown(&hub, &member).await;
}

/// A failure after the first write is explained, and leaves no Secret that does not work.
async fn half_way(hub: &ControlPlane, member: &ControlPlane) {
    let none = async |name: &str| secrets(hub, "default").get_opt(name).await.or_fail().is_none();
    let create = "kubeconfig-secret create -c weak --name";

    // The rights of a user who may make ServiceAccounts and no roles.
    let some = [
        policy_rule([""], ["serviceaccounts"], ["get", "create", "patch"]),
        policy_rule([""], ["serviceaccounts/token"], ["create"]),
    ];
    let weak = member.user("weak").rules(some).create().await.or_fail();
    let user = User::with([hub.kubeconfig(), weak.kubeconfig().replace("kind-a", "weak")]);
    let text_of = user.run(format!("{create} half")).await.ended(3);
    let text_of = text_of
        .reports("serviceaccount/multicluster-kubeconfig-provider had been applied, which does no harm");
    text_of
        .reports("forbidden")
        .reports("--role-type role")
        .prints("serviceaccount/multicluster-kubeconfig-provider applied");
    assert!(none("half").await);
    // It is enough for one whose rights are arranged elsewhere. This API server gives short tokens, which a note reports.
    let text_of = user
        .run(format!("{create} half --skip-create-rbac"))
        .await
        .ended(0);
    text_of
        .reports("note: 365d was asked for")
        .reports("valid for 59m");

    // Something in between that makes every token that of its own administrator.
    let proxy = FaultProxy::builder(Upstream::admin_of(member))
        .name("weak")
        .start()
        .await
        .or_fail();
    let user = User::with([hub.kubeconfig(), proxy.kubeconfig_without_credentials()]);
    let text_of = user.run(format!("{create} taken")).await.ended(3);
    text_of
        .reports("the fresh token was tried")
        .reports("no Secret was written");
    assert!(none("taken").await);
    let before = secrets(hub, "default").get("half").await.or_fail();
    let robot = format!("{create} half --rotate -a multicluster-kubeconfig-provider");
    user.run(&robot).await.ended(3).reports("say with --server");
    let rotate = user.run(format!("{robot} --server https://half.example")).await;
    rotate.ended(3).reports("the Secret is as it was");
    let after = secrets(hub, "default").get("half").await.or_fail();
    assert_eq!(before.resource_version(), after.resource_version());
}

/// With all that can be logged, in all commands.
async fn no_token_is_ever_shown(hub: &ControlPlane, member: &ControlPlane) {
    let user = User::with([hub.kubeconfig(), member.kubeconfig()]).traced();
    let create = "kubeconfig-secret create -c kind-a --name canary";
    let of_secrets = "--provider kubeconfig,file -n default --allow-loopback";
    let mut text_of = vec![user.run(create).await.ended(0)];
    let first = token_in(&secrets(hub, "default").get("canary").await.or_fail());
    text_of.push(user.run(format!("{create} --rotate")).await.ended(0));
    let second = token_in(&secrets(hub, "default").get("canary").await.or_fail());
    text_of.push(user.run(format!("{create} --dry-run")).await.ended(0));
    let shown = user.run(format!("clusters {of_secrets}")).await.ended(0);
    text_of.push(shown.prints("kubeconfig#canary"));
    text_of.push(user.run(format!("clusters -o json {of_secrets}")).await.ended(0));
    text_of.push(user.run(format!("doctor kubeconfig#canary {of_secrets}")).await);
    // A kubeconfig that is half a token.
    let half = format!("users: [{{name: x, user: {{token: {first}}}}}]\ncontexts: [");
    put(hub, "default", "broken", half).await;
    text_of.push(user.run(format!("doctor {of_secrets}")).await.ended(1));
    let logged: usize = text_of.iter().map(|text_of| text_of.err.len()).sum();
    assert!(logged > 50_000, "there is a log to look into: {logged}");
    for text_of in &text_of {
        for token in [&first, &second] {
            // The signature is what makes it one.
            let signature = token.rsplit('.').next().unwrap();
            assert!(!text_of.out.contains(signature), "a token in stdout");
            let line = text_of.err.lines().find(|line| line.contains(signature));
            assert!(line.is_none(), "a token in the log: {}", line.unwrap_or_default());
        }
    }
}
