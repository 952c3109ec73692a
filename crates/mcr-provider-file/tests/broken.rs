//! Bad input breaks only the clusters that it describes, and its announcement explains the error.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod support;

use std::fs;

use support::{Folder, Received, kubeconfig, reported};

/// The clusters of a folder with a good file and this one.
async fn beside_a_good_one(file: &str, text: impl AsRef<[u8]>) -> Vec<(String, String)> {
    let folder = Folder::new();
    folder.write("good.kubeconfig", kubeconfig(&["one"]));
    folder.write(file, text);
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    let good = received.clusters.remove("one");
    assert_eq!(good.as_deref(), Some("ok"), "the good file is not touched");
    received.clusters.into_iter().collect()
}

fn pair(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

#[tokio::test]
async fn bad_data_breaks_only_its_context() {
    let clusters = "- {name: no-server, cluster: {}}\n\
                    - {name: bad-ca, cluster: {server: \"https://c\", certificate-authority-data: \"%\"}}\n\
                    - {name: insecure, cluster: {server: \"https://c\", insecure-skip-tls-verify: true}}\n\
                    - {name: files, cluster: {server: \"https://c\", certificate-authority: not-there-yet.crt}}\n";
    let names = ["no-server", "bad-ca", "insecure", "files"];
    let contexts = names
        .map(|name| format!("- {{name: {name}, context: {{cluster: {name}}}}}\n"))
        .concat();
    let text = format!("contexts:\n{contexts}clusters:\n{clusters}");
    assert_eq!(
        beside_a_good_one("bad.kubeconfig", text).await,
        [
            pair(
                "bad-ca",
                "file ./bad.kubeconfig, context \"bad-ca\": clusters[name=\"bad-ca\"].cluster.certificate-authority-data: is not valid base64; encode the PEM with base64 -w0 and copy all of it"
            ),
            pair("files", "ok"),
            pair("insecure", "ok"),
            pair(
                "no-server",
                "file ./bad.kubeconfig, context \"no-server\": clusters[name=\"no-server\"].cluster.server: is missing; write the address of the API server, https://host:port"
            ),
        ]
    );
}

#[tokio::test]
async fn unknown_fields_are_ignored_and_empty_files_add_nothing() {
    let text = format!(
        "{}preferences: {{colors: true}}\nfuture: [1, {{x: y}}]\n",
        kubeconfig(&["a"])
    );
    assert_eq!(beside_a_good_one("new.kubeconfig", text).await, [pair("a", "ok")]);
    for empty in [
        "",
        " \n",
        "# nothing yet\n",
        "---\n",
        "apiVersion: v1\nkind: Config\n",
        "contexts: []\n",
    ] {
        assert_eq!(beside_a_good_one("new.kubeconfig", empty).await, []);
    }
}

/// The names of clusters, and for each that is broken its error.
fn shown(received: &Received) -> Vec<(&str, &str)> {
    let pairs = received.clusters.iter();
    pairs
        .map(|(name, state)| (name.as_str(), state.as_str()))
        .collect()
}

#[tokio::test]
async fn a_context_that_makes_no_cluster_name_is_broken_under_another() {
    let long = "x".repeat(2000);
    let contexts = format!(
        "contexts:\n- {{name: \"a\\tb\", context: {{cluster: fine}}}}\n- {{name: \"pr\\u202eod\", context: {{cluster: fine}}}}\n\
         - {{name: {long}, context: {{cluster: fine}}}}\n"
    );
    let text = kubeconfig(&["fine"]).replace("contexts:\n", &contexts);
    for qualified in [false, true] {
        let folder = Folder::new();
        folder.write("new.kubeconfig", &text);
        let mut builder = reported().dir(folder.path());
        if qualified {
            builder = builder.qualified_names();
        }
        let received = Received::synced(builder, &folder).await;
        let mut clusters = shown(&received);
        let fine = clusters.iter().position(|(_, state)| *state == "ok").unwrap();
        let (name, _) = clusters.remove(fine);
        assert_eq!(
            name,
            if qualified {
                "./new.kubeconfig+fine"
            } else {
                "fine"
            }
        );
        assert_eq!(clusters.len(), 3, "{clusters:?}");
        for (context, problem) in [
            ("\"a\\tb\"", "has U+0009 at byte"),
            ("\"pr\\u{202e}od\"", "has U+202E at byte"),
            (
                &*format!("\"{}\"...", &long[..80]),
                "bytes, more than the 1024 allowed; rename",
            ),
        ] {
            let object = format!("file ./new.kubeconfig, context {context}: ");
            let found = clusters.iter().find(|(_, error)| error.starts_with(&object));
            let (name, error) = found.unwrap_or_else(|| panic!("no {object:?} in {clusters:?}"));
            let fix =
                format!("kubectl --kubeconfig ./new.kubeconfig config rename-context {context} NEW_NAME");
            assert!(error.contains(problem) && error.contains(&fix), "{error}");
            assert!(
                name.len() <= 63 && !error.contains('\u{202e}') && error.len() < 1000,
                "{name}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_path_that_turns_text_is_shown_escaped() {
    let folder = Folder::new();
    folder.write("a\u{202e}b.kubeconfig", "contexts: [");
    folder.write("c\u{202e}d.kubeconfig", kubeconfig(&["one"]));
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert!(received.specs["one"].properties["file"].ends_with("c\\u{202e}d.kubeconfig\""));
    let broken = received
        .clusters
        .iter()
        .find(|(_, state)| *state != "ok")
        .unwrap();
    assert!(broken.1.contains("a\\u{202e}b.kubeconfig"), "{broken:?}");
    assert!(
        !format!("{}{}", broken.0, broken.1).contains('\u{202e}'),
        "{broken:?}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn a_path_that_is_not_text_breaks_qualified_names_only() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let folder = Folder::new();
    let file = folder.path().join(OsStr::from_bytes(b"a\xff.kubeconfig"));
    fs::write(file, kubeconfig(&["one"])).unwrap();
    let received = Received::synced(reported().dir(folder.path()), &folder).await;
    assert_eq!(shown(&received), [("one", "ok")]);
    let received = Received::synced(reported().dir(folder.path()).qualified_names(), &folder).await;
    let state = "file ./a\u{fffd}.kubeconfig, context \"one\": the path is not UTF-8, and names of clusters are made of it; \
                 rename the file";
    assert_eq!(shown(&received), [("./a\u{fffd}.kubeconfig+one", state)]);
}

#[tokio::test]
async fn of_two_equal_qualified_names_the_first_is_kept_and_the_second_is_broken() {
    let folder = Folder::new();
    let first = folder.write("a", kubeconfig(&["b+c"]));
    let second = folder.write("a+b", kubeconfig(&["c", "d"]));
    let builder = reported().files([first, second]).qualified_names();
    let received = Received::synced(builder, &folder).await;
    let mut clusters = shown(&received);
    let (broken, error) = clusters.pop().unwrap();
    assert_eq!(clusters, [("./a+b+c", "ok"), ("./a+b+d", "ok")]);
    assert_eq!(received.specs["./a+b+c"].properties["context"], "b+c");
    assert!(broken.contains("-a-b-c-"), "{broken}");
    assert_eq!(
        error,
        "file ./a+b, context \"c\": file ./a has the cluster name ./a+b+c too, and the first file in order keeps it; rename the \
         context (kubectl --kubeconfig ./a+b config rename-context \"c\" NEW_NAME), or choose another separator"
    );
}

#[tokio::test]
async fn a_folder_as_file_and_a_file_as_folder() {
    let folder = Folder::new();
    let file = folder.write("file", kubeconfig(&["one"]));
    fs::create_dir(folder.at("dir")).unwrap();
    let received = Received::synced(reported().file(folder.at("dir")).dir(&file), &folder).await;
    assert_eq!(
        received.clusters.into_iter().collect::<Vec<_>>(),
        [
            pair(
                "./dir",
                "file ./dir: it is a folder; give folders with `dir`, or name a file in it"
            ),
            pair(
                "./file",
                "folder ./file: it is a file; give files with `file`, or name the folder it is in"
            ),
        ]
    );
    // A folder whose name matches a glob is not a kubeconfig.
    fs::create_dir(folder.at("dir/x.kubeconfig")).unwrap();
    let received = Received::synced(reported().dir(folder.at("dir")), &folder).await;
    assert_eq!(received.log, ["synced"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_becomes_unreadable_keeps_its_clusters_and_a_pipe_is_not_opened() {
    let folder = Folder::new();
    folder.write("good.kubeconfig", kubeconfig(&["one"]));
    let file = folder.write("bad.kubeconfig", kubeconfig(&["two", "three"]));
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    received.forget();
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    received.until(|received| received.log.len() == 2).await;
    assert_eq!(received.log, ["!three", "!two"]);
    assert_eq!(
        received.clusters["two"],
        "file ./bad.kubeconfig, context \"two\": it is a symbolic link to \"nowhere\", which does not exist; create \
         the target or remove the link"
    );
    assert_eq!(received.clusters["one"], "ok");

    // If the clusters of the file are unknown, the file itself is announced as broken.
    let received = Received::synced(reported().file(&file), &folder).await;
    assert_eq!(received.names(), ["./bad.kubeconfig"]);

    let pipe = folder.at("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let received = Received::synced(reported().file(&pipe), &folder).await;
    assert_eq!(
        received.clusters["./pipe"],
        "file ./pipe: it is a pipe, socket or device, which can be read only once; write the kubeconfig to a file"
    );
}

#[tokio::test]
async fn a_half_written_file_is_broken_until_it_is_whole() {
    let folder = Folder::new();
    let whole = kubeconfig(&["one", "two"]);
    folder.write("a.kubeconfig", &whole);
    let mut received = Received::synced(reported().dir(folder.path()), &folder).await;
    for (torn, text) in [
        (
            &whole[..whole.len() / 2],
            "file ./a.kubeconfig, context \"one\": the kubeconfig can't be read: it is not valid YAML (line 7, column \
             3); correct it there",
        ),
        (
            "",
            "file ./a.kubeconfig, context \"one\": it is empty but had content before, so it counts as half written; delete it to remove its contexts",
        ),
    ] {
        received.forget();
        folder.write("a.kubeconfig", torn);
        received
            .until(|received| received.clusters.values().all(|c| c != "ok"))
            .await;
        assert_eq!(received.clusters["one"], text);
        folder.write("a.kubeconfig", &whole);
        received.until_names(&["one", "two"]).await;
        assert!(
            received.log.iter().all(|item| !item.starts_with('-')),
            "{:?}",
            received.log
        );
    }
    folder.write("a.kubeconfig", "apiVersion: v1\nkind: Config\ncontexts: []\n");
    received.until_names(&[]).await;
}
