//! What requests carry, and what of the process around must not touch them.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::net::{TcpListener, TcpStream};

use crate::harness::*;

/// kube sends no User-Agent, which API servers count requests and set priorities by.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_says_who_asks_and_wants_json_as_it_is() {
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
        assert!(agent.starts_with("mcr/"), "{agent}");
        assert_eq!(asked.header("authorization"), Some("Bearer t"));
    }
    // API servers from 1.37 on compress watches in a form that many clients can't read.
    for asked in &asked[..2] {
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
        assert_eq!(asked.header("accept"), Some("application/json"));
    }
    one.running.stop().await;
}

/// kube applies `HTTPS_PROXY` to every kubeconfig; a proxy that leads out of one network breaks all others.
#[test]
fn proxies_of_the_environment_are_not_applied_to_clusters() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = [
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ];
    let mut environment: Vec<_> = names.iter().map(|name| (*name, url.as_str())).collect();
    environment.extend([("NO_PROXY", ""), ("no_proxy", "")]);
    let test = "surroundings::proxies_of_the_environment_are_not_applied_to_clusters";
    if !in_a_process_of_its_own(test, &environment) {
        proxy.set_nonblocking(true).unwrap();
        assert!(proxy.accept().is_err(), "the proxy was asked");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        assert!(std::env::var("HTTPS_PROXY").is_ok());
        let (_server, one) = One::on(|asked| {
            if asked.is_watch() {
                quiet()
            } else {
                list(10, [map("a", 1)])
            }
        })
        .await;
        one.log.becomes(&["+a"]).await;
        one.cluster.client().apiserver_version().await.unwrap();
        // To an https address, too: it is dialled directly.
        let direct = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", direct.local_addr().unwrap());
        one.running
            .join("tls", &mcr_doubles::scripted::kubeconfig(&url))
            .await;
        tokio::time::timeout(std::time::Duration::from_secs(60), direct.accept())
            .await
            .unwrap()
            .unwrap();
        one.running.stop().await;
    });
}

/// Passes the first connections on to a server, and those after them to another place.
pub(crate) struct Switch {
    pub(crate) address: SocketAddr,
    strays: Arc<AtomicUsize>,
}

impl Switch {
    /// How many were passed on to the other place.
    pub(crate) fn strays(&self) -> usize {
        self.strays.load(Ordering::SeqCst)
    }
}

pub(crate) async fn first_connections_to(server: SocketAddr, other: SocketAddr, first: usize) -> Switch {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let strays: Arc<AtomicUsize> = Arc::default();
    let count = strays.clone();
    tokio::spawn(async move {
        let mut accepted = 0;
        while let Ok((mut near, _)) = listener.accept().await {
            accepted += 1;
            let to = if accepted <= first { server } else { other };
            if to == other {
                count.fetch_add(1, Ordering::SeqCst);
            }
            tokio::spawn(async move {
                let Ok(mut far) = TcpStream::connect(to).await else {
                    return;
                };
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    Switch { address, strays }
}
