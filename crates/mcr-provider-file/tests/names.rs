//! The names of clusters: the contexts' own, and what becomes of equal ones.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::fs;

use mcr_provider_file::Environment;
use support::{Folder, Received, kubeconfig, kubeconfig_with_token, reported};

/// A kubeconfig whose one context leads to this address.
fn at(context: &str, address: &str) -> String {
    kubeconfig(&[context]).replace(&format!("https://{context}:6443"), address)
}

/// The error of the context `eu` of one file that another file's `eu` keeps from its name.
fn taken(file: &str, by: &str) -> String {
    format!(
        "file ./{file}, context \"eu\": file ./{by} has a context of this name too, and the first file in order keeps the \
         name; rename one of the contexts (kubectl --kubeconfig ./{file} config rename-context \"eu\" NEW_NAME), or, if the \
         files are given with `file` or `dir`, call FileProviderBuilder::qualified_names()"
    )
}

fn leads_to(received: &Received, name: &str, address: &str) -> bool {
    received.clusters.get(name).is_some_and(|state| state == "ok") && received.access(name).contains(address)
}

#[tokio::test]
async fn a_cluster_has_the_name_of_its_context() {
    let folder = Folder::new();
    let file = folder.write("all.yaml", kubeconfig(&["eu", "us"]));
    let received = Received::synced(reported().file(&file), &folder).await;
    assert_eq!(received.names(), ["eu", "us"]);
    let received = Received::synced(reported().file(&file).qualified_names(), &folder).await;
    assert_eq!(received.names(), ["./all.yaml+eu", "./all.yaml+us"]);
}

#[tokio::test]
async fn the_first_file_in_order_has_the_name_and_the_second_is_broken() {
    let folder = Folder::new();
    // Written in the other order than they are sorted.
    let b = folder.write("b.kubeconfig", at("eu", "https://b"));
    let a = folder.write("a.kubeconfig", at("eu", "https://a"));
    let sorted = Received::synced(reported().dir(folder.path()), &folder).await;
    assert!(leads_to(&sorted, "eu", "https://a"));
    assert_eq!(sorted.names(), ["./b.kubeconfig+eu", "eu"]);
    assert_eq!(
        sorted.clusters["./b.kubeconfig+eu"],
        taken("b.kubeconfig", "a.kubeconfig")
    );

    let given = Received::synced(reported().files([&b, &a]), &folder).await;
    assert!(leads_to(&given, "eu", "https://b"));
    assert_eq!(
        given.clusters["./a.kubeconfig+eu"],
        taken("a.kubeconfig", "b.kubeconfig")
    );

    let list = Environment::empty().kubeconfig(std::env::join_paths([&b, &a]).unwrap());
    let list = Received::synced(reported().environment(list), &folder).await;
    assert!(
        leads_to(&list, "eu", "https://b"),
        "also where kubectl merges the files"
    );
    assert_eq!(
        list.clusters["./a.kubeconfig+eu"],
        taken("a.kubeconfig", "b.kubeconfig")
    );

    let qualified = Received::synced(reported().dir(folder.path()).qualified_names(), &folder).await;
    assert!(leads_to(&qualified, "./a.kubeconfig+eu", "https://a"));
    assert!(leads_to(&qualified, "./b.kubeconfig+eu", "https://b"));
}

#[tokio::test]
async fn the_second_file_takes_over_the_name_and_gives_it_back() {
    let folder = Folder::new();
    let first = folder.write("a.kubeconfig", at("eu", "https://a"));
    folder.write("b.kubeconfig", at("eu", "https://b"));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    for vanish in [true, false] {
        received.forget();
        if vanish {
            fs::remove_file(&first).unwrap();
        } else {
            folder.write("a.kubeconfig", at("other", "https://a"));
        }
        received
            .until(|received| !received.clusters.contains_key("./b.kubeconfig+eu"))
            .await;
        assert!(leads_to(&received, "eu", "https://b"));
        assert!(!received.log.contains(&"-eu".to_owned()), "{:?}", received.log);
        folder.write("a.kubeconfig", at("eu", "https://a"));
        received
            .until(|received| received.clusters.contains_key("./b.kubeconfig+eu"))
            .await;
        assert!(leads_to(&received, "eu", "https://a"));
        assert!(!received.log.contains(&"-eu".to_owned()), "{:?}", received.log);
    }
}

