//! Wrong configuration, and missing rights.

use mcr_core::{Access, Trust};
use mcr_kcp_double::KcpUser;
use mcr_provider_kcp::KcpProvider;
use mcr_testkit::sim::SimRule;

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kcp_bad_input_is_named_with_its_fix() {
    let world = World::with_shards(1).await;
    let a = world.consumer("a", "root");
    let slice = world
        .provider
        .get("apiexportendpointslices.apis.kcp.io", "widgets")
        .unwrap();
    let endpoint = slice["status"]["endpoints"][0]["url"]
        .as_str()
        .unwrap()
        .to_owned();
    let kubeconfig = |server: &str| {
        let of_workspace = world.server.kubeconfig("root:provider");
        of_workspace.replace(&world.server.kcp().url("root:provider"), server)
    };
    let provider =
        |kubeconfig: String| KcpProvider::builder().access(Access::kubeconfig(kubeconfig, Trust::Trusted));
    world.server.kcp().set_user("nobody", KcpUser::new("nobody"));
    let nobody = world.server.kubeconfig_with_token("root:provider", "nobody");
    let reader = SimRule::new(
        ["apis.kcp.io"],
        ["apiexportendpointslices"],
        ["get", "list", "watch"],
    );
    world
        .server
        .kcp()
        .set_user("reader", KcpUser::new("reader").rule(world.provider.id(), reader));
    let reader = world.server.kubeconfig_with_token("root:provider", "reader");
    let right = world.server.kubeconfig("root:provider");
    for (builder, expected) in [
        (
            world.builder().slice("wrong"),
            "APIExportEndpointSlice wrong does not exist; correct its name",
        ),
        (
            world.builder().export("wrong"),
            "APIExport wrong has no APIExportEndpointSlice",
        ),
        (
            provider(kubeconfig(&endpoint)).slice("widgets"),
            "is a virtual workspace",
        ),
        (
            provider(kubeconfig(&world.server.kcp().url("root:nowhere"))).slice("widgets"),
            "can't be reached: the API server answers 404",
        ),
        (
            provider(reader).slice("widgets"),
            "Grant the resource apiexports/content with the name widgets",
        ),
        (provider(nobody).slice("widgets"), "Grant list and watch"),
        (
            provider(right.replace("token: ", "token: x")).slice("widgets"),
            "401",
        ),
    ] {
        let running = Running::start(builder.build().or_fail());
        let error = running.error().await;
        assert!(error.contains(expected), "{expected}: {error}");
        running.stop().await;
    }
    // The slice is found by the export, and one that does not exist yet is found later.
    let running = Running::start(world.builder().export("widgets").build().or_fail());
    running.ready(a.id()).await;
    running.stop().await;
}
