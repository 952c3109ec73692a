use crate::{
    clusters::{folder, kubeconfig, on_clusters},
    program::{Program, run},
};

#[test]
fn prints_what_joins_what_is_broken_and_what_leaves() {
    on_clusters(|clusters| async move {
        let folder = folder();
        kubeconfig(folder.path(), &clusters.berlin);
        let program = Program::start("registry", ["--kubeconfig-dirs", folder.path().to_str().unwrap()]);
        let of = |cluster: &'static str, event: &'static str, state: &'static str| {
            move |line: &serde_json::Value| {
                line["cluster"]
                    .as_str()
                    .is_some_and(|name| name.ends_with(cluster))
                    && (event.is_empty() || line["event"] == event)
                    && (state.is_empty() || line["status"]["state"] == state)
            }
        };
        program.line("a cluster", of("berlin", "joined", ""));
        program.line("it is connected", of("berlin", "", "Ready"));
        kubeconfig(folder.path(), &clusters.lyon);
        program.line("another", of("lyon", "", "Ready"));

        // A context whose user is missing can never be used, and is shown all the same.
        let broken = "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: 'https://x'}}]\n";
        std::fs::write(folder.path().join("broken.kubeconfig"), broken).unwrap();
        let line = program.line("a broken one", of("x", "joined", "Broken"));
        assert!(
            line["status"]["reason"]
                .as_str()
                .unwrap()
                .contains("broken.kubeconfig"),
            "{line}"
        );

        std::fs::remove_file(folder.path().join("lyon.kubeconfig")).unwrap();
        program.line("one that leaves", of("lyon", "left", ""));
        let lines = program.interrupt();
        let left = lines.iter().filter(|line| line["event"] == "left").count();
        assert_eq!(
            left, 1,
            "the end of the program is no news of clusters: {lines:#?}"
        );

        let text = run(
            "registry",
            [
                "--kubeconfig-dirs",
                folder.path().to_str().unwrap(),
                "--exit-after",
                "3",
            ],
        );
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(text.starts_with("CLUSTER ("), "{text}");
        let ready = |line: &str| line.split_whitespace().take(2).eq(["berlin", "Ready"]);
        assert!(text.lines().any(ready), "{text}");
    });
}
