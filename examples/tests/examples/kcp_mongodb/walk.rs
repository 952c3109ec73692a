//! The commands of the README, typed as a reader does.

use std::fs;

use mcr::{Access, HUB, Manager, Trust};
use mcr_kcp_double::Kcp;
use mcr_provider_single::SingleProvider;
use mcr_testkit::waiting::{Background, OrFail};

use super::{
    controller,
    operator::{Mood, operator},
};
use crate::kcp::{Example, Walk};

const EXAMPLE: Example = Example("kcp-mongodb");
const ROLE: &str = "mongodb-controller";
const README: &str = "examples/examples/kcp-mongodb/README.md";

#[test]
fn mongodb_every_manifest_is_in_a_command_of_the_readme() {
    EXAMPLE.applies_every_manifest(README);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_commands_of_the_readme_lead_to_databases_and_away() {
    // The page has the namespace mongodb of the cluster for itself.
    let service = super::service().await.kubeconfig();
    let files = [(".kcp/service.kubeconfig", service.as_str())];
    let Some(mut walk) = Walk::begin((EXAMPLE, README), ("root:mongodb", ROLE), &files).await else {
        return;
    };
    let hub = || SingleProvider::named(HUB, Access::kubeconfig(service.clone(), Trust::Trusted)).or_fail();
    let made = fs::read_to_string(walk.terminal.file(".kcp/controller.kubeconfig")).unwrap();
    let access = Access::kubeconfig(made, Trust::Trusted);
    let workspaces = controller::consumers(access, "mongodb".into()).or_fail();
    let programs = [
        controller::manager(Manager::builder(), workspaces, hub(), "mongodb".into()).or_fail(),
        Manager::builder()
            .provider(hub())
            .controller(operator(Mood::Quick, "mongodb")),
    ];
    let programs = programs.map(|manager| {
        let manager = manager.build().or_fail();
        Background::start(|stop| manager.run_until(stop))
    });
    walk.next().await;
    let shown = walk.next().await;
    assert!(shown.contains("6.0.5") && shown.contains("Ready"), "{shown}");
    assert!(shown.contains("admin"), "{shown}");
    assert_eq!(shown.matches("Running").count(), 2, "{shown}");
    let shown = walk.next().await;
    assert_eq!(shown.matches("Running").count(), 1, "{shown}");
    walk.next().await;
    assert!(walk.left.is_empty());
    for program in programs {
        program.stop().await.or_fail();
    }
}
