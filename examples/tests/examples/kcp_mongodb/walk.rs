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
use crate::{
    kcp::{self, Example},
    page,
};

const EXAMPLE: Example = Example("kcp-mongodb");
const ROLE: &str = "mongodb-controller";
const README: &str = "examples/examples/kcp-mongodb/README.md";

#[test]
fn mongodb_every_manifest_is_in_a_command_of_the_readme() {
    EXAMPLE.applies_every_manifest(README);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mongodb_the_commands_of_the_readme_lead_to_databases_and_away() {
    let server = Kcp::builder().serve().await.or_fail();
    let Some(terminal) = kcp::terminal(&server, EXAMPLE.0) else {
        return;
    };
    // The page has the namespace mongodb of the cluster for itself.
    let service = super::service().await.kubeconfig();
    fs::write(terminal.file(".kcp/service.kubeconfig"), &service).unwrap();
    let run = async |block: &str| terminal.run(block).await;
    let blocks = page::blocks(README);
    let [
        variables,
        cluster,
        api,
        kubeconfig,
        consumers,
        look,
        changes,
        deployment,
    ] = blocks.as_slice()
    else {
        panic!("the page has other steps: {blocks:#?}")
    };
    run(variables).await;
    run(cluster).await;
    run(api).await;
    let mongodb = server.kcp().workspace("root:mongodb").unwrap();
    kcp::issue_token(
        &server,
        &mongodb,
        EXAMPLE.user(&mongodb, ROLE),
        "mongodb-controller-token",
    );
    run(kubeconfig).await;
    let hub = || SingleProvider::named(HUB, Access::kubeconfig(service.clone(), Trust::Trusted)).or_fail();
    let made = fs::read_to_string(terminal.file(".kcp/controller.kubeconfig")).unwrap();
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
    run(consumers).await;
    let shown = run(look).await;
    assert!(shown.contains("6.0.5") && shown.contains("Ready"), "{shown}");
    assert!(shown.contains("admin"), "{shown}");
    assert_eq!(shown.matches("Running").count(), 2, "{shown}");
    let shown = run(changes).await;
    assert_eq!(shown.matches("Running").count(), 1, "{shown}");
    run(deployment).await;
    for program in programs {
        program.stop().await.or_fail();
    }
}
