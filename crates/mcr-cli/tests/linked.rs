//! A program that links a provider of its own.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{process::ExitCode, sync::Arc};

use mcr_cli::{Mcr, ProviderOptions};
use mcr_core::{
    Access, BoxError, ClusterName, ClusterSpec, Discovery, Provider, Trust,
    doctor::{Advice, Doctor, Fault, Finding, Level},
};
use mcr_provider_clusters::ClustersProvider;
use mcr_testkit::{sim::SimCluster, waiting::OrFail};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_of_ones_own_is_asked_as_the_others_are() {
    let berlin = SimCluster::new().serve().await.or_fail();
    let kubeconfig = berlin.kubeconfig();
    let shop = move |options: ProviderOptions| {
        let kubeconfig = kubeconfig.clone();
        async move {
            let region = options
                .option("region")
                .ok_or("the shops need --provider-option region=")?;
            let access = Access::kubeconfig(kubeconfig, Trust::Trusted);
            let spec = ClusterSpec::new(ClusterName::new(format!("{region}-berlin"))?, access);
            Ok::<_, BoxError>(ClustersProvider::builder().cluster(spec).build())
        }
    };
    let mcr = Mcr::new().provider("shop", "Each shop of the chain", shop);
    let run = async |args: &[&str], expected: ExitCode| {
        let all = ["mcr"].iter().chain(args).map(|arg| (*arg).to_owned());
        let code = mcr.clone().run_from(all).await;
        assert_eq!(format!("{code:?}"), format!("{expected:?}"), "{args:?}");
    };
    let shop = ["--provider", "shop", "--provider-option", "region=eu"];
    let with = |command: &'static str, more: &[&'static str]| [&[command], &shop[..], more].concat();
    run(
        &with("clusters", &["--fail-unless-ready", "eu-berlin"]),
        ExitCode::SUCCESS,
    )
    .await;
    run(&with("doctor", &["eu-berlin"]), ExitCode::SUCCESS).await;
    run(&with("doctor", &["us-berlin"]), ExitCode::FAILURE).await;
    // The error of a linked provider that can't be built is reported like that of a built-in one.
    run(&["clusters", "--provider", "shop"], ExitCode::from(3)).await;
    run(&["doctor", "--provider", "shop"], ExitCode::FAILURE).await;
    run(&["clusters", "--provider", "shops"], ExitCode::from(2)).await;

    // A provider brings the knowledge of the doctor with it.
    let closed = async |_: ProviderOptions| Ok::<_, BoxError>(Closed);
    let mcr = Mcr::new().provider("closed", "Shops with a file that is missing", closed);
    for command in ["doctor", "clusters"] {
        let code = mcr
            .clone()
            .run_from(["mcr", command, "--provider", "closed"])
            .await;
        assert_eq!(
            format!("{code:?}"),
            format!("{:?}", ExitCode::FAILURE),
            "{command}"
        );
    }
}

/// A provider without clusters, whose file is missing.
struct Closed;

impl Provider for Closed {
    fn name(&self) -> &str {
        "closed"
    }
    fn discover(&self, stop: CancellationToken) -> Discovery {
        ClustersProvider::new().discover(stop)
    }
    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        Some(Arc::new(Self))
    }
}

impl Doctor for Closed {
    fn advice(&self) -> &'static [Advice] {
        const { &[Advice::new(Fault::NoClusters, "", "", "")] }
    }
    fn files(&self) -> Vec<Finding> {
        vec![Finding {
            check: "files",
            level: Level::Problem,
            message: "shops.txt does not exist".into(),
            fix: None,
        }]
    }
}
