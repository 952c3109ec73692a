//! Compiles, and where they don't have `no_run` runs, the Rust code in the repository's documents, and compares the
//! versions in their `Cargo.toml` lines with those of the workspace.

#[cfg(all(doctest, feature = "file"))]
mod code {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../CONTRIBUTING.md")]
    struct Contributing;
    #[doc = include_str!("../../docs/architecture.md")]
    struct Architecture;
    #[doc = include_str!("../../docs/cluster-api.md")]
    struct ClusterApi;
    #[doc = include_str!("../../docs/comparison.md")]
    struct Comparison;
    #[doc = include_str!("../../docs/connections.md")]
    struct Connections;
    #[doc = include_str!("../../docs/faq.md")]
    struct Faq;
    #[doc = include_str!("../../docs/metrics.md")]
    struct Metrics;
    #[doc = include_str!("../../docs/migrating-from-go.md")]
    struct MigratingFromGo;
    #[doc = include_str!("../../docs/migrating-from-kube-rs.md")]
    struct MigratingFromKubeRs;
    #[doc = include_str!("../../docs/quickstart.md")]
    struct Quickstart;
    #[doc = include_str!("../../docs/sync.md")]
    struct Sync;
    #[doc = include_str!("../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../docs/writing-a-provider.md")]
    struct WritingAProvider;
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, env, fs, path::Path, process::Command};

    /// The documents that have lines for a `Cargo.toml`, besides the READMEs of the crates.
    const WITH_LINES: [&str; 6] = [
        "README.md",
        "docs/quickstart.md",
        "docs/sync.md",
        "docs/testing.md",
        "docs/third-party-providers.md",
        "docs/writing-a-provider.md",
    ];

    /// The documents beside the workspace's `Cargo.toml`.
    const AT_THE_ROOT: [&str; 6] = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "STABILITY.md",
    ];

    fn read(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The pages of the folders `docs` and `docs/design`.
    fn pages() -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut pages: Vec<String> = ["docs", "docs/design"]
            .into_iter()
            .flat_map(|folder| {
                let entries = fs::read_dir(root.join(folder)).unwrap();
                entries.map(move |entry| format!("{folder}/{}", entry.unwrap().file_name().display()))
            })
            .filter(|page| page.ends_with(".md"))
            .collect();
        pages.sort();
        assert!(!pages.is_empty());
        pages
    }

    /// The READMEs of the crates.
    fn readmes() -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        fs::read_dir(folder)
            .unwrap()
            .map(|entry| format!("crates/{}/README.md", entry.unwrap().file_name().display()))
            .collect()
    }

    /// The text without its fenced blocks.
    fn prose(text: &str) -> String {
        let mut fenced = false;
        let mut prose = String::new();
        for line in text.lines() {
            if line.starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// What can stand after the `#` of a link to this document.
    fn anchors(text: &str) -> Vec<String> {
        prose(text)
            .lines()
            .filter(|line| line.starts_with('#'))
            .map(|heading| {
                heading
                    .trim_start_matches('#')
                    .trim()
                    .chars()
                    .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                    .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
                    .collect()
            })
            .collect()
    }

    /// The text of the fenced blocks of a language.
    fn blocks(text: &str, language: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut open = false;
        for line in text.lines() {
            if line.starts_with("```") {
                open = line.trim_start_matches('`') == language;
                if open {
                    blocks.push(String::new());
                }
            } else if let Some(block) = blocks.last_mut().filter(|_| open) {
                block.push_str(line);
                block.push('\n');
            }
        }
        blocks
    }

    /// The value of a key, in a line of the form `key = "value"` or `{ key = "value", … }`.
    fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
        let (_, rest) = text.split_once(&format!("{key} = \""))?;
        rest.split_once('"').map(|(value, _)| value)
    }

    /// The dependencies of tables whose name ends in `dependencies`, with their versions.
    fn dependencies(toml: &str) -> BTreeMap<String, String> {
        let mut inside = false;
        let mut found = BTreeMap::new();
        for line in toml.lines() {
            if let Some(table) = line.strip_prefix('[') {
                inside = table.trim_end_matches(']').ends_with("dependencies");
                continue;
            }
            let Some((name, rest)) = line.split_once(" = ").filter(|_| inside) else {
                continue;
            };
            let version = match rest.strip_prefix('"') {
                Some(plain) => plain.split_once('"').map(|(version, _)| version),
                None => value(rest, "version"),
            };
            found.insert(name.to_owned(), version.unwrap_or_default().to_owned());
        }
        found
    }

    /// Whether a requirement of the documents and one of the workspace ask for the same releases.
    fn agree(documented: &str, ours: &str) -> bool {
        // Crates of this workspace require each other exactly.
        let ours = ours.trim_start_matches('=');
        let significant = |version: &str| -> Vec<String> {
            let parts = version.split('.').map(str::to_owned).collect::<Vec<_>>();
            let leading_zeros = parts.iter().take_while(|part| *part == "0").count();
            parts.into_iter().take(leading_zeros + 1).collect()
        };
        significant(documented) == significant(ours)
    }

    #[test]
    fn the_versions_in_the_documents_are_those_of_the_workspace() {
        let ours = dependencies(&read("Cargo.toml"));
        for document in WITH_LINES.map(str::to_owned).into_iter().chain(readmes()) {
            let blocks = blocks(&read(&document), "toml");
            assert!(
                !blocks.is_empty() || document.starts_with("crates/"),
                "{document} has no toml block any more: take it off the list"
            );
            for (name, version) in blocks.iter().flat_map(|block| dependencies(block)) {
                let known = ours.get(&name);
                let known = known
                    .unwrap_or_else(|| panic!("{document} names {name}, which the workspace does not use"));
                assert!(
                    agree(&version, known),
                    "{document} has {name} = {version:?}, the workspace {known:?}"
                );
            }
        }
    }

    #[test]
    fn the_documents_name_the_rust_version_of_the_workspace() {
        let manifest = read("Cargo.toml");
        let rust = value(&manifest, "rust-version").unwrap_or_default();
        for document in [
            "README.md",
            "docs/quickstart.md",
            "docs/quickstart-kind.md",
            "CONTRIBUTING.md",
        ] {
            assert!(
                read(document).contains(&format!("Rust {rust}")),
                "{document} does not name Rust {rust}"
            );
        }
    }

    /// The first row of the table in `STABILITY.md` is what this workspace is built with.
    #[test]
    fn the_table_of_versions_is_that_of_the_workspace() {
        let page = read("STABILITY.md");
        let (_, table) = page.split_once("<!-- table -->").unwrap();
        let (table, _) = table.split_once("<!-- end -->").unwrap();
        let mut rows = table.trim().lines().map(|line| -> Vec<&str> {
            let cells = line.trim_matches('|').split('|');
            cells.map(str::trim).collect()
        });
        let heads = [
            "mcr",
            "kube",
            "k8s-openapi",
            "Kubernetes types",
            "tested against",
            "Rust",
        ];
        assert_eq!(rows.next().unwrap(), heads);
        let row = rows.nth(1).unwrap();

        let manifest = read("Cargo.toml");
        let ours = dependencies(&manifest);
        for (documented, name) in row.iter().zip(&heads[..3]) {
            assert!(
                agree(documented, &ours[*name]),
                "STABILITY.md has {name} {documented}, the workspace {}",
                ours[*name]
            );
        }
        assert_eq!(row[3], kubernetes_types());
        let recipe = read("xtask/src/assets/recipe.rs");
        let tested = value(&recipe, "KUBERNETES: &str").unwrap();
        assert!(
            tested.starts_with(&format!("{}.", row[4])),
            "the tests start Kubernetes {tested}"
        );
        assert_eq!(Some(row[5]), value(&manifest, "rust-version"));
    }

    /// The first and the last version of Kubernetes that `k8s-openapi` has a feature for.
    fn kubernetes_types() -> String {
        let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "metadata",
                "--format-version",
                "1",
                "--offline",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages
            .iter()
            .find(|package| package["name"] == "k8s-openapi")
            .unwrap();
        let features = package["features"].as_object().unwrap();
        let minors = features
            .keys()
            .filter_map(|feature| feature.strip_prefix("v1_")?.parse::<u32>().ok());
        let (first, last) = (minors.clone().min().unwrap(), minors.max().unwrap());
        format!("1.{first} – 1.{last}")
    }

    /// The commands that publish a first release, and those that yank one, name each published crate.
    #[test]
    fn a_release_forgets_no_crate() {
        let page = read("RELEASING.md");
        let named = |command: &str, name: &str| {
            let mut lines = page.lines().filter(|line| line.contains(command));
            lines.any(|line| {
                let (words, rest) = line.split_once(';').unwrap_or((line, ""));
                let prefix = if rest.contains("mcr-provider-$crate") {
                    "mcr-provider-"
                } else {
                    ""
                };
                let mut words = words.split_whitespace();
                words.any(|word| format!("{prefix}{word}") == name)
            })
        };
        for readme in readmes() {
            let folder = readme.trim_end_matches("/README.md");
            let name = folder.trim_start_matches("crates/");
            let is_published = !read(&format!("{folder}/Cargo.toml")).contains("publish = false");
            for command in ["cargo publish -p", "cargo yank"] {
                assert!(
                    !is_published || named(command, name),
                    "RELEASING.md: {command} leaves out {name}"
                );
            }
        }
    }

    #[test]
    fn every_link_between_the_documents_leads_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for document in AT_THE_ROOT.map(str::to_owned).into_iter().chain(pages()) {
            let text = read(&document);
            let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
            for (link, _) in prose(&text)
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'))
            {
                if link.contains("://") {
                    continue;
                }
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = match target {
                    "" => document.clone(),
                    target => folder.join(target).display().to_string(),
                };
                assert!(
                    root.join(&target).exists(),
                    "{document} links to {link}, which is not there"
                );
                assert!(
                    anchor.is_empty() || anchors(&read(&target)).iter().any(|known| known == anchor),
                    "{document} links to {link}, and {target} has no heading of that name"
                );
            }
        }
    }

    #[test]
    fn the_code_of_every_page_is_compiled() {
        let here = read("examples/src/docs.rs");
        for page in pages() {
            assert!(
                !read(&page).contains("\n```rust")
                    || here.contains(&format!("include_str!(\"../../{page}\")")),
                "{page} has Rust code that nothing compiles: add it to the list above"
            );
        }
    }

    /// Documents name the tests of their promises as `file::function`; all of them must be there.
    #[test]
    fn every_test_that_a_document_names_exists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut named = 0;
        for document in AT_THE_ROOT.map(str::to_owned).into_iter().chain(pages()) {
            let text = read(&document);
            let quoted = || text.split('`').skip(1).step_by(2);
            assert!(
                quoted().all(|text| !text.starts_with("::")),
                "{document}: a test is named without its file"
            );
            for reference in quoted().filter(|text| text.contains(".rs::")) {
                let (file, functions) = reference.split_once("::").unwrap_or_default();
                let path = root.join(file);
                let text = fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{document}: {reference}: {error}"));
                let function = functions.rsplit("::").next().unwrap_or_default();
                let is_scenario = text.contains("mcr_testkit::steps!(")
                    && text.lines().any(|line| line.trim() == format!("{function},"));
                assert!(
                    is_scenario || text.contains(&format!("fn {function}(")),
                    "{document}: {reference} is not there"
                );
                named += 1;
            }
        }
        assert!(named > 0, "no test is named any more");
    }
}
