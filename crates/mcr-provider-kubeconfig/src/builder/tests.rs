use mcr_core::{Provider, hub::OptionError};
use mcr_testkit::sim::SimCluster;

use super::*;

fn builder() -> KubeconfigProviderBuilder {
    KubeconfigProvider::builder().client(SimCluster::new().client())
}

#[tokio::test]
async fn bad_options_are_refused_with_what_to_do() {
    let error = |builder: KubeconfigProviderBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        error(KubeconfigProvider::builder()),
        "there is no hub; give the client of the management cluster with `client`"
    );
    assert_eq!(
        error(builder().namespace("Fleet")),
        "\"Fleet\" can't be the name of a namespace, which has at most 63 lower-case letters, digits and hyphens; \
         correct it, or leave `namespace` out to take the client's default namespace"
    );
    // What would widen the selection.
    for (key, value) in [
        ("", "true"),
        ("a,b", ""),
        ("a", "true,b!=c"),
        ("a b", "c"),
        ("/a", "b"),
        ("a/", "b"),
        ("a", "-"),
        ("a//b", "c"),
    ] {
        assert!(
            matches!(
                builder().label(key, value).build(),
                Err(KubeconfigError::Label { .. })
            ),
            "{key}={value}"
        );
    }
    assert!(error(builder().label("a", "b c")).ends_with("and so has the value; give `label` another"));
    for key in ["", "..", "a/b", "a b"] {
        assert_eq!(
            builder().key(key).build().unwrap_err(),
            KubeconfigError::Key(key.into())
        );
    }
    for namespace in ["", "a.b", "a/b", "-a", "?"] {
        assert!(matches!(
            builder().namespace(namespace).build(),
            Err(KubeconfigError::Hub(OptionError::Namespace(_)))
        ));
    }
    assert!(
        builder()
            .label("fleet.example.com/member", "")
            .key("value")
            .build()
            .is_ok()
    );
}

#[tokio::test]
async fn what_is_asked_for_is_one_selection() {
    let asked = |builder: KubeconfigProviderBuilder| {
        builder.build().unwrap().0.hub.in_words(&crate::secret::secrets())
    };
    assert_eq!(
        asked(builder()),
        "secrets in namespace default with labels sigs.k8s.io/multicluster-runtime-kubeconfig=true"
    );
    assert_eq!(
        asked(builder().all_namespaces().label("a", "b")),
        "secrets with labels a=b"
    );
    let provider = builder().namespace("fleet").build().unwrap();
    assert_eq!(provider.name(), "kubeconfig");
    let searched = builder()
        .namespace("fleet")
        .label("a", "b")
        .key("value")
        .build()
        .unwrap()
        .searched();
    assert!(
        searched.starts_with("secrets in namespace fleet with labels a=b of the hub, each with a kubeconfig under the key value."),
        "{searched}"
    );
    assert!(searched.contains("may list and watch Secrets"), "{searched}");
    let shown = format!("{provider:?} {:?}", builder());
    assert!(shown.contains("fleet") && shown.contains("Untrusted"), "{shown}");
}
