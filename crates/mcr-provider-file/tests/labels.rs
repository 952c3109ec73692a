//! The labels of clusters: from the files, and from a function.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use mcr_provider_file::FileContext;
use support::{Folder, Received, kubeconfig, reported};

/// A kubeconfig with a context `eu` that has these labels, in YAML.
fn labelled(labels: &str) -> String {
    let context = "context: {cluster: eu, user: eu";
    kubeconfig(&["eu"]).replace(
        context,
        &format!("{context}, extensions: [{{name: mcr.dev/labels, extension: {labels}}}]"),
    )
}

fn labels(received: &Received, name: &str) -> Vec<String> {
    let labels = received.specs[name].labels.iter();
    labels.map(|(key, value)| format!("{key}={value}")).collect()
}

#[tokio::test]
async fn an_extension_of_the_context_gives_labels_and_a_change_leaves_the_access() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", labelled("{env: prod}"));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(labels(&received, "eu"), ["env=prod"]);
    let before = received.access("eu");
    received.forget();
    folder.write("a.kubeconfig", labelled("{env: dev, region: eu}"));
    received
        .until(|received| labels(received, "eu") == ["env=dev", "region=eu"])
        .await;
    assert_eq!(
        (received.access("eu"), received.log.as_slice()),
        (before, ["+eu".to_owned()].as_slice())
    );
}

#[tokio::test]
async fn a_malformed_extension_breaks_its_context_only() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", labelled("{env: 1}"));
    folder.write("b.kubeconfig", kubeconfig(&["us"]));
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(received.clusters["us"], "ok");
    assert_eq!(
        received.clusters["eu"],
        "file ./a.kubeconfig, context \"eu\": contexts[name=\"eu\"].context.extensions[name=\"mcr.dev/labels\"].extension[\"env\"]: \
         is not text, as a label must be; put its value in quotes"
    );
}

#[tokio::test]
async fn a_function_adds_labels_and_wins_over_the_file() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", labelled("{env: dev, region: eu}"));
    let function = |context: &FileContext<'_>| {
        let file = context.file.file_name().unwrap().to_string_lossy();
        [
            ("env".to_owned(), "prod".to_owned()),
            (
                "is".to_owned(),
                format!(
                    "{file} {} {} {:?}",
                    context.context, context.cluster, context.labels
                ),
            ),
        ]
    };
    let received = Received::synced(reported().dir(folder.path()).labels(function), &folder).await;
    let is = "is=a.kubeconfig eu eu {\"env\": \"dev\", \"region\": \"eu\"}";
    assert_eq!(labels(&received, "eu"), ["env=prod", is, "region=eu"]);
}

#[tokio::test]
async fn a_function_that_panics_for_a_context_breaks_that_context_only() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", kubeconfig(&["eu", "us"]));
    let function = |context: &FileContext<'_>| {
        assert_ne!(context.context, "eu");
        [("env", "prod")]
    };
    let received = Received::synced(reported().dir(folder.path()).labels(function), &folder).await;
    assert_eq!(labels(&received, "us"), ["env=prod"]);
    assert!(received.clusters["eu"].contains("FileProviderBuilder::labels panicked"));
}

#[tokio::test]
async fn equal_access_with_other_labels_is_not_the_same_cluster() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", labelled("{env: prod}"));
    folder.write("b.kubeconfig", labelled("{env: dev}"));
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(received.names(), ["./b.kubeconfig+eu", "eu"]);
    assert_eq!(labels(&received, "eu"), ["env=prod"]);
}
