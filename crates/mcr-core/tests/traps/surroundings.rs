//! What requests carry, and what of the process around must not touch them.

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::net::TcpListener;

use crate::harness::*;

/// kube sends no User-Agent, which API servers count requests and set priorities by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_reports_who_asks_and_wants_json_as_it_is() {
    let server = quiet_server().await;
    let one = One::of(&server).await;
    eventually("watched", || server.live() == 1).await;
    one.cluster
        .api::<ConfigMap>()
        .list(&Default::default())
        .await
        .unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    for asked in &asked {
        let agent = asked.header("user-agent").expect("a User-Agent");
        assert!(agent.contains(" mcr/"), "{agent}");
        assert_eq!(asked.header("authorization"), Some("Bearer t"));
    }
    let senders: Vec<_> = asked
        .iter()
        .filter_map(|asked| asked.header("user-agent")?.rsplit(") ").next())
        .collect();
    assert_eq!(senders[..2], ["controllers", "controllers"]);
    assert!(senders[2].ends_with(')'), "the program itself: {}", senders[2]);
    // API servers from 1.37 on compress watches in a form that many clients can't read.
    for asked in &asked[..2] {
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
        assert_eq!(asked.header("accept"), Some("application/json"));
    }
    one.running.stop().await;
}

/// kube applies `HTTPS_PROXY` to every kubeconfig; a proxy that leads out of one network breaks all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_of_the_environment_are_not_applied_to_clusters() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(|name| [name.to_owned(), name.to_lowercase()]);
    let mut environment: Vec<_> = names.iter().flatten().map(|name| (&**name, &*url)).collect();
    environment.extend([("NO_PROXY", ""), ("no_proxy", "")]);
    let test = "surroundings::proxies_of_the_environment_are_not_applied_to_clusters";
    if !in_a_process_of_its_own(test, &environment) {
        proxy.set_nonblocking(true).unwrap();
        assert!(proxy.accept().is_err(), "the proxy was asked");
        return;
    }
    assert!(std::env::var("HTTPS_PROXY").is_ok());
    let server = quiet_server().await;
    let one = One::of(&server).await;
    one.log.becomes(&["+a"]).await;
    one.cluster.client().apiserver_version().await.unwrap();
    // To an https address, too: it is dialled directly.
    let direct = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", direct.local_addr().unwrap());
    let kubeconfig = mcr_doubles::scripted::kubeconfig(&url);
    one.running.join("tls", &kubeconfig).await;
    let dialled = tokio::time::timeout(SOON, direct.accept()).await;
    dialled.unwrap().unwrap();
    // The error names the variable that would have helped.
    let far = mcr_doubles::scripted::kubeconfig("https://no-such-host.invalid");
    let far = one.running.join("far", &far).await;
    eventually("the variable is named", || {
        format!("{:?}", far.state())
            .contains("; HTTPS_PROXY is set, and kubectl would connect through that proxy")
    })
    .await;
    one.running.stop().await;
}
