use serde_json::Value;

use crate::{
    clusters::{create, delete, folder, kubeconfig, namespace, on_clusters},
    program::{Program, says},
};

#[test]
fn prints_what_is_there_and_what_is_deleted_in_every_cluster_also_in_one_that_joins_later() {
    on_clusters(|clusters| async move {
        let folder = folder();
        for plane in [&clusters.berlin, &clusters.lyon] {
            namespace(plane, "print").await;
            create(plane, "print", "first", ("a", "b")).await;
        }
        let berlin = kubeconfig(folder.path(), &clusters.berlin);
        // Files that don't exist yet, and empty strings in the list, do no harm.
        let list = format!(
            "{},,{}",
            berlin.display(),
            folder.path().join("lyon.kubeconfig").display()
        );
        let program = Program::start("configmaps", ["--kubeconfigs", &list, "--globs", ""]);
        let line = program.line("what is there", says("berlin", "first", "live"));
        assert_eq!(
            line,
            serde_json::json!({
                "cluster": "berlin",
                "namespace": "print",
                "name": "first",
                "event": "live",
            })
        );
        assert!(
            !program
                .lines()
                .iter()
                .any(|line| line["cluster"].as_str().unwrap().ends_with("lyon"))
        );

        kubeconfig(folder.path(), &clusters.lyon);
        program.line("the cluster that joins", says("lyon", "first", "live"));
        create(&clusters.lyon, "print", "second", ("a", "b")).await;
        program.line("a new object", says("lyon", "second", "live"));
        delete(&clusters.berlin, "print", "first").await;
        program.line("a deletion", says("berlin", "first", "deleted"));

        std::fs::remove_file(folder.path().join("lyon.kubeconfig")).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
        while !program.log().contains("cluster is gone") {
            assert!(std::time::Instant::now() < deadline, "{}", program.log());
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        let lines = program.interrupt();
        // Other tests delete things of their own meanwhile.
        let deleted = |line: &&Value| {
            line["event"] == "deleted"
                && line["namespace"] == "print"
                && line["cluster"].as_str().unwrap().ends_with("lyon")
        };
        assert_eq!(
            lines.iter().filter(deleted).count(),
            0,
            "leaving is no deletion: {lines:#?}"
        );
    });
}

#[test]
fn runs_on_the_one_cluster_of_a_kubeconfig() {
    on_clusters(|clusters| async move {
        let folder = folder();
        let hub = kubeconfig(folder.path(), &clusters.hub);
        let hub = hub.to_str().unwrap();
        let output = crate::program::run(
            "configmaps",
            [
                "--provider",
                "single",
                "--hub-kubeconfig",
                hub,
                "--count",
                "1",
                "--exit-after",
                "40",
            ],
        );
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("live     local  "), "{text}");
    });
}
