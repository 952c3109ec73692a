//! Rules for crates: their dependencies on each other, the manifests of published crates, and separate builds.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// The members of the workspace, as `cargo metadata` describes them.
pub(super) fn members() -> Result<Vec<Value>> {
    let output = workspace::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .output()
        .context("running `cargo metadata`")?;
    if !output.status.success() {
        bail!(
            "`cargo metadata` failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        _ => bail!("cargo metadata lists no packages"),
    }
}

/// The names of the crates that are published.
pub(super) fn published() -> Result<Vec<String>> {
    Ok(members()?
        .iter()
        .filter(|package| is_published(package))
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect())
}

/// Checks the library of each crate in `crates` in a separate build.
///
/// In a build of the workspace, each dependency gets the features that any member requests. So a crate that forgets to
/// request a feature compiles in the workspace, but fails for its users.
pub(super) fn check_alone() -> Result<()> {
    let crates = workspace::root().join("crates");
    let mut failed = Vec::new();
    for package in members()? {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        if manifest.starts_with(&crates) {
            let mut command = workspace::cargo();
            command.args(["check", "--locked", "--quiet", "--lib", "--package", name]);
            if workspace::check(&mut command).is_err() {
                failed.push(name.to_owned());
            }
        }
    }
    if !failed.is_empty() {
        bail!(
            "built alone, these crates do not compile: {}. See above which feature of a dependency is missing",
            failed.join(", ")
        );
    }
    Ok(())
}

pub(super) fn is_published(package: &Value) -> bool {
    package["publish"]
        .as_array()
        .is_none_or(|registries| !registries.is_empty())
}

/// Checks all members of the workspace. The error lists all findings.
pub(super) fn check() -> Result<()> {
    let packages = members()?;
    let members: Vec<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();

    let mut wrong = Vec::new();
    for package in &packages {
        dependencies(package, &members, &mut wrong);
        // Nobody reads the manifest of a crate that is never published.
        if is_published(package) {
            manifest(package, &mut wrong);
            if has_kubernetes_types(package, &packages) && !docs_rs_has_a_version(package) {
                wrong.push(format!(
                    "{} does not build on docs.rs, because no version of Kubernetes' types is chosen there: \
                     choose one in [package.metadata.docs.rs], as its siblings do",
                    package["name"]
                ));
            }
        }
    }
    if !wrong.is_empty() {
        bail!(
            "{} of the crate rules are broken:\n  {}",
            wrong.len(),
            wrong.join("\n  ")
        );
    }
    Ok(())
}

/// The members of the workspace that a crate may depend on. `None` allows all.
fn allowed(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "mcr-access" | "mcr-doubles" | "mcr-garden-double" | "mcr-h1" | "mcr-lease" | "mcr-store" => {
            Some(&[])
        }
        "mcr-client" => Some(&["mcr-access", "mcr-h1"]),
        "mcr-watch" => Some(&["mcr-access", "mcr-client", "mcr-store"]),
        "mcr-core" => Some(&["mcr-access", "mcr-client", "mcr-store", "mcr-watch"]),
        "mcr" => Some(&["mcr-core", "mcr-lease"]),
        "mcr-sync" => Some(&["mcr"]),
        "mcr-testkit" => Some(&["mcr-access", "mcr-core"]),
        "mcr-kcp-double" => Some(&["mcr-testkit"]),
        _ if name.starts_with("mcr-provider-") => Some(&["mcr-core"]),
        // A plugin runs once for each credential, so it must start quickly, without the parts of a controller.
        _ if name.starts_with("mcr-exec-") => Some(&["mcr-access", "mcr-client"]),
        _ => None,
    }
}

fn dependencies(package: &Value, members: &[&str], wrong: &mut Vec<String>) {
    let name = package["name"].as_str().unwrap_or_default();
    let Some(allowed) = allowed(name) else { return };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let other = dependency["name"].as_str().unwrap_or_default();
        if !members.contains(&other) {
            continue;
        }
        // The kind of a normal dependency is null.
        match dependency["kind"].as_str() {
            None if !allowed.contains(&other) => {
                wrong.push(format!("{name} must not depend on {other}: only on {allowed:?}"));
            }
            Some("build") => wrong.push(format!("{name} must not build-depend on {other}")),
            // With a version, dependencies and dev-dependencies could form a circle, so neither crate could be
            // published first.
            Some("dev") if dependency["req"] != "*" => {
                wrong.push(format!(
                    "{name} must dev-depend on {other} by path only, without a version"
                ));
            }
            _ => {}
        }
    }
}

