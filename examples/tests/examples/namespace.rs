use mcr_testkit::control_plane::KubeconfigBuilder;

use crate::{
    clusters::{folder, on_clusters},
    program::{Program, run},
};

/// `cluster namespace/name` of each line.
fn seen(text: &str) -> Vec<String> {
    let mut seen: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
        .collect();
    seen.sort();
    seen
}

#[test]
fn animals_are_seen_in_the_cluster_their_namespace_is() {
    let output = run("namespace", ["--count", "4", "--exit-after", "30"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        seen(&text),
        [
            "island island/bird",
            "jungle jungle/monkey",
            "zoo zoo/elephant",
            "zoo zoo/lion"
        ],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_real_cluster_is_a_fleet_too() {
    on_clusters(|clusters| async move {
        let (folder, plane) = (folder(), &clusters.berlin);
        let yaml = KubeconfigBuilder::new()
            .context("host", plane.url(), plane.ca_pem(), plane.admin_credentials())
            .to_yaml();
        let path = folder.path().join("host.yaml");
        std::fs::write(&path, yaml).unwrap();
        let path = path.to_str().unwrap();
        let program = Program::start("namespace", ["--hub-kubeconfig", path]);
        for (cluster, name) in [("zoo", "lion"), ("jungle", "monkey"), ("island", "bird")] {
            program.line(name, move |line: &serde_json::Value| {
                line["cluster"] == cluster
                    && line["namespace"] == cluster
                    && line["name"] == name
                    && line["event"] == "live"
            });
        }
        program.interrupt();

        let maps = run(
            "configmaps",
            [
                "--provider",
                "namespace",
                "--hub-kubeconfig",
                path,
                "--exit-after",
                "8",
                "--format",
                "json",
            ],
        );
        let text = String::from_utf8(maps.stdout).unwrap();
        assert!(
            text.lines()
                .any(|line| line.contains(r#""cluster":"island""#) && line.contains(r#""name":"bird""#)),
            "{text}"
        );
    });
}
