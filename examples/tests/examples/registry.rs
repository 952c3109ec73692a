use serde_json::Value;

use crate::{
    clusters::{member, on_clusters},
    program::Program,
};

#[test]
fn prints_what_joins_what_is_broken_and_what_leaves() {
    on_clusters(|clusters| async move {
        let folder = tempfile::tempdir().unwrap();
        let dirs = ["--kubeconfig-dirs", folder.path().to_str().unwrap()];
        member(&clusters.berlin).join(folder.path());
        let program = Program::start("registry", dirs);
        let of = |cluster: &'static str, event: &'static str, state: &'static str| {
            move |line: &Value| {
                line["cluster"] == cluster
                    && (event.is_empty() || line["event"] == event)
                    && (state.is_empty() || line["status"]["state"] == state)
            }
        };
        program.line("a cluster", of("berlin", "joined", ""));
        program.line("it is connected", of("berlin", "", "Ready"));
        let late = member(&clusters.lyon).join(folder.path());
        program.line("another", of("lyon", "", "Ready"));

        // A context whose user is missing can never be used, and is shown all the same.
        let broken = "current-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: 'https://x'}}]\n";
        std::fs::write(folder.path().join("broken.kubeconfig"), broken).unwrap();
        let line = program.line("a broken one", of("x", "joined", "Broken"));
        assert!(line.to_string().contains("broken.kubeconfig"), "{line}");

        std::fs::remove_file(late).unwrap();
        program.line("one that leaves", of("lyon", "left", ""));
        let lines = program.interrupt();
        let left = lines.iter().filter(|line| line["event"] == "left").count();
        assert_eq!(
            left, 1,
            "the end of the program is no news of clusters: {lines:#?}"
        );
    });
}
