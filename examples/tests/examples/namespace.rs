use crate::{
    clusters::{member, on_clusters},
    program::{Program, run},
};

const ANIMALS: [&str; 4] = ["island bird", "jungle monkey", "zoo elephant", "zoo lion"];

#[test]
fn animals_are_seen_in_the_cluster_their_namespace_is() {
    let output = run("namespace", ["--count", "4", "--exit-after", "30"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let seen = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let mut seen: Vec<String> = text.lines().map(seen).collect();
    seen.sort();
    let expected = ANIMALS.map(|animal| {
        let (cluster, name) = animal.split_once(' ').unwrap();
        format!("{cluster} {cluster}/{name}")
    });
    assert_eq!(seen, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_real_cluster_is_a_fleet_too() {
    on_clusters(|clusters| async move {
        let folder = tempfile::tempdir().unwrap();
        let path = member(&clusters.berlin).join(folder.path());
        let hub = ["--hub-kubeconfig", path.to_str().unwrap()];
        for (example, args) in [
            ("namespace", &[][..]),
            ("configmaps", &["--provider", "namespace"]),
        ] {
            let program = Program::start(example, [&hub[..], args].concat());
            for animal in ANIMALS {
                let (cluster, name) = animal.split_once(' ').unwrap();
                program.line(animal, |line| {
                    line["cluster"] == cluster && line["namespace"] == cluster && line["name"] == name
                });
            }
            program.interrupt();
        }
    });
}