#[tokio::test]
async fn a_context_that_moves_to_another_file_keeps_its_name_and_its_access() {
    let folder = Folder::new();
    let first = folder.write("b.kubeconfig", kubeconfig(&["eu"]));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    let before = received.access("eu");
    received.forget();
    fs::rename(first, folder.at("a.kubeconfig")).unwrap();
    let file = |received: &Received| received.specs["eu"].properties["file"].clone();
    received
        .until(|received| file(received).ends_with("a.kubeconfig"))
        .await;
    assert_eq!(
        (received.log.as_slice(), received.access("eu")),
        (["+eu".to_owned()].as_slice(), before)
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_can_not_be_listed_keeps_the_names_of_its_contexts() {
    let folder = Folder::new();
    for (dir, address) in [("first", "https://a"), ("second", "https://b")] {
        fs::create_dir(folder.at(dir)).unwrap();
        folder.write(&format!("{dir}/x.kubeconfig"), at("eu", address));
    }
    let builder = reported().dirs([folder.at("first"), folder.at("second")]);
    let mut received = Received::synced(builder, &folder).await;
    received.forget();
    fs::rename(folder.at("first"), folder.at("away")).unwrap();
    std::os::unix::fs::symlink("nowhere", folder.at("first")).unwrap();
    received.until(|received| received.clusters["eu"] != "ok").await;
    received.unchanged(&folder, "second/marker.kubeconfig").await;
    assert!(received.clusters["eu"].contains("folder ./first: it is a symbolic link"));
    assert_eq!(
        received.log,
        ["!eu"],
        "the other folder's context is no winner now"
    );
}

#[tokio::test]
async fn an_equal_context_with_equal_content_is_the_same_cluster() {
    let folder = Folder::new();
    let file = folder.write("a.kubeconfig", kubeconfig(&["eu"]));
    folder.write("b.kubeconfig", kubeconfig(&["eu"]));
    #[cfg(unix)]
    std::os::unix::fs::symlink("a.kubeconfig", folder.at("c.kubeconfig")).unwrap();
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(received.log, ["+eu", "synced"]);
    received.forget();
    folder.write("b.kubeconfig", kubeconfig_with_token(&["eu"], "other"));
    received
        .until(|received| received.clusters.contains_key("./b.kubeconfig+eu"))
        .await;
    assert_eq!(
        received.clusters["./b.kubeconfig+eu"],
        taken("b.kubeconfig", "a.kubeconfig")
    );
    // Both change at once: one scan announces both, or two do.
    folder.write("b.kubeconfig", kubeconfig_with_token(&["eu"], "new"));
    fs::write(file, kubeconfig_with_token(&["eu"], "new")).unwrap();
    received
        .until(|received| !received.clusters.keys().any(|name| name.contains("b.kubeconfig")))
        .await;
    assert!(received.access("eu").contains("new"));
}

/// In a list a context of the second file would get the cluster of the first, if both have the same names.
#[tokio::test]
async fn a_hidden_context_of_a_list_is_compared_by_what_its_own_file_reports() {
    let folder = Folder::new();
    let [a, b, c] = [("a", "https://a"), ("b", "https://b"), ("c", "https://a")]
        .map(|(file, address)| folder.write(file, at("default", address)));
    let list = Environment::empty().kubeconfig(std::env::join_paths([a, b, c]).unwrap());
    let received = Received::synced(reported().environment(list), &folder).await;
    assert_eq!(received.names(), ["./b+default", "default"]);
    assert!(leads_to(&received, "default", "https://a"));
}

#[tokio::test]
async fn the_name_of_a_broken_context_hurts_no_other() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", at("eu", "https://a"));
    folder.write("b.kubeconfig", at("eu", "https://b"));
    let qualified = format!("{}+eu", folder.at("b.kubeconfig").display());
    folder.write("c.kubeconfig", at(&qualified, "https://c"));
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert!(leads_to(&received, "eu", "https://a"));
    assert!(leads_to(&received, "./b.kubeconfig+eu", "https://c"));
    let broken = received.clusters.values().find(|state| *state != "ok");
    assert_eq!(broken, Some(&taken("b.kubeconfig", "a.kubeconfig")));
}