fn manifest(package: &Value, wrong: &mut Vec<String>) {
    let name = package["name"].as_str().unwrap_or_default();
    let path = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let Some(folder) = path.parent() else { return };

    if folder.file_name().is_none_or(|folder| folder != name) {
        wrong.push(format!(
            "{name} is in {}: the folder must have the crate's name",
            folder.display()
        ));
    }
    let readme = package["readme"].as_str().map(|readme| folder.join(readme));
    if !readme
        .is_some_and(|readme| std::fs::read_to_string(readme).is_ok_and(|text| text.lines().count() > 1))
    {
        wrong.push(format!("{name} needs a README of more than its name"));
    }
    let description = package["description"].as_str().unwrap_or_default();
    if description.len() < 20 {
        wrong.push(format!("{name} needs a description that says what it is for"));
    }
    for field in ["keywords", "categories"] {
        if package[field].as_array().is_none_or(|words| words.is_empty()) {
            wrong.push(format!("{name} needs {field}"));
        }
    }
    for field in ["license", "repository", "documentation", "rust_version"] {
        if package[field].is_null() {
            wrong.push(format!("{name} needs {field}"));
        }
    }
    // A package contains only files of its own folder.
    if !folder.join("LICENSE").is_file() {
        wrong.push(format!(
            "{name} needs the licence in its package: ln -s ../../LICENSE crates/{name}/LICENSE"
        ));
    }
}

/// Whether the crate depends on `k8s-openapi`, directly or indirectly.
fn has_kubernetes_types(package: &Value, members: &[Value]) -> bool {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let mut normal = dependencies.filter(|dependency| dependency["kind"].is_null());
    normal.any(|dependency| {
        let member = members.iter().find(|member| member["name"] == dependency["name"]);
        match member {
            Some(member) => has_kubernetes_types(member, members),
            None => dependency["name"] == "k8s-openapi" || dependency["name"] == "kube",
        }
    })
}

/// Whether the manifest chooses a version of `k8s-openapi` for docs.rs. A crate that depends on `k8s-openapi` chooses
/// with a feature. Other crates set the variable that the build script of `k8s-openapi` reads.
fn docs_rs_has_a_version(package: &Value) -> bool {
    let docs_rs = &package["metadata"]["docs"]["rs"];
    let has = |list: &Value, start: &str| {
        list.as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .any(|text| text.starts_with(start))
    };
    has(&docs_rs["features"], "k8s-openapi/v1_")
        || has(&docs_rs["cargo-args"], "env.K8S_OPENAPI_ENABLED_VERSION=")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{docs_rs_has_a_version, has_kubernetes_types};

    #[test]
    fn a_version_for_docs_rs_is_a_feature_or_a_variable() {
        let with = |docs_rs| json!({"metadata": {"docs": {"rs": docs_rs}}});
        assert!(docs_rs_has_a_version(&with(
            json!({"features": ["server", "k8s-openapi/v1_36"]})
        )));
        assert!(docs_rs_has_a_version(&with(
            json!({"cargo-args": ["--config", "env.K8S_OPENAPI_ENABLED_VERSION='1.36'"]})
        )));
        assert!(!docs_rs_has_a_version(&with(json!({"features": ["server"]}))));
        assert!(!docs_rs_has_a_version(&json!({"metadata": null})));
    }

    #[test]
    fn kubernetes_types_come_by_way_of_other_crates_too() {
        let member = |name: &str, dependencies| json!({"name": name, "dependencies": dependencies});
        let leaf = member(
            "leaf",
            json!([{"name": "http", "kind": null}, {"name": "kube", "kind": "dev"}]),
        );
        let core = member(
            "core",
            json!([{"name": "leaf", "kind": null}, {"name": "kube", "kind": null}]),
        );
        let provider = member("provider", json!([{"name": "core", "kind": null}]));
        let all = [leaf.clone(), core.clone(), provider.clone()];
        assert!(has_kubernetes_types(&provider, &all) && has_kubernetes_types(&core, &all));
        assert!(!has_kubernetes_types(&leaf, &all));
    }
}
