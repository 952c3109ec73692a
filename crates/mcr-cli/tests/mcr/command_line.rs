//! Help, completions and manual pages.

use std::path::Path;

use crate::harness::User;

const COMMANDS: [&[&str]; 8] = [
    &[],
    &["kubeconfig-secret"],
    &["kubeconfig-secret", "create"],
    &["clusters"],
    &["doctor"],
    &["why"],
    &["completions"],
    &["man"],
];

/// With `MCR_UPDATE_SNAPSHOTS=1` the output of the program is written down in place of being compared.
#[tokio::test]
async fn the_help_is_as_it_was_written_down() {
    let user = User::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcr/help");
    let mut wrong = Vec::new();
    for command in COMMANDS {
        let text_of = user.mcr(command.iter().chain(&["--help"])).await.ended(0);
        let name = [&["mcr"], command].concat().join("-");
        let path = folder.join(format!("{name}.txt"));
        if std::env::var_os("MCR_UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &text_of.out).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != text_of.out {
            wrong.push(name);
        }
    }
    assert_eq!(
        wrong, [""; 0],
        "review the changes with MCR_UPDATE_SNAPSHOTS=1 and git diff"
    );
}

#[tokio::test]
async fn proxies_of_the_environment_are_read_only_with_the_flag() {
    let user = User::new();
    let mut args = vec!["clusters", "--kubeconfigs", "/nowhere/kubeconfig"];
    let without = user.mcr_with("HTTPS_PROXY", "ftp://proxy", &args).await;
    assert!(!without.err.contains("HTTPS_PROXY"), "{}", without.err);
    args.push("--proxy-from-env");
    let with = user.mcr_with("HTTPS_PROXY", "ftp://proxy", &args).await;
    assert!(
        with.err.contains("HTTPS_PROXY: has no URL of a proxy"),
        "{}",
        with.err
    );
}

#[tokio::test]
async fn the_help_fills_the_width_of_the_terminal() {
    let user = User::new();
    for command in COMMANDS {
        let help = async |columns| {
            let args = command.iter().chain(&["--help"]);
            user.mcr_with("COLUMNS", columns, args).await.ended(0).out
        };
        let narrow = help("60").await;
        let mut lines = narrow.lines().filter(|line| !line.starts_with("Usage: "));
        let long = lines.find(|line| line.chars().count() > 60);
        // A word is not broken, whatever its length.
        assert!(
            long.is_none_or(|line| line.split_whitespace().count() < 3),
            "{long:?}"
        );
        let wide = help("400").await;
        for text in [
            "for example RUST_LOG=mcr_core=debug. NO_COLOR=1",
            "and its binding to the cluster of --context, requests",
        ] {
            assert_eq!(
                wide.contains(text),
                narrow
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
                    .contains(text),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn completions_and_manual_pages_know_all_commands() {
    let user = User::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let text_of = user.mcr(["completions", shell]).await.ended(0);
        for word in COMMANDS
            .iter()
            .flat_map(|command| command.iter())
            .chain(&["rotate", "fail-unless-ready"])
        {
            assert!(text_of.out.contains(word), "{word} in {shell}");
        }
    }
    let page = user.mcr(["man"]).await.ended(0).out;
    for word in COMMANDS.iter().filter_map(|command| command.first()) {
        let word = word.replace('-', "\\-");
        assert!(page.contains(&format!("mcr\\-{word}(1)")), "{word} in {page}");
    }
    let dir = user.home().join("man1");
    std::fs::create_dir(&dir).unwrap();
    user.mcr(["man", "--dir", dir.to_str().unwrap()]).await.ended(0);
    for command in COMMANDS {
        let name = [&["mcr"], command].concat().join("-");
        let page = std::fs::read_to_string(dir.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{name}");
    }
    user.runs("3 | man --dir nowhere | | --dir nowhere").await;
}

#[tokio::test]
async fn mistakes_end_with_the_code_of_mistakes() {
    let user = User::new();
    user.runs(
        "2 | no-such-command | |
         2 | clusters --no-such-flag | |
         2 | clusters --provider nobody | | possible values: file, kubeconfig, cluster-api, cluster-inventory, gardener, kcp, \
             kcp-initializing, kcp-terminating, kind, namespace, single
         2 | doctor --for Pods! | | is not a resource
         2 | kubeconfig-secret create | | --context
         2 | kubeconfig-secret create -c x -o yaml | | --dry-run
         2 | kubeconfig-secret create -c x --skip-create-rbac -r x | | cannot be used with
         2 | kubeconfig-secret create -c x --skip-create-rbac -t role | | cannot be used with
         2 | kubeconfig-secret create -c x --rotate -t role | | cannot be used with
         2 | kubeconfig-secret create -c x --rotate --skip-create-rbac | | cannot be used with
         2 | clusters --server http://x -n y | | cannot be used with
         2 | clusters --server http://x --kubeconfigs y | | cannot be used with
         3 | clusters --provider kubeconfig -l env=prod | | leave --selector out
         3 | doctor --provider cluster-api,file -l env=prod | | leave --selector out
         3 | kubeconfig-secret create -c x | | there is no such context
         3 | kubeconfig-secret create -c x | | there are none
         2 | | | Usage: mcr",
    )
    .await;
    user.run("--version")
        .await
        .ended(0)
        .prints(env!("CARGO_PKG_VERSION"));
}
