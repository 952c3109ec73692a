//! Tests which clusters the provider finds, and that it follows changes of files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::{fs, time::Duration};

use mcr_core::{Access, Trust};
use mcr_provider_file::Environment;
use support::{Folder, Received, kubeconfig, kubeconfig_with_token, polling, reported};

#[tokio::test]
async fn p_03_none_initially() {
    let folder = Folder::new();
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(received.log, ["synced"]);
}

#[tokio::test]
async fn p_04_a_kubeconfig_in_a_watched_folder_is_discovered() {
    let folder = Folder::new();
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    folder.write("kubeconfig.yaml", kubeconfig(&["dev"]));
    received.until_names(&["dev"]).await;
    let spec = &received.specs["dev"];
    assert_eq!(
        spec.properties["file"],
        folder.at("kubeconfig.yaml").to_str().unwrap()
    );
    assert_eq!(spec.properties["context"], "dev");
    assert!(matches!(&spec.access, Access::Endpoint(access) if access.trust == Trust::Trusted));
}

#[tokio::test]
async fn p_05_every_context_of_a_file_of_any_name() {
    let folder = Folder::new();
    let file = folder.write("anything", kubeconfig(&["one", "two"]));
    let received = Received::synced(reported().file(file), &folder).await;
    assert_eq!(received.names(), ["one", "two"]);
}

#[tokio::test]
async fn p_06_files_and_folders_together() {
    let folder = Folder::new();
    fs::create_dir(folder.at("dir")).unwrap();
    folder.write("dir/a.kubeconfig", kubeconfig(&["three"]));
    folder.write("dir/notes.txt", "not a kubeconfig");
    let file = folder.write("anything", kubeconfig(&["one", "two"]));
    let received = Received::synced(reported().file(file).dir(folder.at("dir")), &folder).await;
    assert_eq!(received.names(), ["one", "three", "two"]);
}

#[tokio::test]
async fn p_07_deleting_the_file_removes_its_clusters() {
    let folder = Folder::new();
    let file = folder.write("a.kubeconfig", kubeconfig(&["one", "two"]));
    folder.write("b.kubeconfig", kubeconfig(&["three"]));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    received.forget();
    fs::remove_file(file).unwrap();
    received.until_names(&["three"]).await;
    assert_eq!(received.log, ["-one", "-two"]);
}

#[tokio::test]
async fn p_08_rewriting_the_file_removes_old_contexts_and_adds_new_ones() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", kubeconfig(&["one", "two"]));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    folder.write("a.kubeconfig", kubeconfig(&["x", "y", "z"]));
    received.until_names(&["x", "y", "z"]).await;
}

#[tokio::test]
async fn only_what_changed_is_announced() {
    let folder = Folder::new();
    let both = |token| format!("{}{}", kubeconfig_with_token(&["one"], token), "# comment\n");
    folder.write("a.kubeconfig", both("1"));
    folder.write("b.kubeconfig", kubeconfig(&["two"]));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    received.forget();
    folder.write("a.kubeconfig", both("1") + "# another comment\n");
    folder.write("unrelated", "x");
    received.unchanged(&folder, "marker.kubeconfig").await;
    assert!(received.log.is_empty(), "{:?}", received.log);
    folder.write("a.kubeconfig", both("2"));
    received.until(|received| !received.log.is_empty()).await;
    received.unchanged(&folder, "marker.kubeconfig").await;
    assert_eq!(received.log, ["+one"]);
    assert!(received.access("one").ends_with(" 2"));
}

#[tokio::test]
async fn a_file_moved_over_another_is_a_change_and_no_removal() {
    let folder = Folder::new();
    let file = folder.write("a.kubeconfig", kubeconfig_with_token(&["one"], "old"));
    let mut received = Received::synced(
        reported().debounce(Duration::from_secs(1)).dir(folder.path()),
        &folder,
    )
    .await;
    received.forget();
    fs::rename(
        folder.write(".tmp", kubeconfig_with_token(&["one"], "new")),
        &file,
    )
    .unwrap();
    received
        .until(|received| received.access("one").contains("new"))
        .await;
    // Removes and writes the file, as some editors do, within the second of the debounce.
    fs::remove_file(&file).unwrap();
    fs::write(&file, kubeconfig_with_token(&["one"], "newer")).unwrap();
    received
        .until(|received| received.access("one").contains("newer"))
        .await;
    assert!(
        received.log.iter().all(|item| item == "+one"),
        "{:?}",
        received.log
    );
}

