use http::Uri;
use mcr_core::{Credential, Endpoint, EndpointAccess, KubeconfigAccess, StaticCredential, Trust};

use super::*;

#[test]
fn every_part_of_an_access_counts() {
    let kubeconfig = |yaml: &str| KubeconfigAccess::new(yaml, Trust::Untrusted);
    let plain = Access::from(kubeconfig("a"));
    assert!(is_same(&plain, &Access::from(kubeconfig("a"))));
    for other in [
        Access::from(kubeconfig("b")),
        Access::from(kubeconfig("a").context("c")),
        Access::from(kubeconfig("a").base_dir("/d")),
        Access::kubeconfig("a", Trust::Trusted),
    ] {
        assert!(!is_same(&plain, &other), "{other:?}");
    }
    let endpoint = |server, token: &str| {
        let credential = StaticCredential::new(Credential::token(token));
        EndpointAccess::new(Endpoint::new(Uri::from_static(server)), credential)
    };
    let a = endpoint("https://a", "t");
    assert!(is_same(&a.clone().into(), &endpoint("https://a", "t").into()));
    assert!(!is_same(&a.clone().into(), &endpoint("https://b", "t").into()));
    assert!(!is_same(&a.clone().into(), &endpoint("https://a", "u").into()));
    assert!(!is_same(&a.into(), &plain));
}
