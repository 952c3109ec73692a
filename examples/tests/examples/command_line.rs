use std::process::Output;

use crate::program::run;

fn error(output: Output) -> String {
    assert_ne!(output.status.code(), Some(0));
    assert!(output.stdout.is_empty(), "errors go to stderr");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn every_example_explains_itself() {
    for (example, flag) in [
        ("configmaps", "--kubeconfig-dirs"),
        ("uniform", "--plain"),
        ("registry", "--kubeconfigs"),
        ("sync-local-to-remote", "--local-kubeconfig"),
    ] {
        let output = run(example, ["--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        for word in [flag, "--format", "json", "cargo run -p examples", example] {
            assert!(text.contains(word), "{example} --help has no {word}:\n{text}");
        }
    }
}

#[test]
fn wrong_flags_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let file = folder.path().join("hub.yaml");
    std::fs::write(&file, "current-context: nowhere\n").unwrap();
    let file = file.to_str().unwrap();
    let missing = &format!("{dir}/missing.yaml");
    for (example, args, words) in [
        ("configmaps", vec!["--bogus"], vec!["--bogus", "--help"]),
        (
            "configmaps",
            vec!["--format", "xml"],
            vec!["--format", "xml", "text, json"],
        ),
        (
            "configmaps",
            vec!["--provider", "kinf"],
            vec!["--provider", "kinf", "file"],
        ),
        (
            "configmaps",
            vec!["--exit-after", "soon"],
            vec!["--exit-after", "soon"],
        ),
        (
            "configmaps",
            vec!["--kubeconfigs", dir],
            vec!["--kubeconfigs", dir, "--kubeconfig-dirs"],
        ),
        (
            "registry",
            vec!["--kubeconfig-dirs", file],
            vec!["--kubeconfig-dirs", file, "--kubeconfigs"],
        ),
        ("configmaps", vec!["--globs", "a/*"], vec!["--globs", "a/*"]),
        (
            "configmaps",
            vec!["--provider", "single", "--kubeconfigs", missing],
            vec!["--kubeconfigs", missing],
        ),
        (
            "configmaps",
            vec!["--provider", "single", "--kubeconfigs", file],
            vec!["--kubeconfigs", file, "nowhere"],
        ),
        (
            "uniform",
            vec!["--plain", "--kubeconfigs", file],
            vec!["--plain", "--kubeconfigs"],
        ),
        ("sync-local-to-remote", vec![], vec!["--local-kubeconfig"]),
        (
            "sync-local-to-remote",
            vec!["--local-kubeconfig", missing],
            vec!["--local-kubeconfig", missing],
        ),
    ] {
        let text = error(run(example, &args));
        for word in words {
            assert!(
                text.contains(word),
                "{example} {args:?} does not mention {word}: {text}"
            );
        }
        assert!(
            !text.contains("backtrace") && !text.contains("panicked"),
            "{text}"
        );
    }
}