#[tokio::test]
async fn a_hundred_writes_are_few_changes() {
    let folder = Folder::new();
    folder.write("a.kubeconfig", kubeconfig(&["one"]));
    let mut received = Received::synced(
        reported().debounce(Duration::from_secs(1)).dir(folder.path()),
        &folder,
    )
    .await;
    received.forget();
    for i in 0..100 {
        folder.write(
            "a.kubeconfig",
            kubeconfig_with_token(&["one"], &format!("token-{i}")),
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    received
        .until(|received| received.access("one").contains("token-99"))
        .await;
    assert!(received.log.len() < 20, "{:?}", received.log);
}

#[tokio::test]
async fn a_write_during_start_up_is_not_missed() {
    for _ in 0..10 {
        let folder = Folder::new();
        let mut received = Received::new(&reported().dir(folder.path()).build().unwrap(), &folder);
        let path = folder.at("a.kubeconfig");
        let writer = std::thread::spawn(move || {
            for i in 0..20 {
                fs::write(&path, kubeconfig_with_token(&["one"], &format!("token-{i}"))).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        received.until_synced().await;
        let is_last = |received: &Received| {
            received.specs.contains_key("one") && received.access("one").contains("token-19")
        };
        received.until(is_last).await;
        writer.join().unwrap();
    }
}

#[tokio::test]
async fn polling_alone_follows_too() {
    let folder = Folder::new();
    let file = folder.at("anything");
    let mut received = Received::synced(polling().file(&file), &folder).await;
    assert!(received.names().is_empty());
    folder.write("anything", kubeconfig_with_token(&["one"], "aaa"));
    received.until_names(&["one"]).await;
    // The same length, within one tick of the file system's clock.
    folder.write("anything", kubeconfig_with_token(&["one"], "bbb"));
    received
        .until(|received| received.access("one").contains("bbb"))
        .await;
    fs::remove_file(file).unwrap();
    received.until_names(&[]).await;
}

#[tokio::test]
async fn what_is_missing_is_waited_for_however_deep() {
    let folder = Folder::new();
    let builder = reported().file(folder.at("x/y/config")).dir(folder.at("p/q"));
    let mut received = Received::synced(builder, &folder).await;
    assert_eq!(received.log, ["synced"]);
    fs::create_dir_all(folder.at("x/y")).unwrap();
    fs::create_dir_all(folder.at("p/q")).unwrap();
    folder.write("x/y/config", kubeconfig(&["one"]));
    folder.write("p/q/a.kubeconfig", kubeconfig(&["two"]));
    received.until_names(&["one", "two"]).await;
    fs::remove_dir_all(folder.at("x")).unwrap();
    received.until_names(&["two"]).await;
    // Slowly, so that each folder is seen on its own.
    for dir in ["x", "x/y"] {
        fs::create_dir(folder.at(dir)).unwrap();
        received.unchanged(&folder, "p/q/marker.kubeconfig").await;
    }
    folder.write("x/y/config", kubeconfig(&["three"]));
    received.until_names(&["three", "two"]).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_mounted_secret_whose_link_is_swapped_is_followed() {
    use std::os::unix::fs::symlink;

    // As the kubelet does it: new folder, new link, rename of the link over the old one, removal of the old folder.
    let swap = |folder: &Folder, version: &str, file: &str| {
        fs::create_dir(folder.at(&format!("mount/..{version}"))).unwrap();
        folder.write(&format!("mount/..{version}/a.kubeconfig"), file);
        symlink(format!("..{version}"), folder.at("mount/..data_tmp")).unwrap();
        fs::rename(folder.at("mount/..data_tmp"), folder.at("mount/..data")).unwrap();
    };
    for builder in [reported(), polling()] {
        for by_file in [true, false] {
            let folder = Folder::new();
            fs::create_dir(folder.at("mount")).unwrap();
            swap(&folder, "1", &kubeconfig_with_token(&["one"], "v1"));
            symlink("..data/a.kubeconfig", folder.at("mount/a.kubeconfig")).unwrap();
            let builder = if by_file {
                builder.clone().file(folder.at("mount/a.kubeconfig"))
            } else {
                builder.clone().dir(folder.at("mount"))
            };
            let mut received = Received::synced(builder, &folder).await;
            assert_eq!(received.names(), ["one"]);
            received.forget();
            for version in ["2", "3", "4"] {
                swap(
                    &folder,
                    version,
                    &kubeconfig_with_token(&["one"], &format!("v{version}")),
                );
                let new = |received: &Received| received.access("one").contains(&format!("v{version}"));
                received.until(new).await;
                fs::remove_dir_all(folder.at("mount/..1")).ok();
            }
            assert_eq!(received.log, ["+one"; 3]);
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_linked_folder_that_is_swapped_is_followed() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new();
    for version in ["v1", "v2"] {
        fs::create_dir(folder.at(version)).unwrap();
        folder.write(&format!("{version}/a.kubeconfig"), kubeconfig(&[version]));
    }
    symlink("v1", folder.at("current")).unwrap();
    let mut received = Received::synced(reported().dir(folder.at("current")), &folder).await;
    symlink("v2", folder.at("next")).unwrap();
    fs::rename(folder.at("next"), folder.at("current")).unwrap();
    received.until_names(&["v2"]).await;
    folder.write("v2/a.kubeconfig", kubeconfig(&["v3"]));
    received.until_names(&["v3"]).await;
}

#[tokio::test]
async fn a_folder_that_is_removed_and_made_again_is_followed() {
    let folder = Folder::new();
    for i in 0..3 {
        let mut received = Received::synced(reported().dir(folder.at("dir")), &folder).await;
        for j in 0..3 {
            fs::create_dir(folder.at("dir")).unwrap();
            let context = format!("c{i}{j}");
            folder.write("dir/a.kubeconfig", kubeconfig(&[&context]));
            received.until_names(&[&context]).await;
            fs::remove_dir_all(folder.at("dir")).unwrap();
            received.until_names(&[]).await;
        }
    }
}

#[tokio::test]
async fn references_are_resolved_over_the_list_in_kubeconfig() {
    let folder = Folder::new();
    let contexts = "contexts:\n- {name: dev, context: {cluster: c, user: u}}\n\
                    clusters:\n- {name: c, cluster: {server: \"https://first\"}}\n";
    let others = "contexts:\n- {name: dev, context: {cluster: hidden}}\n- {name: two, context: {cluster: c, user: u}}\n\
                  clusters:\n- {name: c, cluster: {server: \"https://second\"}}\n\
                  users:\n- {name: u, user: {token: t}}\n";
    let list = [
        folder.write("a", contexts),
        folder.at("not there"),
        folder.write("b", others),
    ];
    let list = std::env::join_paths(list).unwrap();
    let builder = reported().environment(Environment::empty().kubeconfig(list));
    let mut received = Received::synced(builder, &folder).await;
    assert_eq!(
        received.names(),
        ["./b+dev", "dev", "two"],
        "the first file that defines a context has it"
    );
    for name in ["dev", "two"] {
        assert!(
            received.access(name).contains("https://first"),
            "{}",
            received.access(name)
        );
    }
    assert_eq!(received.clusters["dev"], "ok");

    // While the first file is half-written, the contexts of the second must not use the second's own cluster of the
    // same name.
    received.forget();
    folder.write("a", "contexts: [");
    received.until(|received| received.clusters["dev"] != "ok").await;
    received.unchanged(&folder, "not there").await;
    assert_eq!(received.log, ["!dev"]);
    folder.write("a", contexts);
    received.until(|received| received.clusters["dev"] == "ok").await;
    fs::remove_file(folder.at("a")).unwrap();
    received
        .until(|received| received.access("two").contains("https://second"))
        .await;
}

#[tokio::test]
async fn a_torn_file_of_a_list_goes_on_being_referred_to() {
    let folder = Folder::new();
    let users = "users:\n- {name: u, user: {token: t}}\n";
    let list = [
        folder.write("empty", ""),
        folder.write(
            "clusters",
            "contexts:\n- {name: dev, context: {cluster: c, user: u}}\n\
             clusters:\n- {name: c, cluster: {server: \"https://c\"}}\n",
        ),
        folder.write("users", users),
    ];
    let list = std::env::join_paths(list).unwrap();
    let mut received = Received::synced(
        reported().environment(Environment::empty().kubeconfig(list)),
        &folder,
    )
    .await;
    assert_eq!(received.log, ["+dev", "synced"]);
    for torn in ["", "users: ["] {
        received.forget();
        folder.write("users", torn);
        received
            .until(|received| received.clusters.contains_key("./users"))
            .await;
        folder.write("users", users);
        received
            .until(|received| !received.clusters.contains_key("./users"))
            .await;
        assert_eq!(received.log, ["!./users", "-./users"]);
    }
    fs::remove_file(folder.at("users")).unwrap();
    received.until(|received| received.clusters["dev"] != "ok").await;
}

#[tokio::test]
async fn a_file_given_twice_is_one() {
    let folder = Folder::new();
    let file = folder.write("a.kubeconfig", kubeconfig(&["one"]));
    let builder = reported()
        .files([&file, &file])
        .dirs([folder.path(), folder.path()])
        .globs(["*.kubeconfig", "a*"]);
    let received = Received::synced(builder, &folder).await;
    assert_eq!(received.log, ["+one", "synced"]);
}

#[tokio::test]
async fn separator_trust_and_globs_are_as_asked_for() {
    let folder = Folder::new();
    folder.write("dev.conf", kubeconfig(&["one"]));
    folder.write("kubeconfig.yaml", kubeconfig(&["two"]));
    let builder = reported()
        .dir(folder.path())
        .globs(["*.conf"])
        .qualified_names()
        .separator("::")
        .trust(Trust::Untrusted);
    let received = Received::synced(builder, &folder).await;
    assert_eq!(received.names(), ["./dev.conf::one"]);
    let access = &received.specs["./dev.conf::one"].access;
    assert!(matches!(access, Access::Endpoint(access) if access.trust == Trust::Untrusted));
}
