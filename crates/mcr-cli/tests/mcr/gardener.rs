//! `mcr doctor` with the provider `gardener`, on a simulated garden.

use mcr_garden_double::Garden;
use mcr_testkit::{
    sim::{SimCluster, SimRule, SimServer, SimUser},
    waiting::OrFail,
};
use serde_json::json;

use crate::harness::User;

/// A garden with hibernated Shoots of two Projects.
async fn garden() -> SimServer {
    let garden = SimCluster::builder().name("garden").admin_token("admin").build();
    garden.create(Garden::crd()).or_fail();
    for project in ["dev", "other"] {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": format!("garden-{project}"), "labels": {"project.gardener.cloud/name": project}},
        });
        garden.create(namespace).or_fail();
    }
    for (project, name, environment) in [
        ("dev", "one", "prod"),
        ("dev", "two", "test"),
        ("other", "three", "prod"),
    ] {
        let mut shoot = Garden::shoot(&format!("garden-{project}"), name);
        shoot["metadata"]["labels"] = json!({"env": environment});
        shoot["spec"]["hibernation"] = json!({"enabled": true});
        shoot["status"]["hibernated"] = true.into();
        garden.create(shoot).or_fail();
    }
    garden.serve().await.or_fail()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_what_a_shoot_waits_for_and_which_right_is_missing() {
    let garden = garden().await;
    let reader = [
        SimRule::new(["core.gardener.cloud"], ["shoots"], ["list", "watch"]),
        SimRule::new([""], ["namespaces"], ["get"]),
    ];
    let reader = reader.into_iter().fold(SimUser::new("robot"), SimUser::rule);
    garden.cluster().set_user("reader", reader);
    let users = [garden.kubeconfig_with_token("reader"), garden.kubeconfig()].map(|hub| User::with([hub]));
    let doctor = "doctor --provider gardener -n garden-dev -o json --timeout 60s";
    let (text_of, missing) = futures::join!(
        users[0].run(doctor),
        users[1].run(format!("{doctor} -l env=prod dev/two other/three dev/none"))
    );
    let (text_of, missing) = (text_of.ended(1), missing.ended(1));
    text_of.finds("dev/one | state | warning | suspended: it is hibernated | kubectl -n garden-dev describe shoots.core.gardener.cloud one");
    for part in [
        "serves core.gardener.cloud in v1beta1",
        "may list, watch shoots.core.gardener.cloud in namespace garden-dev",
        "robot may not create shoots.core.gardener.cloud/adminkubeconfig in namespace garden-dev (403)",
        "kubectl create role mcr-shoots-adminkubeconfig -n garden-dev --verb=create",
    ] {
        assert!(text_of.out.contains(part), "{part}:\n{}", text_of.out);
    }
    missing.finds(
        "dev/two     | name | problem | do not match --selector | --selector
         other/three | name | problem | the provider looks in garden-dev | repeat with -n garden-other
         dev/none    | name | problem | no provider has a cluster of this name | mcr clusters",
    );
}
